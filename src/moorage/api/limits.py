"""Bounds of what one request, and one connection, may cost.

The server (``server/connections.py``) keeps those of connections, headers and URLs, an ``Api`` those of bodies and
queries. What the server refuses is still answered by the API, in the shape that its clients read: the refusal travels
in the request's ``Passage``.
"""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive

from moorage.core.errors import BadRequest, MoorageError, TooLarge, Unavailable


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in seconds; see the options of [limits] for what each means."""

    body: int = 1 << 20
    url: int = 16 << 10
    headers: int = 64 << 10
    header_count: int = 100
    query_parameters: int = 1000
    json_depth: int = 32
    head_seconds: float = 20.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0
    answer_seconds: float = 60.0
    connections: int = 4000


class Passage(msgspec.Struct):
    """One request's way through the process.

    limits    what it must keep to
    refusal   what the server found wrong before the request was whole: the API answers with it; of a body that came too
              slowly it is known once the body ends
    api, route, status   filled in by the API: its name, the path of the table's row (never what the client sent; empty
              where there is none), and what it answered
    """

    limits: Limits = Limits()
    refusal: MoorageError | None = None
    api: str = ""
    route: str = ""
    status: int = 0


_KEY = "moorage.passage"


def passage_of(scope: MutableMapping[str, Any]) -> Passage:
    """The passage of a request, made where no server of ours has made one."""
    found: Passage | None = scope.get(_KEY)
    if found is None:
        found = scope[_KEY] = Passage()
    return found


async def read_body(receive: Receive, passage: Passage, size: int) -> bytes:
    """The whole body, of at most ``size`` bytes; raises TooLarge, and the refusal of a body that came too slowly."""
    chunks: list[bytes] = []
    got = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Unavailable("the client closed the connection")
        chunk = message.get("body", b"")
        got += len(chunk)
        if got > size:
            raise TooLarge(f"The request body is larger than {size} bytes.")
        chunks.append(chunk)
        if not message.get("more_body"):
            break
    if passage.refusal is not None:
        raise passage.refusal
    return b"".join(chunks) if len(chunks) > 1 else chunk


# A string to its end, or to the end of a text that breaks off. Possessive: it takes linear time on any input.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(n for n in range(256) if n not in b"[]{}")


def check_depth(raw: bytes, limit: int, headers: Mapping[str, str]) -> None:
    """Raise BadRequest for JSON whose lists and objects are nested deeper than ``limit``."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return
    if "json" not in headers.get("content-type", "json").lower():
        return
    left = _STRINGS.sub(b"", raw).translate(_SQUARE, _NOT_BRACKETS)
    # Each pass takes the innermost level away.
    for _ in range(limit):
        if not left:
            return
        left = left.replace(b"[]", b"")
    if left.startswith(b"[" * (limit + 1)) or b"[]" in left:
        raise BadRequest(
            f"The body's JSON is nested deeper than {limit} levels.", field="body", code="json_too_deep"
        )


def query_pairs(query: bytes, limit: int) -> list[tuple[str, str]]:
    """The query's parameters in order; raises BadRequest where there are more than ``limit``."""
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=limit)
    except ValueError as error:
        raise BadRequest(
            f"The query has more than {limit} parameters; ask in several requests.",
            field="query",
            code="too_many_parameters",
        ) from error
