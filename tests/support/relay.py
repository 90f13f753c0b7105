"""A wire between agents and control planes that breaks while an answer is on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path


class Relay:
    """Passes connections of its socket on to ``target``.

    ``cut``: the next bytes that come back are lost, and their connection with them, on both sides. With ``onward`` all
    connections are, as when a process dies with an answer, and that is the target from then on. ``lost`` tells of it.
    """

    def __init__(self, socket: Path, target: Path) -> None:
        self.url = f"https+unix://{socket}"
        self.target = target
        self.onward: Path | None = None
        self.cut = asyncio.Event()
        self.lost = asyncio.Event()
        self._socket = socket
        self._ends: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Relay"]:
        server = await asyncio.start_unix_server(self._connected, self._socket)
        try:
            yield self
        finally:
            server.close()
            self._abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self.target)
        ends = {writer, back}
        self._ends |= ends
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer, answers=True))
        self._ends -= ends
        for end in ends:
            end.transport.abort()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        while data := await source.read(1 << 16):
            if answers and self.cut.is_set():
                self.cut.clear()
                self.lost.set()
                if self.onward is not None:
                    self.target = self.onward
                    self._abort()
                break
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError

    def _abort(self) -> None:
        for end in self._ends:
            end.transport.abort()
