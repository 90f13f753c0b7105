"""The two phases of a server's networking, for the compute service's operations.

``prepare`` does not depend on a host: it reserves the ports the user gave and makes those that are missing, so that the
scheduler knows every one of them. ``bind`` and ``unbind`` are about one host and can be repeated with another; the
ports and their addresses stay the same. ``release`` ends it: what was made for the server is deleted, what was the
user's is given back as it was. Each runs in the transaction of the operation's step and finds its work done if it is
run again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from moorage.network import errors, networks, port_rows, selects, tables
from moorage.network.changes import PORT, Changes
from moorage.network.model import Attachment, Port, PreparedPort, RequestedNic
from moorage.network.ports import not_found
from moorage.network.quotas import Quotas
from moorage.network.security_groups import SecurityGroups
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param

_p, _b = tables.ports, tables.bindings
_OWNER = "compute:nova"
_order = (_p.c.device_index, _p.c.created_at, _p.c.id)
_OF_SERVER = Statement(
    selects.PORTS.where(_p.c.device_id == text_param("server_id")).order_by(*_order), row=Port
)
_ATTACHMENTS = Statement(
    selects.ATTACHMENTS.where(_p.c.device_id == sa.any_(texts_param("server_ids"))).order_by(*_order),
    row=Attachment,
)
_PLUGGED = Statement(
    sa.select(~sa.exists().where(_p.c.device_id == text_param("server_id"), _p.c.status != "ACTIVE"))
)
_RELEVANT = Statement(
    selects.PORTS.where(
        sa.or_(_p.c.device_id == text_param("server_id"), _p.c.id == sa.any_(texts_param("ids")))
    ),
    row=Port,
)
_wanted = (
    sa.func.unnest(
        texts_param("ids"), sa.bindparam("places", type_=sa.ARRAY(sa.Integer)), texts_param("tags")
    )
    .table_valued("id", "place", "tag")
    .render_derived(name="wanted")
)
# A port is free, or this server's already; whoever updates the row first has it.
_RESERVE: Statement[Any] = Statement(
    sa.update(_p)
    .values(
        device_id=text_param("server_id"),
        device_owner=text_param("owner"),
        device_index=_wanted.c.place,
        device_tag=_wanted.c.tag,
        revision_number=_p.c.revision_number + 1,
        updated_at=sa.func.now(),
    )
    .where(_p.c.id == _wanted.c.id, _p.c.device_id == sa.any_(texts_param("free_or_own")))
    .returning(_p.c.id)
)
_deleted = (
    sa.delete(_p)
    .where(_p.c.device_id == text_param("server_id"), _p.c.created_for_device)
    .returning(_p.c.id)
    .cte("deleted")
)
_unbound = (
    sa.delete(_b)
    .where(_b.c.port_id == _p.c.id, _p.c.device_id == text_param("server_id"), ~_p.c.created_for_device)
    .returning(_b.c.port_id)
    .cte("unbound")
)
_given_back = (
    sa.update(_p)
    .where(_p.c.device_id == text_param("server_id"), ~_p.c.created_for_device)
    .values(
        device_id="",
        device_owner="",
        device_index=0,
        device_tag=sa.null(),
        dns_name="",
        status="DOWN",
        # Only what the compute service wrote is taken out of the profile; the user's keys stay.
        profile=_p.c.profile.op("-")(sa.literal_column("'allocation'::text")),
        revision_number=_p.c.revision_number + 1,
        updated_at=sa.func.now(),
    )
    .returning(_p.c.id)
    .cte("given_back")
)
_RELEASE: Statement[Any] = Statement(
    sa.union_all(sa.select(_deleted.c.id), sa.select(_given_back.c.id)).add_cte(_unbound)
)


class ServerPorts:
    """Ports on behalf of servers. Every method runs in the caller's transaction."""

    def __init__(
        self, maker: port_rows.PortMaker, quotas: Quotas, groups: SecurityGroups, changes: Changes
    ) -> None:
        self._maker = maker
        self._quotas = quotas
        self._groups = groups
        self._changes = changes

    async def prepare(
        self,
        tx: Tx,
        *,
        server_id: str,
        project_id: str,
        requested: Sequence[RequestedNic],
        security_groups: Sequence[str] = (),
    ) -> list[PreparedPort]:
        """Reserve the given ports and make the missing ones, in the order requested.

        Three statements for any number of NICs on networks; one more with security groups by name, one with given
        ports. Raises PortNotFound, PortInUse, NetworkNotFound, ExternalNetworkAttachForbidden, NetworkRequiresSubnet,
        OverQuota, SecurityGroupNotFound and what address allocation raises; the caller then rolls back.
        """
        ids = [nic.port_id for nic in requested if nic.port_id is not None]
        if len(set(ids)) < len(ids):
            raise errors.InvalidInput("a port is requested twice", field="networks")
        known = await _RELEVANT.all(tx, server_id=server_id, ids=ids)
        own = {p.device_index: p for p in known if p.device_id == server_id and p.created_for_device}
        given = {p.id: p for p in known if p.id in ids}
        wanted = {n.network_id for n in requested if n.network_id} | {p.network_id for p in given.values()}
        ground = await port_rows.ground(tx, self._quotas, sorted(wanted), seen_by=None, owner=project_id)
        found = ground.networks
        await self._reserve(tx, server_id, project_id, requested, given)
        missing = {
            place: _context(found, nic, project_id)
            for place, nic in enumerate(requested)
            if nic.port_id is None and place not in own
        }
        made = await self._make(tx, server_id, project_id, requested, missing, security_groups, ground)
        ports = {**{i: _of_port(p, found) for i, p in own.items()}, **made}
        for place, nic in enumerate(requested):
            if nic.port_id is not None:
                ports[place] = _of_port(given[nic.port_id], found)
        return [ports[place] for place in range(len(requested))]

    async def _reserve(
        self,
        tx: Tx,
        server_id: str,
        project_id: str,
        requested: Sequence[RequestedNic],
        given: Mapping[str, Port],
    ) -> None:
        nics = [
            (place, nic.port_id, nic.tag) for place, nic in enumerate(requested) if nic.port_id is not None
        ]
        if not nics:
            return
        for _, port_id, _ in nics:
            if port_id not in given or given[port_id].project_id != project_id:
                raise not_found(port_id)
        reserved = await _RESERVE.all(
            tx,
            server_id=server_id,
            owner=_OWNER,
            ids=[n[1] for n in nics],
            places=[n[0] for n in nics],
            tags=[n[2] for n in nics],
            free_or_own=["", server_id],
        )
        taken = {n[1] for n in nics} - {row[0] for row in reserved}
        if taken:
            raise errors.PortInUse(
                f"Port {min(taken)} is still in use by another device.", port_id=min(taken)
            )
        await self._changes.record(tx, PORT, [row[0] for row in reserved])

    async def _make(
        self,
        tx: Tx,
        server_id: str,
        project_id: str,
        requested: Sequence[RequestedNic],
        missing: Mapping[int, port_rows.NetworkContext],
        security_groups: Sequence[str],
        ground: port_rows.Ground,
    ) -> dict[int, PreparedPort]:
        if not missing:
            return {}
        ground.check_quota(project_id, len(missing))
        default = ground.default_group
        if security_groups and list(security_groups) != ["default"]:
            # The default group is made on demand, before a request can name it beside others.
            if "default" in security_groups and default is None:
                await self._groups.ensure_default(tx, project_id)
            groups = await self._groups.resolve(tx, security_groups, project_id=project_id)
        else:
            groups = [default or await self._groups.ensure_default(tx, project_id)]
        drafts = [
            _draft(
                server_id,
                project_id,
                place,
                requested[place],
                network,
                groups,
                explicit=bool(security_groups),
            )
            for place, network in missing.items()
        ]
        made = await self._maker.make(tx, drafts)
        await self._changes.record(tx, PORT, [m.id for m in made])
        return {m.draft.device_index: _of_made(m) for m in made}

    async def release(self, tx: Tx, *, server_id: str) -> None:
        """Delete the ports made for the server, give the others back unbound. One statement."""
        changed = [row[0] for row in await _RELEASE.all(tx, server_id=server_id)]
        await self._changes.record(tx, PORT, changed)

    async def of_server(self, tx: Tx, server_id: str) -> list[Port]:
        """The server's ports, in the order of its NICs."""
        return await _OF_SERVER.all(tx, server_id=server_id)

    async def plugged(self, tx: Tx, server_id: str) -> bool:
        """Whether every port of the server is ACTIVE."""
        return bool(await _PLUGGED.scalar(tx, server_id=server_id))

    async def attachments(self, tx: Tx, server_ids: Sequence[str]) -> dict[str, list[Attachment]]:
        """The ports of several servers, each in the order of its NICs; a server without ports has an empty list."""
        found: dict[str, list[Attachment]] = {server_id: [] for server_id in server_ids}
        for port in await _ATTACHMENTS.all(tx, server_ids=list(server_ids)):
            found[port.server_id].append(port)
        return found


