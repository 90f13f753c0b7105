"""What a datapath is to the agent. Plugging what is plugged and unplugging what is not are successes."""

from typing import Protocol

from moorage.wire.messages import Event, Vif


class Datapath(Protocol):
    """The ports of one host."""

    async def start(self) -> None:
        """Connect. Raises DatapathFailure where the switch does not answer."""
        ...

    async def stop(self) -> None:
        """Disconnect; ports stay."""
        ...

    async def plug(self, vif: Vif) -> Event | None:
        """Make the port's interface and connect it; an event when nobody else tells. Raises DatapathFailure."""
        ...

    async def unplug(self, vif: Vif) -> Event | None:
        """Take the interface away. Raises DatapathFailure."""
        ...

    async def physical_networks(self) -> tuple[str, ...]:
        """The physical networks this host reaches."""
        ...

    async def chassis(self) -> str | None:
        """The host's name in OVN."""
        ...
