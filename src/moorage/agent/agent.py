"""One agent: its parts put together, and the three loops that talk to the control plane."""

import asyncio
import random

from moorage.agent import facts
from moorage.agent.config import Settings
from moorage.agent.datapaths.base import Datapath
from moorage.agent.errors import ResultUnknown
from moorage.agent.guests import Guests
from moorage.agent.hypervisors.base import Hypervisor
from moorage.agent.joining import Joining, TicketSource
from moorage.agent.journal import Journal
from moorage.agent.link import Link, Transport
from moorage.agent.loop import CommandLoop
from moorage.agent.outbox import Outbox
from moorage.agent.returning import Returning
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.wire.messages import Event, HostReport, Uplink
from moorage.wire.protocol import PROTOCOL

log = get_logger(__name__)


class Agent:
    """A host. ``run`` returns only by cancellation; guests go on without it."""

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        journal: Journal,
        hypervisor: Hypervisor,
        datapath: Datapath,
        ticket: TicketSource | None = None,
    ) -> None:
        self.settings = settings
        self.guests = Guests(hypervisor, datapath)
        self._joining = Joining(settings, transport, ticket)
        self._journal = journal
        self._outbox = Outbox()
        self._loop = CommandLoop(self.guests, journal, self._outbox, settings.max_commands)
        self.returning = Returning(self.guests, self._loop, self._outbox)
        self.enrolled = asyncio.Event()
        hypervisor.on_ended = self._guest_ended

    async def run(self) -> None:
        """Find the guests, enrol if need be, then serve."""
        try:
            await self.guests.datapath.start()
            link = await self._joining.join(Backoff(self.settings.host).wait)
            await self.guests.hypervisor.start(link.download)
            self.enrolled.set()
            for result in await self._journal.unacknowledged():
                self._outbox.put(result)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._heartbeat(link), name="agent-heartbeat")
                tasks.create_task(self._take_commands(link), name="agent-commands")
                tasks.create_task(self._send(link), name="agent-uplink")
        finally:
            await self._loop.close()
            await self.guests.hypervisor.stop()
            await self.guests.datapath.stop()
            await self._journal.close()

    def _guest_ended(self, server_id: str) -> None:
        data = {"server_id": server_id, "power_state": "shutdown"}
        self._outbox.put(events=[Event(kind="guest.power", data=data)])

    async def _take_commands(self, link: Link) -> None:
        backoff = Backoff(self.settings.host)
        after = 0
        while True:
            await self._loop.has_room()
            try:
                await self.returning.settle(link)
                commands = await link.poll(after=after, wait=self.settings.poll_wait)
            except MoorageError as error:
                # An answer may have been lost on the way: ask for all that is unfinished.
                after = 0
                self.returning.cut_off()
                await backoff.wait("agent.poll_failed", error)
                continue
            backoff.reset()
            # The next poll acknowledges this answer: by its highest number, whatever earlier ones had.
            after = max((command.seq for command in commands), default=max(after, 1))
            for command in commands:
                self._loop.offer(command)

    async def _send(self, link: Link) -> None:
        backoff = Backoff(self.settings.host)
        while True:
            uplink = await self._outbox.batch()
            try:
                await self._deliver(link, uplink)
            except MoorageError as error:
                await backoff.wait("agent.uplink_failed", error)
                continue
            backoff.reset()
            await self._journal.acknowledge([r.command_id for r in uplink.results])
            self._outbox.done(uplink)

    async def _deliver(self, link: Link, uplink: Uplink) -> None:
        try:
            await link.send(uplink)
        except ResultUnknown:
            # At least one command is not (or no longer) the control plane's; the others' results must get through.
            for result in uplink.results:
                try:
                    await link.send(Uplink(results=[result]))
                except ResultUnknown:
                    log.warning("agent.result_dropped", command=result.command_id)
            if uplink.events:
                await link.send(Uplink(events=uplink.events))

    async def _heartbeat(self, link: Link) -> None:
        backoff = Backoff(self.settings.host, most=self.settings.heartbeat)
        while True:
            try:
                if (await link.report(await self.report())).renew:
                    await self._joining.renew(link)
            except MoorageError as error:
                await backoff.wait("agent.report_failed", error)
                continue
            backoff.reset()
            await asyncio.sleep(self.settings.heartbeat)

    async def report(self) -> HostReport:
        """What this host has and runs now."""
        settings, hypervisor, datapath = self.settings, self.guests.hypervisor, self.guests.datapath
        machine = facts.of_machine(settings)
        networks = settings.physical_networks
        return HostReport(
            vcpus=machine.vcpus,
            memory_mb=machine.memory_mb,
            disk_gb=machine.disk_gb,
            hypervisor_type=hypervisor.type,
            hypervisor_version=hypervisor.version,
            cpu_arch=machine.cpu_arch,
            datapath=settings.datapath,
            protocol=PROTOCOL,
            agent_version=facts.agent_version(),
            chassis=await datapath.chassis(),
            physical_networks=await datapath.physical_networks() if networks is None else networks,
            reserved_memory_mb=settings.reserved_memory_mb,
            host_ip=settings.host_ip,
            guests=tuple(await hypervisor.guests()),
        )


class Backoff:
    """Waits between attempts: 0.1 s doubling up to ``most`` seconds, each spread by half so that hosts do not
    come back all at once.
    """

    def __init__(self, host: str, most: float = 10.0) -> None:
        self._host = host
        self._most = most
        self._next = 0.1
        self._random = random.Random()

    def reset(self) -> None:
        """It worked."""
        self._next = 0.1

    async def wait(self, event: str, error: MoorageError) -> None:
        """Log the failure, at every doubling up to the limit, and wait."""
        if self._next < self._most:
            log.warning(event, host=self._host, error=error.message, next_in=round(self._next, 1))
        await asyncio.sleep(self._next * self._random.uniform(0.5, 1.0))
        self._next = min(self._next * 2, self._most)
