"""The one outbound connection: enrol, poll for commands, send what is to be said. HTTP over TLS, with JSON.

Both sides show certificates of the control plane's authority, over TCP and over a socket alike. Connections are kept,
so that a handshake is paid once for many requests.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler

from moorage.agent import identity
from moorage.agent.errors import CredentialRefused, LinkDown, ResultUnknown
from moorage.agent.identity import Identity
from moorage.core.errors import BadRequest
from moorage.wire.coding import decode_commands, encode
from moorage.wire.messages import (
    Command,
    EnrollReply,
    EnrollRequest,
    GuestList,
    HostReport,
    RenewReply,
    RenewRequest,
    ReportReply,
    Uplink,
    Verdict,
    Verdicts,
)
from moorage.wire.tickets import CONTROL_NAME, Ticket

_MARGIN = 15.0  # seconds beyond a poll's wait after which the control plane counts as gone
_SLOW = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_API = "/agent/v1"

Download = Callable[[str], AbstractAsyncContextManager[aiohttp.StreamReader]]
"""Opens the bytes of an image by its path at the control plane."""


class Transport:
    """A pool of HTTP connections to one control plane; many agents of one process can share it."""

    def __init__(self, control_url: str) -> None:
        parts = urlsplit(control_url)
        self._socket: str | None = None
        if parts.scheme == "https+unix" and parts.path:
            self._socket, self.base = parts.path, f"https://{CONTROL_NAME}"
        elif parts.scheme == "https" and parts.netloc:
            self.base = control_url.rstrip("/")
        else:
            message = f"control_url {control_url!r}: give https://HOST:PORT or https+unix:///PATH.sock"
            raise BadRequest(message, field="control_url")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Given up before the server does (75 s): a request would meet the closing of its connection.
        common: dict[str, Any] = {"limit": 0, "keepalive_timeout": 60.0}
        connector: aiohttp.BaseConnector = (
            TlsUnixConnector(self._socket, **common) if self._socket else aiohttp.TCPConnector(**common)
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), middlewares=(_once,)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        tls: ssl.SSLContext,
        body: bytes | None = None,
        seconds: float = _MARGIN,
    ) -> bytes:
        """One request with the certificate in ``tls``; the body of a 2xx answer.

        Raises CredentialRefused (401, 403), ResultUnknown (404), BadRequest (other 4xx), LinkDown (the rest).
        """
        try:
            async with self._open().request(
                method,
                self.base + path,
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds),
                ssl=tls,
                server_hostname=CONTROL_NAME,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LinkDown(f"{self.base}{path}: {type(error).__name__}: {error}") from error
        if answer.status < 300:
            return content
        raise _refusal(answer.status, path, content)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, tls: ssl.SSLContext) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a GET as it comes. Raises as ``request`` does."""
        try:
            async with self._open().get(
                self.base + path, timeout=_SLOW, ssl=tls, server_hostname=CONTROL_NAME
            ) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, path, await answer.content.read(500))
                yield answer.content
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LinkDown(f"{self.base}{path}: {type(error).__name__}: {error}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            message = "the transport is not open: use it as a context manager"
            raise LinkDown(message)
        return self._session


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    # Where a kept connection breaks, aiohttp would repeat a GET by itself. A poll whose answer may be lost has to ask
    # for everything, so it must hear of that.
    try:
        return await handler(request)
    except aiohttp.ClientError as error:
        raise LinkDown(f"{request.url}: {type(error).__name__}: {error}") from error


def _refusal(status: int, path: str, content: bytes) -> Exception:
    told = f"{path}: {status} {content[:500].decode(errors='replace')}"
    if status in {401, 403}:
        return CredentialRefused(told)
    if status == 404:
        return ResultUnknown(told)
    if 400 <= status < 500 and status not in {408, 429}:
        return BadRequest(told)
    return LinkDown(told)


class TlsUnixConnector(aiohttp.UnixConnector):
    """aiohttp's own speaks no TLS over a socket; this one does as its connector for TCP."""

    def close(self, *, abort_ssl: bool = True) -> Awaitable[None]:
        """Close at once: no farewell is waited for."""
        return super().close(abort_ssl=abort_ssl)

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        del traces
        assert isinstance(req.ssl, ssl.SSLContext)
        async with asyncio.timeout(timeout.sock_connect):
            _, protocol = await self._loop.create_unix_connection(
                self._factory, self.path, ssl=req.ssl, server_hostname=CONTROL_NAME
            )
        return protocol


async def enroll(transport: Transport, request: EnrollRequest, ticket: Ticket) -> EnrollReply:
    """Trade a ticket for this host's certificate."""
    tls = identity.trusting(ticket)
    answer = await transport.request("POST", f"{_API}/enroll", tls=tls, body=encode(request))
    return msgspec.json.decode(answer, type=EnrollReply)


class Link:
    """What an enrolled host says and asks, by its certificate."""

    def __init__(self, transport: Transport, known: Identity) -> None:
        self._transport = transport
        self.use(known)

    def use(self, known: Identity) -> None:
        """Be this host from the next connection on."""
        self.identity = known
        self._tls = identity.context_of(known)

    async def poll(self, *, after: int, wait: int) -> list[Command]:
        """Commands not seen yet; held open up to ``wait`` seconds. ``after``: the highest seq of those that came
        last; 0 asks for all that are unfinished.
        """
        path = f"{_API}/commands?wait={wait}&after={after}"
        answer = await self._transport.request("GET", path, tls=self._tls, seconds=wait + _MARGIN)
        return decode_commands(answer).commands

    async def send(self, uplink: Uplink) -> None:
        """Hand over results and events; returns once they are recorded."""
        await self._post("/results", uplink)

    async def report(self, report: HostReport) -> ReportReply:
        """The heartbeat."""
        return msgspec.json.decode(await self._post("/report", report), type=ReportReply)

    async def judge(self, guests: list[str]) -> dict[str, Verdict]:
        """May these guests still be here? By server id."""
        return msgspec.json.decode(await self._post("/guests", GuestList(guests)), type=Verdicts).verdicts

    async def renew(self, csr: str) -> RenewReply:
        """A certificate for a new key."""
        return msgspec.json.decode(await self._post("/renew", RenewRequest(csr=csr)), type=RenewReply)

    def download(self, path: str) -> AbstractAsyncContextManager[aiohttp.StreamReader]:
        """An image, asked for as this host. Raises as ``Transport.stream`` does."""
        return self._transport.stream(path, self._tls)

    async def _post(self, path: str, message: Any) -> bytes:
        return await self._transport.request("POST", _API + path, tls=self._tls, body=encode(message))
