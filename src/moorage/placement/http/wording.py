"""Failed type checks in the words of a failed JSON Schema.

Clients and test suites of this API read the text of a 400: the value that is wrong, and the JSON Schema keyword that it
fails. Bodies here are checked by types. The type check says what is wrong at which path, yet not with which value, and
its path writes `[...]` for any item: so the value is looked for in the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from moorage.core.errors import BadRequest

_PATH = re.compile(r" - at (`key` in )?`\$(.*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\.\.\.|\d+)\]")
_MAX_SHOWN = 100


class _Form(NamedTuple):
    """A sentence of the type check, that of a schema with its keyword, and which values it is about."""

    says: str
    sentence: str
    keyword: str
    concerns: Callable[[Any, str], bool]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _not(*kinds: type) -> Callable[[Any, str], bool]:
    return lambda value, _: not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)


def _shorter(kind: type) -> Callable[[Any, str], bool]:
    return lambda value, least: isinstance(value, kind) and len(value) < int(least)  # type: ignore[arg-type]


_FORMS: tuple[_Form, ...] = (
    _Form(r"missing required field `(\w+)`", "'{0}' is a required property", "required",
          lambda value, name: isinstance(value, dict) and name not in value),
    _Form(r"contains unknown field `(.+?)`", "Additional properties are not allowed ('{0}' was unexpected)",
          "additionalProperties", lambda value, name: isinstance(value, dict) and name in value),
    _Form(r"matching regex '(\^\[0-9a-fA-F\]\{8\}.*)'", "{value} is not a 'uuid'", "format",
          lambda value, regex: isinstance(value, str) and not re.search(regex, value)),
    _Form(r"matching regex '(.*)'", "{value} does not match '{0}'", "pattern",
          lambda value, regex: isinstance(value, str) and not re.search(regex, value)),
    _Form(r"`(?:int|float)` >= (\S+?)\.?$", "{value} is less than the minimum of {0}", "minimum",
          lambda value, least: _is_number(value) and value < float(least)),
    _Form(r"`(?:int|float)` > (\S+?)\.?$", "{value} is less than or equal to the minimum of {0}",
          "exclusiveMinimum", lambda value, least: _is_number(value) and value <= float(least)),
    _Form(r"`(?:int|float)` <= (\S+?)\.?$", "{value} is greater than the maximum of {0}", "maximum",
          lambda value, most: _is_number(value) and value > float(most)),
    _Form(r"`str` of length >= (\d+)", "{value} is too short", "minLength", _shorter(str)),
    _Form(r"`str` of length <= (\d+)", "{value} is too long", "maxLength",
          lambda value, most: isinstance(value, str) and len(value) > int(most)),
    _Form(r"`array` of length >= (\d+)", "{value} is too short", "minItems", _shorter(list)),
    _Form(r"`object` of length >= (\d+)", "{value} does not have enough properties", "minProperties",
          _shorter(dict)),
    _Form(r"Expected `(int)", "{value} is not of type 'integer'", "type", _not(int)),
    _Form(r"Expected `(float)", "{value} is not of type 'number'", "type", _not(int, float)),
    _Form(r"Expected `(array)", "{value} is not of type 'array'", "type", _not(list)),
    _Form(r"Expected `(str)", "{value} is not of type 'string'", "type", _not(str)),
    _Form(r"Expected `(object)", "{value} is not of type 'object'", "type", _not(dict)),
)  # fmt: skip


def as_schema_fault(failed: msgspec.ValidationError, raw: bytes) -> BadRequest:
    """Return the fault for a body that is JSON and not of its type."""
    text = str(failed)
    at = _PATH.search(text)
    path = at[2] if at else ""
    said = text[: at.start()] if at else text
    field = path.lstrip(".")
    steps = _STEP.findall(path)
    try:
        values = _values(msgspec.json.decode(raw), steps)
    except (
        msgspec.DecodeError,
        RecursionError,
    ) as error:  # the type check stops at the first thing that is wrong
        return BadRequest(f"Malformed JSON: {error}", field="body")
    if at is not None and at[1]:
        values = (name for value in values if isinstance(value, dict) for name in value)
    where = "".join(f"['properties']['{name}']" if name else "['items']" for name, _ in steps)
    for form in _FORMS:
        match = re.search(form.says, said)
        if match is None:
            continue
        limit = match[1].replace("\\\\", "\\")
        value = next((value for value in values if form.concerns(value, limit)), None)
        if at is not None and at[1] and form.keyword in {"pattern", "format"}:
            problem = f"{_shown(value)} does not match any of the regexes: '{_plain(limit)}'"
        else:
            problem = form.sentence.format(_plain(limit), value=_shown(value))
        return BadRequest(
            f"JSON does not validate: {problem}: Failed validating '{form.keyword}' in schema{where}",
            field=field,
        )
    return BadRequest(f"JSON does not validate: {said}", field=field)


def _plain(text: str) -> str:
    """Return a regular expression as JSON Schemas have it."""
    return text.replace(r"\Z", "$")


def _values(value: Any, steps: list[tuple[str, str]]) -> Iterator[Any]:
    """Yield every value of a body that a path may mean."""
    if not steps:
        yield value
        return
    (name, _), rest = steps[0], steps[1:]
    below: Any = ()
    if isinstance(value, dict):
        below = (value[name],) if name in value else () if name else value.values()
    elif isinstance(value, list) and not name:
        below = value
    for item in below:
        yield from _values(item, rest)
