"""An HTTP client that takes next to nothing of the machine it measures on: one connection, one request at a time."""

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

VERSION = "1.39"


class Answer(NamedTuple):
    """A status and a body, not yet decoded."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


class Connection:
    """One connection to a Placement API, opened again where the server closes it."""

    def __init__(self, url: str) -> None:
        self._at = urlsplit(url)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._head = (
            f" HTTP/1.1\r\nHost: {self._at.netloc}\r\nX-Auth-Token: admin\r\nAccept: application/json\r\n"
            f"OpenStack-API-Version: placement {VERSION}\r\n"
        ).encode()

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        """One request."""
        payload = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {self._at.path.rstrip('/')}{path}".encode() + self._head
        if body is not None:
            head += b"Content-Type: application/json\r\n"
        head += f"Content-Length: {len(payload)}\r\n\r\n".encode()
        if self._writer is None or self._writer.is_closing():
            # Answers with a thousand candidates are megabytes.
            self._reader, self._writer = await asyncio.open_connection(
                self._at.hostname, self._at.port, limit=1 << 24
            )
        self._writer.write(head + payload)
        return await self._answer()

    async def _answer(self) -> Answer:
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            body = await self._chunks()
        else:
            _, found, rest = head.partition(b"content-length:")
            size = int(rest.split(b"\r\n", 1)[0]) if found else 0
            body = await self._reader.readexactly(size)
        if b"connection: close" in head:
            await self.close()
        return Answer(status, body)

    async def _chunks(self) -> bytes:
        assert self._reader is not None
        found = []
        while size := int(await self._reader.readline(), 16):
            found.append(await self._reader.readexactly(size))
            await self._reader.readline()
        await self._reader.readline()
        return b"".join(found)

    async def close(self) -> None:
        """Close."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
