"""The one outbound connection: enrol, poll for commands, send what is to be said. HTTP with JSON."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec

from moorage.agent.errors import CredentialRefused, LinkDown, ResultUnknown
from moorage.core.errors import BadRequest
from moorage.wire.coding import decode_commands, encode
from moorage.wire.messages import Command, EnrollReply, EnrollRequest, HostReport, Uplink

_MARGIN = 15.0  # seconds beyond a poll's wait after which the control plane counts as gone
_SLOW = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_decode_enrolled = msgspec.json.Decoder(EnrollReply).decode


Download = Callable[[str], AbstractAsyncContextManager[aiohttp.StreamReader]]
"""Opens the bytes of an image by its path at the control plane."""


class Transport:
    """A pool of HTTP connections to one control plane; many agents of one process can share it."""

    def __init__(self, control_url: str) -> None:
        parts = urlsplit(control_url)
        self._socket: str | None = None
        if parts.scheme == "http+unix":
            self._socket, self.base = parts.path, "http://control"
        elif parts.scheme in {"http", "https"} and parts.netloc:
            self.base = control_url.rstrip("/")
        else:
            message = (
                f"control_url {control_url!r}: give http://HOST:PORT, https://... or http+unix:///PATH.sock"
            )
            raise BadRequest(message, field="control_url")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Given up before the server does (5 s by default): a request would meet the closing of its connection.
        common: dict[str, Any] = {"limit": 0, "keepalive_timeout": 3.0}
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(self._socket, **common) if self._socket else aiohttp.TCPConnector(**common)
        )
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
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
        credential: str | None = None,
        body: bytes | None = None,
        seconds: float = _MARGIN,
    ) -> bytes:
        """One request; the body of a 2xx answer.

        Raises CredentialRefused (401, 403), ResultUnknown (404), BadRequest (other 4xx), LinkDown (the rest).
        """
        headers = {"Content-Type": "application/json"}
        if credential is not None:
            headers["Authorization"] = f"Bearer {credential}"
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._open().request(
                method, self.base + path, data=body, headers=headers, timeout=timeout
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LinkDown(f"{self.base}{path}: {type(error).__name__}: {error}") from error
        if answer.status < 300:
            return content
        raise _refusal(answer.status, path, content)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, credential: str) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a GET as it comes. Raises as ``request`` does."""
        headers = {"Authorization": f"Bearer {credential}"}
        try:
            async with self._open().get(self.base + path, headers=headers, timeout=_SLOW) as answer:
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


def _refusal(status: int, path: str, content: bytes) -> Exception:
    told = f"{path}: {status} {content[:500].decode(errors='replace')}"
    if status in {401, 403}:
        return CredentialRefused(told)
    if status == 404:
        return ResultUnknown(told)
    if 400 <= status < 500 and status not in {408, 429}:
        return BadRequest(told)
    return LinkDown(told)


async def enroll(transport: Transport, request: EnrollRequest) -> EnrollReply:
    """Trade a one-time token for this host's credential."""
    answer = await transport.request("POST", "/agent/v1/enroll", body=encode(request))
    return _decode_enrolled(answer)


class Link:
    """What an enrolled host says and asks."""

    def __init__(self, transport: Transport, credential: str) -> None:
        self._transport = transport
        self._credential = credential

    async def poll(self, *, after: int, wait: int) -> list[Command]:
        """Commands not seen yet; held open up to ``wait`` seconds. ``after`` 0 asks for all that are unfinished."""
        path = f"/agent/v1/commands?wait={wait}&after={after}"
        answer = await self._transport.request(
            "GET", path, credential=self._credential, seconds=wait + _MARGIN
        )
        return decode_commands(answer).commands

    async def send(self, uplink: Uplink) -> None:
        """Hand over results and events; returns once they are recorded."""
        await self._post("/agent/v1/results", uplink)

    async def report(self, report: HostReport) -> None:
        """The heartbeat."""
        await self._post("/agent/v1/report", report)

    def download(self, path: str) -> AbstractAsyncContextManager[aiohttp.StreamReader]:
        """An image, asked for as this host. Raises as ``Transport.stream`` does."""
        return self._transport.stream(path, self._credential)

    async def _post(self, path: str, message: Any) -> None:
        await self._transport.request("POST", path, credential=self._credential, body=encode(message))
