"""The read side: one SELECT for each resource, whose columns are the fields of its struct, in order.

Nested lists come by correlated sub-selects as JSON, so a resource is one row and a page of a list one statement.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from moorage.network import tables as t

_EMPTY: Any = sa.literal_column("'[]'::jsonb")


def _list_of(value: Any, order: Any) -> Any:
    return sa.func.coalesce(sa.func.jsonb_agg(aggregate_order_by(value, order)), _EMPTY)


def _object(**columns: Any) -> Any:
    parts: list[Any] = []
    for name, column in columns.items():
        parts += [sa.literal_column(f"'{name}'"), column]
    return sa.func.jsonb_build_object(*parts)


segment_object = _object(
    id=t.segments.c.id,
    network_type=t.segments.c.network_type,
    physical_network=t.segments.c.physical_network,
    segmentation_id=t.segments.c.segmentation_id,
)


def network_segments(network_id: Any) -> Any:
    """The segments of a network, in order, as JSON."""
    return (
        sa.select(_list_of(segment_object, t.segments.c.segment_index))
        .where(t.segments.c.network_id == network_id)
        .scalar_subquery()
    )


def subnet_pools(subnet_id: Any) -> Any:
    """The allocation pools of a subnet as JSON; inet orders them as addresses, not as text."""
    pools = t.allocation_pools.c
    return (
        sa.select(
            _list_of(
                _object(start=pools.start, end=pools.end), sa.cast(pools.start, sa.dialects.postgresql.INET)
            )
        )
        .where(pools.subnet_id == subnet_id)
        .scalar_subquery()
    )


def network_subnets(network_id: Any) -> Any:
    """What address allocation needs of every subnet of a network, as JSON, oldest first."""
    subnets = t.subnets.c
    value = _object(
        id=subnets.id,
        network_id=subnets.network_id,
        segment_id=subnets.segment_id,
        ip_version=subnets.ip_version,
        cidr=subnets.cidr,
        gateway_ip=subnets.gateway_ip,
        dns_nameservers=subnets.dns_nameservers,
        ipv6_address_mode=subnets.ipv6_address_mode,
        allocation_pools=subnet_pools(subnets.id),
    )
    return (
        sa.select(_list_of(value, sa.tuple_(subnets.created_at, subnets.id)))
        .where(subnets.network_id == network_id)
        .scalar_subquery()
    )


def _network_columns() -> list[Any]:
    n = t.networks.c
    subnet_ids = (
        sa.select(_list_of(t.subnets.c.id, t.subnets.c.created_at))
        .where(t.subnets.c.network_id == n.id)
        .scalar_subquery()
    )
    return [*n, network_segments(n.id).label("segments"), subnet_ids.label("subnet_ids")]


def _rule_object() -> Any:
    r = t.security_group_rules.c
    return _object(**{c.name: c for c in r})


def port_addresses(port_id: Any) -> Any:
    """The fixed addresses of a port as JSON."""
    ips = t.port_fixed_ips.c
    return (
        sa.select(_list_of(_object(subnet_id=ips.subnet_id, ip_address=ips.address), ips.address))
        .where(ips.port_id == port_id)
        .scalar_subquery()
    )


def _port_columns() -> list[Any]:
    p, members, b = t.ports.c, t.port_security_groups.c, t.bindings.c
    groups = (
        sa.select(_list_of(members.security_group_id, members.security_group_id))
        .where(members.port_id == p.id)
        .scalar_subquery()
    )
    return [
        *p,
        port_addresses(p.id).label("fixed_ips"),
        groups.label("security_groups"),
        sa.func.coalesce(b.host, "").label("host"),
        b.mechanism,
        b.chassis,
        sa.func.coalesce(b.vif_type, "unbound").label("vif_type"),
        sa.func.coalesce(b.vif_details, sa.literal_column("'{}'::jsonb")).label("vif_details"),
    ]


def _attachment_columns() -> list[Any]:
    p, members, g = t.ports.c, t.port_security_groups, t.security_groups
    groups = (
        sa.select(_list_of(_object(id=g.c.id, name=g.c.name), g.c.id))
        .select_from(members.join(g, g.c.id == members.c.security_group_id))
        .where(members.c.port_id == p.id)
        .scalar_subquery()
    )
    return [
        p.device_id.label("server_id"),
        t.networks.c.name.label("network"),
        p.mac_address,
        port_addresses(p.id).label("fixed_ips"),
        groups.label("security_groups"),
    ]


NETWORKS = sa.select(*_network_columns())
SUBNETS = sa.select(*t.subnets.c, subnet_pools(t.subnets.c.id).label("allocation_pools"))
PORTS = sa.select(*_port_columns()).select_from(
    t.ports.outerjoin(
        t.bindings,
        sa.and_(t.bindings.c.port_id == t.ports.c.id, t.bindings.c.status == sa.literal_column("'ACTIVE'")),
    )
)
ATTACHMENTS = sa.select(*_attachment_columns()).select_from(
    t.ports.join(t.networks, t.networks.c.id == t.ports.c.network_id)
)
SECURITY_GROUPS = sa.select(
    *t.security_groups.c,
    sa.select(_list_of(_rule_object(), t.security_group_rules.c.created_at))
    .where(t.security_group_rules.c.security_group_id == t.security_groups.c.id)
    .scalar_subquery()
    .label("rules"),
)
SECURITY_GROUP_RULES = sa.select(*t.security_group_rules.c)
