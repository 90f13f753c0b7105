"""Ports that are only a set of ids. There is no OVN to see them come up, so the agent says so itself."""

from moorage.wire.messages import Event, Vif


class SimulatedDatapath:
    """See ``base.Datapath``."""

    def __init__(self, physical_networks: tuple[str, ...] = ()) -> None:
        self._physical_networks = physical_networks
        self.plugged: set[str] = set()

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        """Nothing to let go of."""

    async def plug(self, vif: Vif) -> Event | None:
        """Says "port.plugged" each time: an earlier event may have been lost with an earlier process."""
        self.plugged.add(vif.port_id)
        return Event(kind="port.plugged", data={"port_id": vif.port_id})

    async def unplug(self, vif: Vif) -> Event | None:
        """Says "port.unplugged" where it was plugged."""
        if vif.port_id not in self.plugged:
            return None
        self.plugged.discard(vif.port_id)
        return Event(kind="port.unplugged", data={"port_id": vif.port_id})

    async def physical_networks(self) -> tuple[str, ...]:
        """As given."""
        return self._physical_networks

    async def chassis(self) -> str | None:
        """Not in OVN."""
        return None
