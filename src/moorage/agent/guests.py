"""What each kind of command does to a guest and its ports. Every function here can be repeated.

The order of a spawn is: record (with the ports), plug, power on. So whatever a crash interrupts, the record
knows which ports a later destroy has to unplug.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from moorage.agent.datapaths.base import Datapath
from moorage.agent.errors import DatapathFailure, UnknownGuest
from moorage.agent.hypervisors.base import Hypervisor
from moorage.core.log import get_logger
from moorage.wire.messages import (
    ConsoleOutput,
    DestroyGuest,
    Event,
    GuestPayload,
    RebootGuest,
    SpawnGuest,
    StartGuest,
    StopGuest,
    Vif,
)

log = get_logger(__name__)


class Done(msgspec.Struct, frozen=True):
    """What a command brought about: its result's data, and the events that go up with it."""

    data: dict[str, Any] = {}
    events: tuple[Event, ...] = ()


class Guests:
    """The guests of one host: a hypervisor and a datapath."""

    def __init__(self, hypervisor: Hypervisor, datapath: Datapath) -> None:
        self.hypervisor = hypervisor
        self.datapath = datapath
        self._actions: dict[type, Callable[[Any], Awaitable[Done]]] = {
            SpawnGuest: self.spawn,
            DestroyGuest: self.destroy,
            StartGuest: self.start,
            StopGuest: self.stop,
            RebootGuest: self.reboot,
            ConsoleOutput: self.console,
        }

    async def perform(self, payload: GuestPayload) -> Done:
        """Do it. Raises Refused, GuestFailure and UnknownGuest."""
        return await self._actions[type(payload)](payload)

    async def spawn(self, request: SpawnGuest) -> Done:
        """guest.spawn"""
        await self.hypervisor.define(request)
        events = await self._plug(request.vifs)
        await self.hypervisor.power_on(request.server_id)
        return Done({"power_state": "running"}, events)

    async def destroy(self, request: DestroyGuest) -> Done:
        """guest.destroy"""
        try:
            vifs = await self.hypervisor.vifs(request.server_id)
        except UnknownGuest:
            return Done()
        await self.hypervisor.power_off(request.server_id, soft=False, timeout=0)
        events = [await self.datapath.unplug(vif) for vif in vifs]
        await self.hypervisor.undefine(request.server_id)
        return Done(events=tuple(e for e in events if e is not None))

    async def start(self, request: StartGuest) -> Done:
        """guest.start"""
        events = await self._plug(await self.hypervisor.vifs(request.server_id))
        await self.hypervisor.power_on(request.server_id)
        return Done({"power_state": "running"}, events)

    async def stop(self, request: StopGuest) -> Done:
        """guest.stop"""
        await self.hypervisor.power_off(
            request.server_id, soft=request.mode == "soft", timeout=request.timeout
        )
        return Done({"power_state": "shutdown"})

    async def reboot(self, request: RebootGuest) -> Done:
        """guest.reboot"""
        vifs = await self.hypervisor.vifs(request.server_id)
        await self.hypervisor.power_off(request.server_id, soft=not request.hard, timeout=request.timeout)
        events = await self._plug(vifs)
        await self.hypervisor.power_on(request.server_id)
        return Done({"power_state": "running"}, events)

    async def console(self, request: ConsoleOutput) -> Done:
        """guest.console"""
        return Done({"output": await self.hypervisor.console(request.server_id, request.length)})

    async def recover(self, server_id: str) -> tuple[Event, ...]:
        """Plug again what belongs to a guest found at start; its events, since earlier ones may be lost."""
        try:
            return await self._plug(await self.hypervisor.vifs(server_id))
        except (DatapathFailure, UnknownGuest) as error:
            # The other guests' ports matter more than a clean start; this one's shows as down.
            log.warning("guest.replug_failed", server=server_id, error=error.message)
            return ()

    async def _plug(self, vifs: tuple[Vif, ...]) -> tuple[Event, ...]:
        if not vifs:
            return ()
        if len(vifs) == 1:
            events = [await self.datapath.plug(vifs[0])]
        else:
            events = list(await asyncio.gather(*(self.datapath.plug(vif) for vif in vifs)))
        return tuple(e for e in events if e is not None)
