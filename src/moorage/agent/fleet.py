"""Many simulated hosts in one process, over one pool: for tests, benchmarks and clouds without QEMU.

Each is a whole agent (its own certificate, connections, polls, journal and guests), so the control plane sees no difference.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import msgspec

from moorage.agent.agent import Agent
from moorage.agent.config import Settings
from moorage.agent.datapaths.simulated import SimulatedDatapath
from moorage.agent.hypervisors.simulated import Behaviour, SimulatedHypervisor
from moorage.agent.joining import TicketSource
from moorage.agent.journal import FileJournal, MemoryJournal
from moorage.agent.link import Transport

_GROUP = 50  # hosts that enrol at once


class SimulatedHost(msgspec.Struct, frozen=True, kw_only=True):
    """What one host of a fleet reports."""

    name: str
    vcpus: int = 64
    memory_mb: int = 262_144
    disk_gb: int = 4_000
    physical_networks: tuple[str, ...] = ()
    reserved_memory_mb: int = 512


def hosts(count: int, prefix: str = "sim") -> Iterator[SimulatedHost]:
    """``count`` hosts named PREFIX-0001 and so on."""
    return (SimulatedHost(name=f"{prefix}-{n:04d}") for n in range(1, count + 1))


class Fleet:
    """``start`` returns when every host is enrolled; ``stop`` ends them all.

    ``ticket`` gives an enrolment ticket for a host's name, or is one that may be used by all. With
    ``state_dir`` identities, journals and guests outlive the process; without it they live in a temporary folder.
    """

    def __init__(
        self,
        control_url: str,
        hosts: Iterable[SimulatedHost],
        *,
        ticket: str | TicketSource,
        state_dir: Path | None = None,
        behaviour: Behaviour | None = None,
        heartbeat: float = 10.0,
        poll_wait: int = 30,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.agents: dict[str, Agent] = {}
        self._hosts = list(hosts)
        self._template = Settings(
            control_url=control_url,
            host="",
            state_dir=Path(),
            hypervisor="simulated",
            datapath="simulated",
            heartbeat=heartbeat,
            poll_wait=poll_wait,
        )
        self._ticket = ticket
        self._state_dir = state_dir
        self._stack = contextlib.AsyncExitStack()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start every host; raises the first host's error when one cannot be enrolled at all."""
        self._transport = await self._stack.enter_async_context(Transport(self._template.control_url))
        folder = self._state_dir or Path(
            self._stack.enter_context(TemporaryDirectory(prefix="moorage-fleet-"))
        )
        try:
            for group in range(0, len(self._hosts), _GROUP):
                names = [host.name for host in self._hosts[group : group + _GROUP]]
                for host in self._hosts[group : group + _GROUP]:
                    self.start_host(host, folder / host.name)
                await asyncio.gather(*(self._enrolled(name) for name in names))
        except BaseException:
            await self.stop()
            raise

    async def _enrolled(self, name: str) -> None:
        waiter = asyncio.create_task(self.agents[name].enrolled.wait())
        try:
            await asyncio.wait([waiter, self._tasks[name]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if self._tasks[name].done():
            self._tasks[name].result()

    def start_host(self, host: SimulatedHost, folder: Path) -> Agent:
        """Start one host; it enrols by itself."""
        settings = msgspec.structs.replace(
            self._template,
            host=host.name,
            state_dir=folder,
            vcpus=host.vcpus,
            memory_mb=host.memory_mb,
            disk_gb=host.disk_gb,
            reserved_memory_mb=host.reserved_memory_mb,
            physical_networks=host.physical_networks,
        )
        agent = Agent(
            settings,
            self._transport,
            FileJournal(folder / "journal.sqlite") if self._state_dir else MemoryJournal(),
            SimulatedHypervisor(self.behaviour, folder / "guests" if self._state_dir else None),
            SimulatedDatapath(host.physical_networks),
            self._ticket_for,
        )
        self.agents[host.name] = agent
        self._tasks[host.name] = asyncio.create_task(agent.run(), name=f"agent-{host.name}")
        return agent

    async def stop_host(self, name: str) -> None:
        """End one host's agent, as if the process had been told to stop."""
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def stop(self) -> None:
        """End every agent and give the connections up; an agent's own failure is raised."""
        for task in self._tasks.values():
            task.cancel()
        ended = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        await self._stack.aclose()
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    def _ticket_for(self, name: str) -> Awaitable[str | None] | str | None:
        return self._ticket if isinstance(self._ticket, str) else self._ticket(name)