def _context(
    found: Mapping[str, port_rows.NetworkContext], nic: RequestedNic, project_id: str
) -> port_rows.NetworkContext:
    """The network of a NIC, if the project may put a server on it."""
    network = found.get(nic.network_id or "")
    if network is None or not (network.shared or network.external or network.project_id == project_id):
        raise networks.not_found(nic.network_id or "")
    if network.external and not network.shared and network.project_id != project_id:
        raise errors.ExternalNetworkAttachForbidden(
            f"It is not allowed to create an interface on external network {network.id}"
        )
    if not network.subnets:
        raise errors.NetworkRequiresSubnet(
            f"Network {network.id} requires a subnet in order to boot instances on.", field="networks"
        )
    return network


def _draft(
    server_id: str,
    project_id: str,
    place: int,
    nic: RequestedNic,
    network: port_rows.NetworkContext,
    groups: list[str],
    *,
    explicit: bool,
) -> port_rows.PortDraft:
    if not network.port_security_enabled and explicit:
        raise errors.PortSecurityAndIPRequiredForSecurityGroups(
            f"Network {network.id} has port security off: security groups cannot be applied.",
            field="security_groups",
        )
    return port_rows.PortDraft(
        network=network,
        project_id=project_id,
        security_groups=groups if network.port_security_enabled else [],
        port_security_enabled=network.port_security_enabled,
        fixed_ips=None if nic.fixed_ip is None else [{"ip_address": nic.fixed_ip}],
        device_id=server_id,
        device_owner=_OWNER,
        device_index=place,
        device_tag=nic.tag,
        created_for_device=True,
    )


def _of_port(port: Port, found: Mapping[str, port_rows.NetworkContext]) -> PreparedPort:
    segments = found[port.network_id].segments if port.network_id in found else []
    return PreparedPort(
        port_id=port.id,
        created=port.created_for_device,
        network_id=port.network_id,
        physical_network=_physnet(segments),
        mac=port.mac_address,
        fixed_ips=port.fixed_ips,
        segments=segments,
    )


def _of_made(made: port_rows.MadePort) -> PreparedPort:
    return PreparedPort(
        port_id=made.id,
        created=True,
        network_id=made.draft.network.id,
        physical_network=_physnet(made.draft.network.segments),
        mac=made.mac,
        fixed_ips=made.fixed_ips,
        segments=made.draft.network.segments,
    )


def _physnet(segments: Sequence[Mapping[str, Any]]) -> str | None:
    return segments[0]["physical_network"] if segments else None
