"""From bytes and query strings to the types of an endpoint; what does not fit names its field."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from moorage.api.endpoint import Endpoint, Query
from moorage.api.fields import check_fields, choices
from moorage.api.versions import Version
from moorage.core.errors import BadRequest, UnsupportedMediaType

_AT = re.compile(r" - at `(key in )?\$?\.?(.*)`$")


def decode_body(
    rows: list[Endpoint], raw: bytes, headers: Mapping[str, str], version: Version
) -> tuple[Endpoint, Any]:
    """Choose the row (by action, where several share a path) and decode the body to its type at the version.

    Raises BadRequest naming the field, UnsupportedMediaType for a body that is not JSON.
    """
    endpoint = rows[0]
    if endpoint.action is not None:
        return _decode_action(rows, raw, headers, version)
    if endpoint.body is None:
        return endpoint, raw or None
    _check_media(endpoint, headers)
    found = _decode(raw, endpoint.body)
    check_fields(found, endpoint.body, version)
    return endpoint, found


def _decode_action(
    rows: list[Endpoint], raw: bytes, headers: Mapping[str, str], version: Version
) -> tuple[Endpoint, Any]:
    _check_media(rows[0], headers)
    found = _decode(raw, dict[str, msgspec.Raw])
    if len(found) != 1:
        raise BadRequest("The body must hold exactly one action.", field="")
    name, value = next(iter(found.items()))
    for row in rows:
        if row.action == name:
            body = _decode(bytes(value), row.body, name) if row.body is not None else None
            check_fields(body, row.body, version, name)
            return row, body
    raise BadRequest(f"There is no such action: {name[:64]}", field=name[:64])


def _check_media(endpoint: Endpoint, headers: Mapping[str, str]) -> None:
    given = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if given not in endpoint.media:
        raise UnsupportedMediaType(f"The media type {given} is not supported, use {endpoint.media[0]}.")


def _decode(raw: bytes, to: Any, inside: str = "") -> Any:
    if not raw:
        raise BadRequest("A JSON body is needed.", field=inside or "body")
    try:
        found = _decoder(to).decode(raw)
    except msgspec.ValidationError as error:
        raise _bad(str(error), inside, to) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {error}", field="body") from error
    if rb"\u0000" in raw and _has_nul(msgspec.json.decode(raw)):
        raise BadRequest("The body has a text with a NUL character: none can be stored.", field="body")
    return found


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(k) or _has_nul(v) for k, v in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))


@lru_cache(maxsize=1024)
def _decoder(to: Any) -> msgspec.json.Decoder[Any]:
    strict = getattr(to, "__strict__", True)
    return msgspec.json.Decoder(to, strict=strict)


def _bad(text: str, inside: str = "", to: Any = None) -> BadRequest:
    match = _AT.search(text)
    where = match[2] if match else ""
    path = ".".join(p for p in (inside, where) if p)
    missing = re.search(r"missing required field `(\w+)`|unknown field `(\w+)`", text)
    if missing:
        path = ".".join(p for p in (path, missing[1] or missing[2]) if p)
    said = text[: match.start()] if match else text
    if to is not None and said.startswith("Invalid enum value"):
        said += f", one of {', '.join(map(repr, choices(to, where)))} is needed"
    return BadRequest(f"Invalid input for {path or 'the body'}: {said}.", field=path)


def decode_query(endpoint: Endpoint, pairs: list[tuple[str, str]], version: Version) -> Any:
    """The query as the endpoint's type; without one, lists of strings by name. Raises BadRequest naming the field."""
    given: dict[str, list[str]] = {}
    for key, value in pairs:
        if "\0" in key or "\0" in value:
            raise BadRequest("A NUL character is no part of a query.", field=key.replace("\0", "")[:64])
        given.setdefault(key, []).append(value)
    if endpoint.query is None:
        return given
    if isinstance(endpoint.query, Query):
        _check_names(endpoint.query, given, version)
        return given
    shape = _shape(endpoint.query)
    found: dict[str, Any] = {}
    for key, values in given.items():
        # Repeated single parameters: the last one wins, as upstream's parsers have it.
        found[key] = values if shape.get(key, False) else values[-1]
    try:
        return msgspec.convert(found, endpoint.query, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(str(error)) from error


def _check_names(query: Query, given: Mapping[str, Any], version: Version) -> None:
    if query.strict is None or version < query.strict:
        return
    for key in given.keys() - query.known(version):
        raise BadRequest(f"Additional query parameters are not allowed: {key[:64]}", field=key[:64])


@lru_cache(maxsize=512)
def _shape(query: Any) -> dict[str, bool]:
    hints = get_type_hints(query)
    names = dict(zip(query.__struct_fields__, query.__struct_encode_fields__, strict=True))
    return {names[n]: _is_list(t) for n, t in hints.items() if n in names}


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or kind is list or any(_is_list(a) for a in get_args(kind))
