"""Bindings: which host carries a port, and whether it is plugged there.

A port is bound to one host at a time. Binding twice to the same host changes nothing, so a step that is repeated after
a crash finds its work done; a port bound elsewhere must be unbound first, or events of the old host would be taken for
the new one's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.network import errors, selects, tables
from moorage.network.changes import PORT, Changes
from moorage.network.mechanisms.base import BindingPlan, Mechanism
from moorage.network.model import HostNetworking
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param
from moorage.wire.messages import FixedIp, Vif

Hosts = Callable[[Tx, str], Awaitable[HostNetworking | None]]
"""What the network service knows of a host, or None for a host that isn't there."""
OnPlugged = Callable[[Tx, Sequence[str]], Awaitable[None]]
"""Called in the transaction that makes ports ACTIVE, with the ids of the devices whose ports they are."""

_p, _b, _n = tables.ports, tables.bindings, tables.networks


class Bindable(msgspec.Struct, frozen=True):
    """What binding needs to know of a port, in one row."""

    id: str
    network_id: str
    mac_address: str
    vnic_type: str
    profile: dict[str, Any]
    host: str | None
    mechanism: str | None
    vif_type: str | None
    vif_details: dict[str, Any] | None
    mtu: int
    segments: list[dict[str, Any]]
    subnets: list[dict[str, Any]]
    fixed_ips: list[dict[str, str]]


_bindable = (
    sa.select(
        _p.c.id,
        _p.c.network_id,
        _p.c.mac_address,
        _p.c.vnic_type,
        _p.c.profile,
        _b.c.host,
        _b.c.mechanism,
        _b.c.vif_type,
        _b.c.vif_details,
        _n.c.mtu,
        selects.network_segments(_n.c.id).label("segments"),
        selects.network_subnets(_n.c.id).label("subnets"),
        selects.port_addresses(_p.c.id).label("fixed_ips"),
    )
    .select_from(
        _p.join(_n, _n.c.id == _p.c.network_id).outerjoin(
            _b, sa.and_(_b.c.port_id == _p.c.id, _b.c.status == sa.literal_column("'ACTIVE'"))
        )
    )
    .order_by(_p.c.device_index, _p.c.created_at, _p.c.id)
)
_OF_SERVER = Statement(_bindable.where(_p.c.device_id == text_param("server_id")), row=Bindable)
_OF_IDS = Statement(_bindable.where(_p.c.id == sa.any_(texts_param("ids"))), row=Bindable)

_BINDING_COLUMNS = (
    "port_id",
    "host",
    "mechanism",
    "chassis",
    "vif_type",
    "vif_details",
    "profile",
    "vnic_type",
)
_given = (
    sa.func.jsonb_to_recordset(sa.bindparam("rows", type_=postgresql.JSONB))
    .table_valued(*(sa.column(name, _b.c[name].type) for name in _BINDING_COLUMNS))
    .render_derived(name="given", with_types=True)
)
_insert = postgresql.insert(_b).from_select(
    list(_BINDING_COLUMNS), sa.select(*(_given.c[c] for c in _BINDING_COLUMNS))
)
_bound = (
    _insert.on_conflict_do_update(
        index_elements=["port_id", "host"],
        set_={c: _insert.excluded[c] for c in _BINDING_COLUMNS[2:]} | {"status": "ACTIVE"},
    )
    .returning(_b.c.port_id)
    .cte("bound")
)
# WITH bound AS (INSERT INTO bindings .. RETURNING port_id) UPDATE ports SET status = 'DOWN', owner .. FROM bound
_BIND: Statement[Any] = Statement(
    sa.update(_p)
    .values(
        status="DOWN",
        device_owner=sa.func.coalesce(sa.bindparam("owner", type_=sa.Text), _p.c.device_owner),
        revision_number=_p.c.revision_number + 1,
        updated_at=sa.func.now(),
    )
    .where(_p.c.id == _bound.c.port_id)
)
_unbound = sa.delete(_b).where(_b.c.port_id == _p.c.id)
_freed = {"status": "DOWN", "revision_number": _p.c.revision_number + 1, "updated_at": sa.func.now()}


