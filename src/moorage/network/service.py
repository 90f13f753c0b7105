"""The network service: its parts wired together, and the verbs that other domains call."""

import random
from collections.abc import Mapping, Sequence

from moorage.network.binding import Bindings, Hosts, OnPlugged
from moorage.network.changes import Changes
from moorage.network.config import NetworkSettings
from moorage.network.mechanisms.base import Mechanism
from moorage.network.mechanisms.simulated import SimulatedMechanism
from moorage.network.model import Attachment, Port, PreparedPort, RequestedNic
from moorage.network.networks import Networks
from moorage.network.port_rows import PortMaker
from moorage.network.ports import Ports
from moorage.network.quotas import Quotas
from moorage.network.security_groups import SecurityGroups
from moorage.network.server_ports import ServerPorts
from moorage.network.subnets import Subnets
from moorage.store.database import Tx
from moorage.wire.messages import Vif


async def _nobody_waits(_tx: Tx, _devices: Sequence[str]) -> None:
    return


class NetworkService:
    """Networks and ports. Every method takes the caller's transaction; the service holds no state of its own.

    ``hosts`` gives what is known of a host; ``mechanisms`` by data path name, "simulated" always among them;
    ``on_plugged`` is called in the transaction that makes ports ACTIVE. ``seed`` makes the choice of addresses
    repeatable.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        *,
        hosts: Hosts,
        mechanisms: Sequence[Mechanism] = (),
        on_plugged: OnPlugged = _nobody_waits,
        seed: int | None = None,
    ) -> None:
        chance = random.Random(seed)
        self.settings = settings
        self.mechanisms: Mapping[str, Mechanism] = {m.name: m for m in (SimulatedMechanism(), *mechanisms)}
        self.changes = Changes(followed=any(m.plug_events_from == "southbound" for m in mechanisms))
        self.quotas = Quotas(settings.quotas)
        self.networks = Networks(settings.rules, self.quotas, self.changes, chance)
        self.subnets = Subnets(self.quotas, self.changes)
        self.security_groups = SecurityGroups(self.quotas, self.changes)
        self.bindings = Bindings(self.mechanisms, hosts, self.changes, on_plugged)
        maker = PortMaker(mac_prefix=settings.mac_prefix, chance=chance)
        self.ports = Ports(maker, self.quotas, self.security_groups, self.bindings, self.changes, chance)
        self.server_ports = ServerPorts(maker, self.quotas, self.security_groups, self.changes)

    async def prepare_ports(
        self,
        tx: Tx,
        *,
        server_id: str,
        project_id: str,
        user_id: str | None = None,  # noqa: ARG002  ports have no user; callers say who asks all the same
        requested: Sequence[RequestedNic],
        security_groups: Sequence[str] = (),
    ) -> list[PreparedPort]:
        """Reserve or make the server's ports, before a host is chosen; see ``ServerPorts.prepare``."""
        return await self.server_ports.prepare(
            tx,
            server_id=server_id,
            project_id=project_id,
            requested=requested,
            security_groups=security_groups,
        )

    async def release_ports(self, tx: Tx, *, server_id: str) -> None:
        """Delete what was made for the server, give back what was the user's."""
        await self.server_ports.release(tx, server_id=server_id)

    async def bind_ports(self, tx: Tx, *, server_id: str, host: str, zone: str | None = None) -> list[Vif]:
        """Bind the server's ports to a host; raises PortBindingFailed, another host may do."""
        return await self.bindings.bind_server(tx, server_id=server_id, host=host, zone=zone)

    async def unbind_ports(self, tx: Tx, *, server_id: str) -> None:
        """No host carries the server's ports any more."""
        await self.bindings.unbind_server(tx, server_id=server_id)

    async def ports_of(self, tx: Tx, server_id: str) -> list[Port]:
        """The server's ports, in the order of its NICs."""
        return await self.server_ports.of_server(tx, server_id)

    async def plugged(self, tx: Tx, server_id: str) -> bool:
        """Whether every port of the server is ACTIVE."""
        return await self.server_ports.plugged(tx, server_id)

    async def attachments(self, tx: Tx, server_ids: Sequence[str]) -> dict[str, list[Attachment]]:
        """What is shown of the ports of several servers, by server, in one statement."""
        return await self.server_ports.attachments(tx, server_ids)

    async def port_up(self, tx: Tx, port_id: str, host: str) -> bool:
        """The port is plugged on ``host``; False when it was ACTIVE already or isn't bound there."""
        return bool(await self.bindings.up(tx, [(port_id, host)]))

    async def port_down(self, tx: Tx, port_id: str, host: str) -> bool:
        """The port is no longer plugged on ``host``; False when that changes nothing."""
        return bool(await self.bindings.down(tx, [(port_id, host)]))
