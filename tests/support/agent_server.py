"""A control plane's agent API alone: real HTTP over TLS on a unix socket, real PostgreSQL, what it was told in lists."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from moorage.agentlink.http.routes import agent_api
from moorage.agentlink.service import AgentLink
from moorage.server.listeners import Listeners
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals
from moorage.wire.messages import Event, HostReport, Result, Verdict
from support.authority import AUTHORITY

REPORT = {
    "vcpus": 4,
    "memory_mb": 8192,
    "disk_gb": 100,
    "hypervisor_type": "simulated",
    "hypervisor_version": 1,
    "cpu_arch": "x86_64",
    "datapath": "simulated",
    "protocol": 4,
    "agent_version": "1",
}
"""The least that a host reports."""

#: Seconds for what comes in a moment, on a machine that has much else to do.
PATIENCE = 180.0


class AgentServer:
    """One API process's worth; several can serve one database."""

    def __init__(self, database_url: str) -> None:
        self.database = Database(database_url)
        self.signals = Signals(self.database)
        self.link = AgentLink(
            self.database,
            self.signals,
            authority=AUTHORITY,
            on_result=self.on_result,
            on_event=self.on_event,
            on_report=self.on_report,
        )
        self.results: dict[str, list[Result]] = {}
        self.events: list[tuple[str, Event]] = []
        self.reports: list[tuple[str, HostReport]] = []
        self.reject: set[str] = set()
        self.verdicts: dict[str, Verdict] = {}
        self.judged: list[tuple[str, list[str]]] = []
        self.link.judge = self.judge
        self._changed = asyncio.Condition()
        self._stack = contextlib.AsyncExitStack()
        self._listeners = Listeners()

    async def __aenter__(self) -> Self:
        await self.database.open()
        await self.signals.start()
        folder = self._stack.enter_context(TemporaryDirectory(prefix="moorage-", dir="/tmp"))
        self.socket = Path(folder, "agent.sock")
        self.url = f"https+unix://{self.socket}"
        await self.serve()
        return self

    async def serve(self) -> None:
        """Begin to answer."""
        await self.link.start()
        self._listeners = Listeners()
        self._listeners.add_unix(agent_api(self.link), self.socket, tls=AUTHORITY.server_context())
        await self._listeners.start()

    async def silence(self) -> None:
        """Stop answering, as a process that ends."""
        closing = asyncio.ensure_future(self._listeners.stop())
        await asyncio.sleep(0)
        await self.link.stop()
        await closing

    async def __aexit__(self, *_: object) -> None:
        await self.silence()
        await self.signals.stop()
        await self.database.close()
        await self._stack.aclose()

    async def on_result(self, _tx: Tx, result: Result) -> None:
        if result.step in self.reject:
            message = f"the test rejects {result.step}"
            raise ValueError(message)
        self.results.setdefault(result.command_id, []).append(result)
        await self._tell()

    async def on_event(self, _tx: Tx, host: str, event: Event) -> None:
        self.events.append((host, event))
        await self._tell()

    async def on_report(self, _tx: Tx, host: str, report: HostReport) -> None:
        self.reports.append((host, report))
        await self._tell()

    async def judge(self, _tx: Tx, host: str, server_ids: Sequence[str]) -> dict[str, Verdict]:
        """Guests may be where they are, unless ``verdicts`` says otherwise."""
        self.judged.append((host, list(server_ids)))
        await self._tell()
        return {server_id: self.verdicts.get(server_id, "keep") for server_id in server_ids}

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, question: Any) -> None:
        """Wait until ``question()`` is true; it is asked whenever something was heard."""
        async with self._changed, asyncio.timeout(PATIENCE):
            await self._changed.wait_for(question)

    async def result(self, command_id: str) -> Result:
        """The result of a command."""
        await self.until(lambda: command_id in self.results)
        return self.results[command_id][-1]

    async def ticket(self, host: str | None = None, uses: int = 1) -> str:
        """An enrolment ticket."""
        async with self.database.transaction() as tx:
            return await self.link.enrolment.create_ticket(tx, host=host, uses=uses)

    async def send_when_known(self, host: str, payload: Any, *, operation: str) -> str:
        """The same for a host that may not have enrolled yet."""
        async with asyncio.timeout(PATIENCE):
            while True:
                async with self.database.read() as tx:
                    if any(known.name == host for known in await self.link.registry.hosts(tx)):
                        break
                await asyncio.sleep(0.02)
        return await self.send(host, payload, operation=operation)

    async def send(self, host: str, payload: Any, *, operation: str, step: str = "do", fence: int = 1) -> str:
        """Enqueue one command in a transaction of its own."""
        async with self.database.transaction() as tx:
            return await self.link.enqueue(
                tx, host=host, operation=operation, step=step, fence=fence, payload=payload
            )
