"""What OVN has to know, read from the store: all of it, or what hangs on certain changes."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.network import selects, tables
from moorage.network.model import Port, SecurityGroup
from moorage.store.database import Tx
from moorage.store.statement import Statement, texts_param

_n, _s, _seg, _p, _ips = tables.networks, tables.subnets, tables.segments, tables.ports, tables.port_fixed_ips


class SegmentRow(msgspec.Struct, frozen=True):
    """A segment with what matters of its network."""

    id: str
    network_id: str
    network_name: str
    network_type: str
    physical_network: str | None
    segmentation_id: int | None


class SubnetRow(msgspec.Struct, frozen=True):
    """A subnet with what matters of its network."""

    id: str
    network_id: str
    ip_version: int
    cidr: str
    gateway_ip: str | None
    enable_dhcp: bool
    ipv6_address_mode: str | None
    dns_nameservers: list[str]
    host_routes: list[dict[str, str]]
    mtu: int
    dns_domain: str


class PortRow(msgspec.Struct, frozen=True):
    """A port with the segments of its network and the subnets of its addresses. ``network_up``: its administrative state."""

    port: Port
    segments: list[dict[str, Any]]
    subnets: list[dict[str, Any]]
    network_up: bool = True


class Snapshot(msgspec.Struct, frozen=True):
    """Rows to be translated."""

    segments: list[SegmentRow] = []
    subnets: list[SubnetRow] = []
    ports: list[PortRow] = []
    groups: list[SecurityGroup] = []


_segments = sa.select(
    _seg.c.id,
    _seg.c.network_id,
    _n.c.name.label("network_name"),
    _seg.c.network_type,
    _seg.c.physical_network,
    _seg.c.segmentation_id,
).select_from(_seg.join(_n, _n.c.id == _seg.c.network_id))
_subnets = sa.select(
    *(
        _s.c[name]
        for name in (
            "id",
            "network_id",
            "ip_version",
            "cidr",
            "gateway_ip",
            "enable_dhcp",
            "ipv6_address_mode",
            "dns_nameservers",
            "host_routes",
        )
    ),
    _n.c.mtu,
    _n.c.dns_domain,
).select_from(_s.join(_n, _n.c.id == _s.c.network_id))
_subnets_of_port = (
    sa.select(
        sa.func.coalesce(
            sa.func.jsonb_agg(
                sa.func.jsonb_build_object(
                    sa.literal_column("'id'"),
                    _s.c.id,
                    sa.literal_column("'segment_id'"),
                    _s.c.segment_id,
                    sa.literal_column("'ip_version'"),
                    _s.c.ip_version,
                    sa.literal_column("'dhcp'"),
                    _s.c.enable_dhcp,
                )
            ),
            sa.literal_column("'[]'::jsonb"),
        )
    )
    .select_from(_ips.join(_s, _s.c.id == _ips.c.subnet_id))
    .where(_ips.c.port_id == _p.c.id)
    .scalar_subquery()
)
_ports = selects.PORTS.add_columns(
    selects.network_segments(_p.c.network_id).label("network_segments"),
    _subnets_of_port.label("port_subnets"),
    sa.select(_n.c.admin_state_up).where(_n.c.id == _p.c.network_id).scalar_subquery().label("network_up"),
)
_PORT_FIELDS = len(Port.__struct_fields__)

_ids = texts_param("ids")
_ALL_SEGMENTS = Statement(_segments, row=SegmentRow)
_SEGMENTS = Statement(_segments.where(_seg.c.network_id == sa.any_(_ids)), row=SegmentRow)
_ALL_SUBNETS = Statement(_subnets, row=SubnetRow)
_SUBNETS = Statement(_subnets.where(_s.c.id == sa.any_(_ids)), row=SubnetRow)
_ALL_PORTS: Statement[Any] = Statement(_ports)
_PORTS: Statement[Any] = Statement(_ports.where(_p.c.id == sa.any_(_ids)))
_ALL_GROUPS = Statement(selects.SECURITY_GROUPS, row=SecurityGroup)
_GROUPS = Statement(
    selects.SECURITY_GROUPS.where(tables.security_groups.c.id == sa.any_(_ids)), row=SecurityGroup
)
_ON_SUBNETS: Statement[Any] = Statement(
    sa.select(_ips.c.port_id).where(_ips.c.subnet_id == sa.any_(_ids)).distinct()
)


async def everything(tx: Tx) -> Snapshot:
    """All that OVN has to know."""
    return Snapshot(
        segments=await _ALL_SEGMENTS.all(tx),
        subnets=await _ALL_SUBNETS.all(tx),
        ports=[_port(record) for record in await _ALL_PORTS.all(tx)],
        groups=await _ALL_GROUPS.all(tx),
    )


async def some(
    tx: Tx,
    *,
    networks: Sequence[str] = (),
    subnets: Sequence[str] = (),
    ports: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> Snapshot:
    """What is left of these; a statement for each kind that is asked for."""
    return Snapshot(
        segments=await _SEGMENTS.all(tx, ids=list(networks)) if networks else [],
        subnets=await _SUBNETS.all(tx, ids=list(subnets)) if subnets else [],
        ports=[_port(record) for record in await _PORTS.all(tx, ids=list(ports))] if ports else [],
        groups=await _GROUPS.all(tx, ids=list(groups)) if groups else [],
    )


async def ports_on(tx: Tx, subnets: Sequence[str]) -> list[str]:
    """The ids of ports with addresses of these subnets: their DHCP may change with the subnet."""
    return [row[0] for row in await _ON_SUBNETS.all(tx, ids=list(subnets))] if subnets else []


def _port(record: Any) -> PortRow:
    values = tuple(record)
    return PortRow(Port(*values[:_PORT_FIELDS]), *values[_PORT_FIELDS : _PORT_FIELDS + 3])
