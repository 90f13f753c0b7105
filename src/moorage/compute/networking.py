"""What a server's request says of networks, checked against the network service before anything is made.

The check is early, not final: the ports are made by the boot operation, and what fails there ends in a fault.
Source of the HTTP statuses: upstream's mapping at POST /servers.
"""

from collections.abc import Sequence

from moorage.compute.errors import InvalidField, NetworkAmbiguous
from moorage.compute.model import CreateRequest, NicRequest
from moorage.core.errors import BadRequest, NotFound
from moorage.network.errors import PortInUse
from moorage.network.listing import ListQuery
from moorage.network.networks import named
from moorage.network.service import NetworkService
from moorage.store.database import Tx


async def resolve(
    tx: Tx, networks: NetworkService, project_id: str, request: CreateRequest
) -> list[NicRequest]:
    """The NICs to make, in order.

    Raises BadRequest (unknown network, port or security group; a port or address for several servers), Conflict
    (port in use, ambiguous network or security group).
    """
    await _check_groups(tx, networks, project_id, request.security_groups)
    wanted = request.networks
    if wanted == "none":
        return []
    if wanted is None or isinstance(wanted, str):
        return await _automatic(tx, networks, project_id, required=wanted == "auto")
    if request.max_count > 1:
        _check_single(wanted)
    ports = [n.port_id for n in wanted if n.port_id is not None]
    if len(set(ports)) < len(ports):
        raise InvalidField("A port is requested twice.", field="server.networks")
    await _check_networks(tx, project_id, [n.network_id for n in wanted if n.network_id and not n.port_id])
    for port_id in ports:
        await _check_port(tx, networks, project_id, port_id)
    return list(wanted)


def _check_single(nics: Sequence[NicRequest]) -> None:
    for nic in nics:
        if nic.port_id is not None:
            raise InvalidField(
                "Unable to launch multiple instances with a single configured port ID. "
                "Please launch your instance one by one with different ports.",
                field="server.networks",
            )
        if nic.fixed_ip is not None:
            raise InvalidField(
                f"Invalid fixed IP Address {nic.fixed_ip} in server request: one address, several servers.",
                field="server.networks",
            )


async def _automatic(
    tx: Tx, networks: NetworkService, project_id: str, *, required: bool
) -> list[NicRequest]:
    own = await networks.networks.page(tx, ListQuery(limit=1000), project_id=project_id)
    usable = [
        n for n in own if n.subnet_ids and (n.project_id == project_id or (n.shared and not n.external))
    ]
    if len(usable) > 1:
        raise NetworkAmbiguous(
            "Multiple possible networks found, use a Network ID to be more specific.", networks=len(usable)
        )
    if not usable and required:
        raise BadRequest(
            "Unable to automatically allocate a network for project: it has none.", field="server.networks"
        )
    return [NicRequest(network_id=n.id) for n in usable]


async def _check_networks(tx: Tx, project_id: str, ids: list[str]) -> None:
    if not ids:
        return
    known = await named(tx, sorted(set(ids)), project_id=project_id)
    for network_id in ids:
        network = known.get(network_id)
        if network is None:
            raise BadRequest(f"Network {network_id} could not be found.", field="server.networks")
        if not network.subnet_ids:
            raise BadRequest(
                f"Network {network_id} requires a subnet in order to boot instances on.",
                field="server.networks",
            )


async def _check_port(tx: Tx, networks: NetworkService, project_id: str, port_id: str) -> None:
    try:
        port = await networks.ports.show(tx, port_id, project_id=project_id)
    except NotFound as error:
        raise BadRequest(f"Port id {port_id} could not be found.", field="server.networks") from error
    if port.device_id:
        raise PortInUse(f"Port {port_id} is still in use.", port_id=port_id)
    if not port.fixed_ips and port.ip_allocation != "deferred":
        raise BadRequest(f"Port {port_id} requires a FixedIP in order to be used.", field="server.networks")


async def _check_groups(tx: Tx, networks: NetworkService, project_id: str, names: Sequence[str]) -> None:
    others = [n for n in names if n != "default"]
    if not others:
        return
    try:
        await networks.security_groups.resolve(tx, others, project_id=project_id)
    except NotFound as error:
        raise BadRequest(error.message, field="server.security_groups") from error
