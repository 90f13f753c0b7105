"""Types of answers: what the documents say, and what tests hold real answers against. No handler makes one.

Handlers make plain dictionaries, which cost the least; a type here and below each API's ``http`` is their description.
"""

from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from moorage.api.endpoint import ALWAYS, Range
from moorage.api.fields import only

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""With its zone: ``2026-01-31T12:00:00Z``."""


class Link(msgspec.Struct, frozen=True):
    rel: str
    href: str


@cache
def one(name: str, of: Any) -> Any:
    """``{name: …}``."""
    return msgspec.defstruct(f"{of.__name__}Answer", [(name, of)])


@cache
def many(name: str, of: Any, links: str | None = None, paged: Range = ALWAYS) -> Any:
    """``{name: […]}``, with links to other pages where ``links`` names them; ``paged``: the versions that have pages."""
    kind: Any = list[Link] | UnsetType
    kind = kind if paged == ALWAYS else Annotated[kind, only(paged)]
    more: list[Any] = [(links, kind, UNSET)] if links else []
    return msgspec.defstruct(f"{of.__name__}{'Page' if links else 'List'}", [(name, list[of]), *more])


@cache
def made(name: str, names: str, of: Any) -> Any:
    """What a create makes: ``{name: …}``, or ``{names: […]}`` of a bulk one."""
    return msgspec.defstruct(
        f"{of.__name__}Made", [(name, of | UnsetType, UNSET), (names, list[of] | UnsetType, UNSET)]
    )
