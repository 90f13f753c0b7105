"""Values of requests: the API takes numbers and flags as text too, and names have rules."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.call import Call
from moorage.api.paging import limit_of
from moorage.compute.errors import InvalidField
from moorage.compute.service import ComputeService
from moorage.core.clock import iso

ComputeCall = Call[ComputeService]
Flag = bool | str
Number = int | str

_TRUE = {"true", "1", "on", "yes"}
_FALSE = {"false", "0", "off", "no"}
METADATA_KEY = re.compile(r"[a-zA-Z0-9-_:. ]{1,255}\Z")
HOST_NAME = re.compile(r"[a-zA-Z0-9-._]{1,255}\Z")
MAX_INT = 0x7FFFFFFF


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a request's body: unknown fields are refused."""


def flag(value: Flag, field: str) -> bool:
    """True or False, also as upstream's words for them; raises InvalidField."""
    if isinstance(value, bool):
        return value
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise InvalidField(f"Invalid input for field {field}: '{value[:32]}' is not a boolean.", field=field)


def number(value: Number, field: str, low: int = 0, high: int = MAX_INT) -> int:
    """An integer within bounds, also as decimal text; raises InvalidField."""
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            raise InvalidField(
                f"Invalid input for field {field}: '{value[:32]}' is not an integer.", field=field
            )
        value = int(value)
    if not low <= value <= high:
        raise InvalidField(
            f"Invalid input for field {field}: {value} is not between {low} and {high}.", field=field
        )
    return value


def name(value: str, field: str, longest: int = 255) -> str:
    """A name: printable, 1 to 255 characters, no blanks at the ends; raises InvalidField."""
    if not 1 <= len(value) <= longest or value != value.strip() or not value.isprintable():
        raise InvalidField(
            f"Invalid input for field {field}: a name has 1 to {longest} printable characters and no blanks at its "
            "ends.",
            field=field,
        )
    return value


def description(value: str | None, field: str, longest: int = 255) -> str | None:
    """Printable text; raises InvalidField."""
    if value is not None and (len(value) > longest or not value.isprintable()):
        raise InvalidField(
            f"Invalid input for field {field}: at most {longest} printable characters.", field=field
        )
    return value


def metadata(items: Mapping[str, Any], field: str) -> dict[str, str]:
    """Keys and values of at most 255 characters; raises InvalidField."""
    for key, value in items.items():
        if not METADATA_KEY.match(key):
            raise InvalidField(
                f"Invalid input for field {field}: the key '{key[:64]}' is not allowed.", field=field
            )
        if not isinstance(value, str) or len(value) > 255:
            raise InvalidField(
                f"Invalid input for field {field}.{key}: a text of at most 255 characters is needed.",
                field=f"{field}.{key}",
            )
    return dict(items)


def tag(value: str, field: str) -> str:
    """1 to 60 characters without comma and slash; raises InvalidField."""
    if not 1 <= len(value) <= 60 or "," in value or "/" in value:
        raise InvalidField(
            f"Invalid input for field {field}: a tag has 1 to 60 characters, none of them a comma or a slash.",
            field=field,
        )
    return value


def address(value: str, field: str, version: int | None = None) -> str:
    """An IP address in its canonical form; raises InvalidField."""
    try:
        # Python takes any words for the zone of an IPv6 address, which means nothing to others: no address with one.
        found = ipaddress.ip_address(value.replace("%", "/"))
    except ValueError as error:
        raise InvalidField(
            f"Invalid input for field {field}: '{value[:64]}' is not an IP address.", field=field
        ) from error
    if version is not None and found.version != version:
        raise InvalidField(f"Invalid input for field {field}: not an IPv{version} address.", field=field)
    return str(found)


def base64_text(value: str, field: str, longest: int = 65535) -> str:
    """Text in base64; raises InvalidField."""
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidField(f"Invalid input for field {field}: not base64.", field=field) from error
    if len(value) > longest:
        raise InvalidField(f"Invalid input for field {field}: longer than {longest} characters.", field=field)
    return value


def given(value: Any, default: Any = None) -> Any:
    """The value, or the default where the field was left out."""
    return default if value is msgspec.UNSET else value


def last(call: ComputeCall, key: str) -> str | None:
    """A query parameter; the last one where it is repeated."""
    values = call.query.get(key)
    return values[-1] if values else None


def page_limit(call: ComputeCall) -> int:
    """The page's size; raises BadRequest where it is no number."""
    for value in call.query.get("limit", ()):
        if not value.isdigit():
            raise InvalidField("limit must be a non-negative integer", field="limit")
    return limit_of(last(call, "limit"), call.app.max_limit)


def time_of(moment: datetime | None) -> str | None:
    """As most of the API writes times: ``2026-01-31T12:00:00Z``."""
    return None if moment is None else iso(moment)


def time_without_zone(moment: datetime | None) -> str | None:
    """As the older parts write them: microseconds and no zone, UTC meant."""
    return None if moment is None else moment.replace(tzinfo=None).isoformat(timespec="microseconds")


def links(call: ComputeCall, path: str) -> list[dict[str, str]]:
    """Self and bookmark of a resource; ``path`` begins with a slash."""
    return [{"rel": "self", "href": call.url(path)}, {"rel": "bookmark", "href": bookmark(call, path)}]


def bookmark(call: ComputeCall, path: str) -> str:
    """The address of a resource without a version."""
    return call.base_url.removesuffix("/v2.1") + path
