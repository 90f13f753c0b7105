"""Pages of lists: limit and marker, and the links that go on."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from moorage.core.errors import BadRequest

MAX_LIMIT = 1000


def limit_of(value: int | str | None, maximum: int = MAX_LIMIT) -> int:
    """The number of rows to give; raises BadRequest for a negative or non-numeric one. 0 asks for the maximum."""
    if value is None:
        return maximum
    try:
        number = int(value)
    except ValueError as error:
        raise BadRequest("limit must be a non-negative integer", field="limit") from error
    if number < 0:
        raise BadRequest("limit must be a non-negative integer", field="limit")
    return min(number, maximum) if number else maximum


def next_link(url: str, query: Mapping[str, Any], marker: str) -> dict[str, str]:
    """The link to the page after ``marker``, with the same filters."""
    kept = [(k, v) for k, v in query.items() if k != "marker" and v is not None]
    return {"rel": "next", "href": f"{url}?{urlencode([*kept, ('marker', marker)], doseq=True)}"}
