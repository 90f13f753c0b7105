"""What a hypervisor is to the agent. Every method can be repeated: asked for what is so already, it succeeds."""

from collections.abc import Callable
from typing import Protocol

from moorage.agent.link import Download
from moorage.wire.messages import GuestState, SpawnGuest, Vif

OnEnded = Callable[[str], None]


class Hypervisor(Protocol):
    """Guests of one host, by server id."""

    type: str
    version: int
    on_ended: OnEnded | None
    """Called with the id of a guest that ended without being told to."""

    async def start(self, download: Download) -> None:
        """Find guests that run already; images come by ``download``. Raises GuestFailure where the hypervisor itself is missing."""
        ...

    async def stop(self) -> None:
        """Let go of the guests; they run on."""
        ...

    async def define(self, request: SpawnGuest) -> None:
        """Record the guest durably, then prepare its disks. Raises Refused, ImageFailure, GuestFailure."""
        ...

    async def power_on(self, server_id: str) -> None:
        """Start it. Raises UnknownGuest, GuestFailure."""
        ...

    async def power_off(self, server_id: str, *, soft: bool, timeout: float) -> None:
        """End it; soft asks the guest first and waits ``timeout`` seconds. Raises UnknownGuest, GuestFailure."""
        ...

    async def undefine(self, server_id: str) -> None:
        """Remove every trace of a guest that is off."""
        ...

    async def vifs(self, server_id: str) -> tuple[Vif, ...]:
        """The ports recorded with the guest. Raises UnknownGuest."""
        ...

    async def console(self, server_id: str, length: int | None) -> str:
        """The last lines of the console. Raises UnknownGuest."""
        ...

    async def guests(self) -> list[GuestState]:
        """Every guest recorded here and its power state."""
        ...