def _unbind(condition: Any) -> Statement[Any]:
    gone = _unbound.where(condition).returning(_b.c.port_id).cte("gone")
    return Statement(sa.update(_p).values(**_freed).where(_p.c.id == gone.c.port_id).returning(_p.c.id))


_UNBIND_SERVER = _unbind(_p.c.device_id == text_param("server_id"))
_UNBIND_IDS = _unbind(_p.c.id == sa.any_(texts_param("ids")))


def _status(new: str) -> Statement[Any]:
    """SQL: set the status of ports whose active binding is on the host (or chassis) that tells it."""
    told = (
        sa.func.unnest(texts_param("port_ids"), texts_param("hosts"))
        .table_valued("port_id", "host")
        .render_derived(name="told")
    )
    on_host = sa.or_(_b.c.host == told.c.host, _b.c.chassis == told.c.host)
    return Statement(
        sa.update(_p)
        .values(status=new, revision_number=_p.c.revision_number + 1, updated_at=sa.func.now())
        .where(_p.c.id == told.c.port_id, _p.c.status != sa.literal_column(f"'{new}'"))
        .where(_b.c.port_id == _p.c.id, _b.c.status == sa.literal_column("'ACTIVE'"), on_host)
        .returning(_p.c.id, _p.c.device_id)
    )


_UP, _DOWN = _status("ACTIVE"), _status("DOWN")
_LOST: Statement[Any] = Statement(
    sa.update(_p)
    .values(status="DOWN", revision_number=_p.c.revision_number + 1, updated_at=sa.func.now())
    .where(_p.c.id == sa.any_(texts_param("ids")), _p.c.status == sa.literal_column("'ACTIVE'"))
    .where(_b.c.port_id == _p.c.id, _b.c.status == sa.literal_column("'ACTIVE'"))
    .where(_b.c.mechanism == text_param("mechanism"))
    .returning(_p.c.id)
)


class Bindings:
    """Binds ports by the mechanism of the host's data path. Every method runs in the caller's transaction."""

    def __init__(
        self, mechanisms: Mapping[str, Mechanism], hosts: Hosts, changes: Changes, on_plugged: OnPlugged
    ) -> None:
        self._mechanisms = dict(mechanisms)
        self._hosts = hosts
        self._changes = changes
        self._on_plugged = on_plugged

    async def bind_server(self, tx: Tx, *, server_id: str, host: str, zone: str | None = None) -> list[Vif]:
        """Bind every port of a server to ``host``: two statements and the look-up of the host.

        Raises PortBindingFailed, with what was needed and available, when the host cannot carry one of them; nothing
        is then written.
        """
        ports = await _OF_SERVER.all(tx, server_id=server_id)
        return await self._bind(tx, ports, host, owner=f"compute:{zone}" if zone else None)

    async def bind_port(self, tx: Tx, *, port_id: str, host: str) -> None:
        """Bind one port on its own; a failure is kept as ``binding_failed``, as the Neutron API shows it."""
        ports = await _OF_IDS.all(tx, ids=[port_id])
        try:
            await self._bind(tx, ports, host, owner=None)
        except errors.PortBindingFailed:
            await self.unbind_ports(tx, [p.id for p in ports if p.host])
            await _BIND.run(tx, rows=[_failed_row(p, host) for p in ports], owner=None)
            await self._changes.record(tx, PORT, [p.id for p in ports])

    async def _bind(self, tx: Tx, ports: Sequence[Bindable], host: str, *, owner: str | None) -> list[Vif]:
        if not ports:
            return []
        facts = await self._hosts(tx, host)
        if facts is None:
            raise errors.PortBindingFailed(f"Host {host} is not known to the network service.", host=host)
        mechanism = self._mechanisms.get(facts.datapath)
        if mechanism is None:
            raise errors.PortBindingFailed(
                f"Host {host} has data path {facts.datapath}, for which no mechanism is configured.",
                host=host,
            )
        plans = {p.id: mechanism.plan(_segment(p, facts), p.vnic_type, facts) for p in ports}
        elsewhere = [p.id for p in ports if p.host not in (None, host)]
        if elsewhere:
            await self.unbind_ports(tx, elsewhere)
        new = [
            p
            for p in ports
            if p.host != host or p.mechanism != mechanism.name or p.vif_type == "binding_failed"
        ]
        if new:
            await _BIND.run(
                tx, rows=[_binding_row(p, host, mechanism.name, plans[p.id]) for p in new], owner=owner
            )
            await self._changes.record(tx, PORT, [p.id for p in new])
        return [vif_of(p, plans[p.id]) for p in ports]

    async def unbind_server(self, tx: Tx, *, server_id: str) -> None:
        """No host carries the server's ports any more; they stay its ports. One statement."""
        freed = [row[0] for row in await _UNBIND_SERVER.all(tx, server_id=server_id)]
        await self._changes.record(tx, PORT, freed)

    async def unbind_ports(self, tx: Tx, ids: Sequence[str]) -> None:
        """No host carries these ports any more."""
        if ids:
            freed = [row[0] for row in await _UNBIND_IDS.all(tx, ids=list(ids))]
            await self._changes.record(tx, PORT, freed)

    async def up(self, tx: Tx, told: Sequence[tuple[str, str]]) -> list[str]:
        """Ports (id, host or chassis) are plugged: those bound there become ACTIVE, and their waiters hear of it.

        Gives the ids of those that were not ACTIVE before; news of another host is left out.
        """
        changed = await _set_status(tx, _UP, told)
        if devices := sorted({device_id for _, device_id in changed if device_id}):
            await self._on_plugged(tx, devices)
        return [port_id for port_id, _ in changed]

    async def down(self, tx: Tx, told: Sequence[tuple[str, str]]) -> list[str]:
        """Ports are no longer plugged where they are bound. Gives the ids of those that were ACTIVE before."""
        return [port_id for port_id, _ in await _set_status(tx, _DOWN, told)]

    async def lost(self, tx: Tx, ids: Sequence[str], *, mechanism: str) -> None:
        """Ports are plugged nowhere: those that the mechanism has bound are no longer ACTIVE."""
        if ids:
            await _LOST.run(tx, ids=list(ids), mechanism=mechanism)


