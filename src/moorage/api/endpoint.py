"""Endpoints: an API is a tuple of these rows, and the router, 405 answers and documents follow from it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from moorage.api.versions import Version, parse

Handler = Callable[..., Awaitable[Any]]
Range = tuple[Version, Version | None]
ALWAYS: Range = ((0, 0), None)


def since(version: str) -> Range:
    """From this microversion on."""
    return parse(version), None


def between(first: str, last: str) -> Range:
    """From ``first`` to ``last``, both included."""
    return parse(first), parse(last)


def until(last: str) -> Range:
    """Up to and including ``last``."""
    return (0, 0), parse(last)


class Query(msgspec.Struct, frozen=True):
    """The parameters of a query that the handler reads as lists of texts.

    names    each with the version it came with: before that it is unknown
    strict   unknown ones are refused from this version on; None: they mean nothing, or the handler judges
    """

    names: Mapping[str, Version]
    strict: Version | None = None

    def known(self, version: Version) -> frozenset[str]:
        """The parameters at a version."""
        return frozenset(name for name, first in self.names.items() if first <= version)


def names(*always: str, strict: str | None = None, later: Mapping[str, str] | None = None) -> Query:
    """Parameters that were always there, and later ones with the version they came with."""
    found: dict[str, Version] = dict.fromkeys(always, (0, 0))
    found |= {name: parse(version) for name, version in (later or {}).items()}
    return Query(found, parse(strict) if strict is not None else None)


NO_QUERY = Query({}, strict=(0, 0))
"""No parameters: whatever is given is refused. For APIs of our own; OpenStack's ignore what they do not know."""


class Header(msgspec.Struct, frozen=True):
    """A header that a handler reads or answers. ``refused``: the status of one that does not hold, if it is a condition."""

    name: str
    pattern: str
    about: str
    refused: int | None = None


class Endpoint(msgspec.Struct, frozen=True):
    """One row of an API's table.

    method, path    ``/servers/{server_id}``; several rows may share them with different version ranges
    handler         ``async def show(call) -> Reply | body``
    policy          rule checked before the handler, against the caller's own project; None: open to all
    body            msgspec type that the body is decoded to; None: no body is read
    query           msgspec type that the query is decoded to, or a Query: lists by name; None: it has no parameters
    action          for POST …/action: the key of the body that chooses this row
    status          of an answer that is not a Reply
    statuses        others that a Reply of this handler may have
    response        type of the answer's body, which the handler makes as it likes; None: it has none. The API document
                    has it, and `tests/api/test_answers.py` holds real answers against that
    headers         of the request, that the handler reads
    tells           headers of the good answer, that the handler makes and `tests/api/test_answers.py` looks for
    media           accepted request media types
    produces        media type of the answer's body
    """

    method: str
    path: str
    handler: Handler
    policy: str | None = None
    body: Any = None
    query: Any = None
    versions: Range = ALWAYS
    status: int = 200
    statuses: tuple[int, ...] = ()
    response: Any = None
    action: str | None = None
    headers: tuple[Header, ...] = ()
    tells: tuple[Header, ...] = ()
    media: tuple[str, ...] = ("application/json",)
    produces: str = "application/json"

    def offers(self, version: Version) -> bool:
        """Whether this row is part of the API at ``version``."""
        first, last = self.versions
        return first <= version and (last is None or version <= last)
