"""What the resources of the Placement API share: links, caching headers, checked names."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta

from moorage.api import Call, Reply
from moorage.api.endpoint import Header
from moorage.core.clock import utcnow
from moorage.core.errors import BadRequest
from moorage.core.ids import is_uuid
from moorage.placement.model import Provider
from moorage.placement.service import PlacementService

PlacementCall = Call[PlacementService]

MAX_AGE, AGE = "x-moorage-index-max-age", "x-moorage-index-age"
"""Seconds: how old the index may be that a request is answered from, and how old it was."""

INDEX_ASKED = (Header(MAX_AGE, r"^[0-9.]+$", "Seconds: how old the index may be that the answer is from."),)
INDEX_TOLD = (Header(AGE, r"^[0-9]+\.[0-9]{3}$", "Seconds: how old the index was that the answer is from."),)

LATEST = (1, 39)
FIRST = (1, 0)

ClassName = Annotated[str, Meta(pattern=r"^[A-Z0-9_]+\Z", max_length=255)]
CustomName = Annotated[str, Meta(pattern=r"^CUSTOM_[A-Z0-9_]+\Z", max_length=255)]
Uuid = Annotated[
    str,
    Meta(pattern=r"^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\Z"),
]
Amount = Annotated[int, Meta(ge=1)]
Id = Annotated[str, Meta(min_length=1, max_length=255)]


def reply(
    call: PlacementCall,
    body: Any = None,
    *,
    status: int | None = None,
    changed_at: datetime | None = None,
    location: str | None = None,
) -> Reply:
    """Answer with the headers of the call's version; `changed_at` defaults to now."""
    headers = {}
    if call.version >= (1, 15):
        headers["last-modified"] = format_datetime((changed_at or utcnow()).astimezone(UTC), usegmt=True)
        headers["cache-control"] = "no-cache"
    if location is not None:
        headers["location"] = call.url(location)
    return Reply(body, status=status, headers=headers)


def max_age(call: PlacementCall) -> float:
    """Return how old the index may be, in seconds; raises BadRequest naming the header."""
    given = call.headers.get(MAX_AGE)
    if given is None:
        return call.app.settings.index_max_age
    try:
        age = float(given)
    except ValueError:
        age = -1.0
    if not 0 <= age < 86_400:
        raise BadRequest(f"{MAX_AGE} is a number of seconds below 86400. Got: {given}", field=MAX_AGE)
    return age


def index_age(call: PlacementCall) -> dict[str, str]:
    """Return the header that says how old the index is now."""
    return {AGE: f"{call.app.follower.age:.3f}"}


def href(call: PlacementCall, path: str) -> str:
    """Return a link to a path of this API, without scheme and host."""
    return urlsplit(call.base_url).path.rstrip("/") + path


def render_provider(call: PlacementCall, provider: Provider) -> dict[str, Any]:
    """Return a provider as the call's version shows it."""
    path = f"/resource_providers/{provider.id}"
    names = ["", "inventories", "usages"]
    names += [name for name, first in _LINKS if call.version >= first]
    body: dict[str, Any] = {
        "uuid": provider.id,
        "name": provider.name,
        "generation": provider.generation,
        "links": [
            {"rel": name or "self", "href": href(call, f"{path}/{name}" if name else path)} for name in names
        ],
    }
    if call.version >= (1, 14):
        body["parent_provider_uuid"] = provider.parent_id
        body["root_provider_uuid"] = provider.root_id
    return body


_LINKS = (("aggregates", (1, 1)), ("traits", (1, 6)), ("allocations", (1, 11)))


def newest(providers: Iterable[Provider]) -> datetime | None:
    """Return when the newest of some providers changed."""
    return max((provider.updated_at or provider.created_at for provider in providers), default=None)


def only_keys(query: Mapping[str, list[str]], allowed: Iterable[str], patterns: Iterable[str] = ()) -> None:
    """Refuse query parameters that this version does not know; `patterns` are told as what it knows besides."""
    unknown = sorted(set(query) - set(allowed))
    if unknown:
        regexes = ", ".join(f"'{pattern}'" for pattern in patterns)
        tail = f", '{unknown[0]}' does not match any of the regexes: {regexes}" if regexes else ""
        raise BadRequest(
            f"Invalid query string parameters: Additional properties are not allowed ('{unknown[0]}' was"
            f" unexpected){tail}",
            field=unknown[0],
            code="placement.query.bad_value",
        )


def canonical(text: str) -> str:
    """Return the dashed form of a UUID; what is none stays as it is, and is not found."""
    return str(uuid.UUID(text)) if is_uuid(text) else text


def check_uuid(text: str, field: str) -> str:
    """Return the text when it is a UUID, else refuse the field."""
    if not is_uuid(text):
        raise BadRequest(
            f"Invalid query string parameters: Expected '{field}' parameter to be a format of uuid, got: {text}",
            field=field,
            code="placement.query.bad_value",
        )
    return text
