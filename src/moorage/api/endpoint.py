"""Endpoints: an API is a tuple of these rows, and the router, 405 answers and documents follow from it."""

from collections.abc import Awaitable, Callable
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


class Endpoint(msgspec.Struct, frozen=True):
    """One row of an API's table.

    method, path    ``/servers/{server_id}``; several rows may share them with different version ranges
    handler         ``async def show(call) -> Reply | body``
    policy          rule checked before the handler, against the caller's own project; None: open to all
    body, query     msgspec types that the request is decoded to; None: no body is read / raw lists
    action          for POST …/action: the key of the body that chooses this row
    status          of an answer that is not a Reply
    response        type of the body, for the API document
    media           accepted request media types
    """

    method: str
    path: str
    handler: Handler
    policy: str | None = None
    body: Any = None
    query: Any = None
    versions: Range = ALWAYS
    status: int = 200
    response: Any = None
    action: str | None = None
    media: tuple[str, ...] = ("application/json",)

    def offers(self, version: Version) -> bool:
        """Whether this row is part of the API at ``version``."""
        first, last = self.versions
        return first <= version and (last is None or version <= last)
