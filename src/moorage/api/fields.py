"""Fields that not every microversion has: said with the type, refused in the others, written in the documents.

tags: Annotated[list[str] | UnsetType, only(since("2.52"))] = UNSET

A field of a request's body that has versions must be UNSET where it is left out: whatever else is one that was given.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, inspect

from moorage.api.endpoint import Range
from moorage.api.versions import Version, text
from moorage.core.errors import BadRequest

KEY = "x-openstack"
"""Where a schema has what it cannot say otherwise; the name is that of OpenStack's own documents."""


def only(*ranges: Range) -> msgspec.Meta:
    """For ``Annotated``: the field is there in these versions alone."""
    shown = [limits(each) for each in ranges]
    return msgspec.Meta(
        extra={"versions": ranges},
        extra_json_schema={KEY: shown[0] if len(shown) == 1 else {"ranges": shown}},
    )


def limits(versions: Range) -> dict[str, str]:
    """A range as documents have it."""
    first, last = versions
    return {
        **({"min-ver": text(first)} if first > (0, 0) else {}),
        **({"max-ver": text(last)} if last is not None else {}),
    }


def check_fields(body: Any, to: Any, version: Version, inside: str = "") -> None:
    """Raise BadRequest naming a field of a body of type ``to`` that the version has not got."""
    if _has_rules(to):
        _check(body, version, inside)


def _check(value: Any, version: Version, at: str) -> None:
    if isinstance(value, msgspec.Struct):
        for attribute, name, ranges in _rules(type(value)):
            found = getattr(value, attribute)
            if found is UNSET:
                continue
            where = f"{at}.{name}" if at else name
            if ranges and not any(
                first <= version and (last is None or version <= last) for first, last in ranges
            ):
                raise BadRequest(
                    f"Invalid input for {where}: unknown field at microversion {text(version)}, it is there"
                    f" {_words(ranges)}.",
                    field=where,
                )
            _check(found, version, where)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            _check(each, version, f"{at}[{place}]")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _check(each, version, f"{at}.{key}" if at else key)


def choices(to: Any, where: str) -> list[Any]:
    """The values that a type allows at a path as msgspec's errors have it: ``server.networks[0].tag``."""
    kinds = [inspect.type_info(to)]
    for step in re.findall(r"\[[^\]]*\]|[^.\[]+", where):
        kinds = [inner for kind in _plain(kinds) for inner in _inside(kind, step)]
    return [v for kind in _plain(kinds) if isinstance(kind, inspect.LiteralType) for v in kind.values]


def _plain(kinds: list[inspect.Type]) -> Iterator[inspect.Type]:
    for kind in kinds:
        if isinstance(kind, inspect.Metadata):
            yield from _plain([kind.type])
        elif isinstance(kind, inspect.UnionType):
            yield from _plain(list(kind.types))
        else:
            yield kind


def _inside(kind: inspect.Type, step: str) -> list[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == step]
    if isinstance(kind, inspect.DictType):
        return [kind.value_type]
    return [kind.item_type] if isinstance(kind, inspect.CollectionType) else []


def _words(ranges: tuple[Range, ...]) -> str:
    return " and ".join(
        f"from {text(first)} on"
        if last is None
        else f"until {text(last)}"
        if first == (0, 0)
        else f"in {text(first)}"
        if first == last
        else f"from {text(first)} to {text(last)}"
        for first, last in ranges
    )


@cache
def _has_rules(to: Any) -> bool:
    return to is not None and _deep(inspect.type_info(to))


@cache
def _rules(of: type[msgspec.Struct]) -> tuple[tuple[str, str, tuple[Range, ...]], ...]:
    """Attribute, name in JSON and versions of each field that has versions or holds one that has."""
    info = inspect.type_info(of)
    assert isinstance(info, inspect.StructType)
    found = ((field.name, field.encode_name, _versions(field.type), field.type) for field in info.fields)
    return tuple(
        (attribute, name, ranges) for attribute, name, ranges, kind in found if ranges or _deep(kind)
    )


def _versions(kind: inspect.Type) -> tuple[Range, ...]:
    return (kind.extra or {}).get("versions", ()) if isinstance(kind, inspect.Metadata) else ()


def _deep(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return bool(_versions(kind)) or _deep(kind.type)
    if isinstance(kind, inspect.StructType):
        return any(_deep(field.type) for field in kind.fields)
    if isinstance(kind, inspect.UnionType):
        return any(_deep(each) for each in kind.types)
    if isinstance(kind, inspect.DictType):
        return _deep(kind.value_type)
    return isinstance(kind, inspect.CollectionType) and _deep(kind.item_type)
