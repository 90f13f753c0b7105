"""The connections of an HTTP server, bounded in size, number and time.

uvicorn closes connections that are idle after an answer and nothing else: a client may take for ever to send headers
or a body, or to read an answer, send headers without end, and open any number of connections. ``BoundedProtocol`` adds
what is missing to uvicorn's own protocol. A connection is in one phase at a time, and each has its deadline:

    head    from the connection's beginning, or a request's first byte, to the end of its headers
    body    to the end of the body, whether the request was answered already or not
    (none)  the API works; polls of agents are long
    idle    uvicorn's own timer; this one where uvicorn has none
    linger  refused: what still comes is thrown away for a moment, so that the client can read the answer

Beside that, an answer that waits in the buffer must be taken at some speed.

What is over a limit while the request's method and URL are known goes to the API as a request with a refusal
(``api.limits.Passage``) and is answered in the API's own shape; then the connection is closed.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from moorage.api.limits import Limits, passage_of
from moorage.core.errors import (
    BadRequest,
    HeadersTooLarge,
    MoorageError,
    RequestTimeout,
    Unavailable,
    UriTooLong,
)

# Connections above the limit that are still told so; more are closed at once.
_SPARE = 64
# A body that comes after its answer is read and thrown away up to here (bytes), then the connection is cut.
_DISCARD = 32 << 20
_LINGER = 1.0
_LEAST = 64 << 10


class _Over(Exception):
    """A limit was met inside the parser."""


class _Closer:
    """The transport as an answer sees it: closing waits for the client to read, where it is still sending."""

    __slots__ = ("_protocol", "is_closing", "write")

    def __init__(self, protocol: "BoundedProtocol") -> None:
        self._protocol = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        self._protocol.finish()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol within ``limits``; see the module's text."""

    def __init__(self, *args: Any, limits: Limits, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.limits = limits
        self.timeout_keep_alive = limits.idle_seconds  # type: ignore[assignment]  # a number of seconds
        self._number = 0
        self._head_open = self._body_open = False
        self._head_bytes = self._kept_bytes = self._discarded = 0
        self._refusal: MoorageError | None = None
        self._deaf = False
        self._lingering = False
        self._phase: tuple[str, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unread = 0

    # --- asyncio's callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._closer = _Closer(self)
        if len(self.connections) > self.limits.connections + _SPARE:
            transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timer, self._write_timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._discard(len(data))
            return
        head_was_open = self._head_open
        super().data_received(data)
        if self._head_open and head_was_open:
            # Parts of a header are kept by the parser, which tells of whole ones only.
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.headers + self.limits.url:
                self._refuse(self._too_many_headers())
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # --- the parser's callbacks; what they raise ends in ``send_400_response``

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._number += 1
        self._head_open = True
        self._head_bytes = self._kept_bytes = 0
        passage_of(self.scope).limits = self.limits  # type: ignore[arg-type]  # a TypedDict

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.url:
            self._refusal = UriTooLong(f"The request's URL is longer than {self.limits.url} bytes.")
            raise _Over

    def on_header(self, name: bytes, value: bytes) -> None:
        self._kept_bytes += len(name) + len(value) + 4
        if self._kept_bytes > self.limits.headers or len(self.headers) >= self.limits.header_count:
            self._refusal = self._too_many_headers()
            raise _Over
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        refused = passage_of(self.scope).refusal is not None  # type: ignore[arg-type]  # a TypedDict
        if not refused and self.parser.should_upgrade() and self._announces_body():
            # The parser leaves such a body to the other protocol: it would be taken for the next request.
            self._refusal = BadRequest("A request with a body cannot ask for another protocol (Upgrade).")
            raise _Over
        self._head_open, self._body_open = False, True
        if len(self.connections) > self.limits.connections:
            passage_of(self.scope).refusal = Unavailable(  # type: ignore[arg-type]  # a TypedDict
                "This server has as many connections as it may; try again.", code="too_many_connections"
            )
        super().on_headers_complete()
        self.cycle.transport = self._closer  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._discard(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_open = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is no request of any API; what is over a limit is."""
        if self._refusal is None:
            super().send_400_response(msg)
        else:
            self._refuse(self._refusal)

    # --- uvicorn's callbacks

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_writes()
        self._watch()

    def finish(self) -> None:
        """Close after an answer: at once, or where the client is still sending, once it has had time to read."""
        if self._body_open or self._deaf:
            self._deaf = self._lingering = True
            self._watch()
        else:
            self.transport.close()

    # --- limits

    def _announces_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t"))
            for name, value in self.headers
        )

    def _too_many_headers(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"The request's headers are more than {self.limits.header_count}, or larger than"
            f" {self.limits.headers} bytes."
        )

    def _refuse(self, error: MoorageError) -> None:
        """Hand what is known of the request to the API, with what is wrong; hear nothing more."""
        self._refusal = None
        self._deaf = True
        asked = self._asked
        known = self._head_open and bool(self.url) and (asked is None or asked.response_complete)
        if not known:
            self._cut()
            return
        self.url = self.url[: self.limits.url]
        passage_of(self.scope).refusal = error  # type: ignore[arg-type]  # a TypedDict
        try:
            self.on_headers_complete()
        except (httptools.HttpParserError, UnicodeDecodeError, AttributeError):
            self._cut()
            return
        self._body_open = False
        self.cycle.keep_alive = False
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def _end_body(self) -> None:
        """The API gets what has come of a body, and with it that this was not all."""
        cycle = self.cycle
        passage_of(cycle.scope).refusal = RequestTimeout(  # type: ignore[arg-type]  # a TypedDict
            f"The request's body did not arrive within {self.limits.body_seconds:g} s; send it again."
        )
        self._deaf = True
        self._body_open = False
        cycle.keep_alive = cycle.more_body = False
        cycle.message_event.set()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _DISCARD:
            self._cut()

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def _asked(self) -> RequestResponseCycle | None:
        """The newest request; None before the first."""
        return self.cycle

    # --- deadlines

    def _due(self) -> tuple[str, int] | None:
        """The phase that the connection is in, and of which request."""
        if self.transport.is_closing():
            return None
        if self._lingering:
            return "linger", self._number
        if self._head_open:
            return "head", self._number
        if self._body_open and not self.pipeline:
            return "body", self._number
        asked = self._asked
        if asked is None:
            return "head", 0
        if not asked.response_complete or self.timeout_keep_alive_task is not None:
            return None
        return "idle", self._number

    def _watch(self) -> None:
        phase = self._due()
        if phase == self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if phase is not None:
            limits = self.limits
            seconds = {
                "linger": _LINGER,
                "head": limits.head_seconds,
                "body": limits.body_seconds,
                "idle": limits.idle_seconds,
            }[phase[0]]
            self._timer = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        name, number = self._phase or ("", 0)
        self._phase = self._timer = None
        if name == "body" and self.flow.read_paused:
            self._watch()  # the API has not read yet what came: not the client's fault
        elif name == "body" and not self.cycle.response_started:
            self._end_body()
        elif name == "head" and number and self.url:
            self._refuse(
                RequestTimeout(f"The request's headers did not arrive within {self.limits.head_seconds:g} s.")
            )
        else:
            self._hang_up()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came after an answer."""
        self._hang_up()

    def _hang_up(self) -> None:
        # Closing waits for what the client has not read yet, for ever if need be.
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _watch_writes(self) -> None:
        if self._write_timer is None:
            self._unread = self.transport.get_write_buffer_size()
            if self._unread:
                self._write_timer = self.loop.call_later(self.limits.answer_seconds, self._unread_for_long)

    def _unread_for_long(self) -> None:
        self._write_timer = None
        left = self.transport.get_write_buffer_size()
        if left and self._unread - left < _LEAST:
            self.transport.abort()
        else:
            self._watch_writes()