async def _set_status(
    tx: Tx, statement: Statement[Any], told: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The ports that it changed, each with its device."""
    if not told:
        return []
    return await statement.all(tx, port_ids=[t[0] for t in told], hosts=[t[1] for t in told])


def _segment(port: Bindable, host: HostNetworking) -> dict[str, Any]:
    """The segment the port is on: that of its address's subnet, else the first one that the host reaches."""
    by_id = {s["id"]: s for s in port.segments}
    own = {ip["subnet_id"] for ip in port.fixed_ips}
    for subnet in port.subnets:
        if subnet["id"] in own and subnet["segment_id"] in by_id:
            return by_id[subnet["segment_id"]]
    reached = [s for s in port.segments if s["physical_network"] in (None, *host.physical_networks)]
    return (reached or port.segments)[0]


def _binding_row(port: Bindable, host: str, mechanism: str, plan: BindingPlan) -> dict[str, Any]:
    return {
        "port_id": port.id,
        "host": host,
        "mechanism": mechanism,
        "chassis": plan.chassis,
        "vif_type": plan.vif_type,
        "vif_details": plan.vif_details,
        "profile": port.profile,
        "vnic_type": port.vnic_type,
    }


def _failed_row(port: Bindable, host: str) -> dict[str, Any]:
    plan: dict[str, Any] = {"chassis": None, "vif_type": "binding_failed", "vif_details": {}, "mechanism": ""}
    return {"port_id": port.id, "host": host, "profile": port.profile, "vnic_type": port.vnic_type, **plan}


def vif_of(port: Bindable, plan: BindingPlan) -> Vif:
    """The port as the host's agent gets it."""
    subnets = {s["id"]: s for s in port.subnets}
    addresses = [(ip["ip_address"], subnets[ip["subnet_id"]]) for ip in port.fixed_ips]
    return Vif(
        port_id=port.id,
        mac=port.mac_address,
        network_id=port.network_id,
        iface=f"tap{port.id[:11]}",
        vif_type=plan.vif_type,
        mtu=port.mtu,
        details=plan.vif_details,
        fixed_ips=tuple(
            FixedIp(
                address=address,
                subnet_id=subnet["id"],
                cidr=subnet["cidr"],
                gateway=subnet["gateway_ip"],
                dns=tuple(subnet["dns_nameservers"]),
            )
            for address, subnet in addresses
        ),
    )
