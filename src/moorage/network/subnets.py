"""Subnets: create, show, list, update, delete; their pools and gateways are checked by the pure rules of ``cidr``."""

import ipaddress
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.core.ids import new_id
from moorage.network import cidr, errors, listing, networks, rows, selects, tables, values
from moorage.network.changes import SUBNET, Changes
from moorage.network.model import Network, Subnet
from moorage.network.quotas import Quotas
from moorage.store.database import Tx
from moorage.store.errors import ForeignKeyViolation
from moorage.store.statement import Statement, text_param

_s = tables.subnets
_n = tables.networks
_shared = sa.select(_n.c.id).where(sa.or_(_n.c.shared, _n.c.external))
_SHOW = Statement(
    selects.SUBNETS.where(_s.c.id == text_param("id"), rows.seen(_s, _s.c.network_id.in_(_shared))),
    row=Subnet,
)
_SIBLINGS: Statement[Any] = Statement(
    sa.select(_s.c.id, _s.c.cidr).where(_s.c.network_id == text_param("network_id"))
)
# Two subnets of one network are made one after the other, so that their overlap cannot be missed.
_LOCK: Statement[Any] = Statement(
    sa.select(_n.c.id).where(_n.c.id == text_param("id")).with_for_update(key_share=True)
)
_FIELDS = (
    "id", "network_id", "segment_id", "project_id", "name", "description", "ip_version", "cidr", "gateway_ip",
    "enable_dhcp", "dns_nameservers", "host_routes", "ipv6_ra_mode", "ipv6_address_mode", "service_types",
)  # fmt: skip
_INSERT: Statement[Any] = Statement(
    sa.insert(_s).values(**{name: sa.bindparam(name, type_=_s.c[name].type) for name in _FIELDS})
)
_p = tables.allocation_pools
_POOL: Statement[Any] = Statement(
    sa.insert(_p).values(subnet_id=text_param("id"), start=text_param("start"), end=text_param("end"))
)
_CLEAR_POOLS: Statement[Any] = Statement(sa.delete(_p).where(_p.c.subnet_id == text_param("id")))
_DELETE: Statement[Any] = Statement(sa.delete(_s).where(_s.c.id == text_param("id")))

SORTABLE = (
    "id",
    "name",
    "network_id",
    "cidr",
    "ip_version",
    "enable_dhcp",
    "project_id",
    "created_at",
    "updated_at",
)


class SubnetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a creator says of a subnet. ``gateway_ip``: UNSET chooses the first address, None means no gateway."""

    cidr: str
    ip_version: int
    name: str = ""
    description: str = ""
    gateway_ip: str | msgspec.UnsetType | None = msgspec.UNSET
    allocation_pools: list[dict[str, str]] | None = None
    enable_dhcp: bool = True
    dns_nameservers: list[str] = []
    host_routes: list[dict[str, str]] = []
    ipv6_ra_mode: str | None = None
    ipv6_address_mode: str | None = None
    service_types: list[str] = []
    segment_id: str | None = None


class Subnets:
    """The rules of subnets. Every method runs in the caller's transaction."""

    def __init__(self, quotas: Quotas, changes: Changes) -> None:
        self._quotas = quotas
        self._changes = changes

    async def create(self, tx: Tx, *, project_id: str, network: Network, spec: SubnetSpec) -> Subnet:
        """Make a subnet of a network. Raises InvalidInput, OverQuota and the conflicts of pools."""
        await self._quotas.check(tx, project_id, "subnet")
        columns, pools = plan(spec)
        if spec.segment_id is not None and spec.segment_id not in {s["id"] for s in network.segments}:
            raise errors.SegmentNotFound(f"Segment {spec.segment_id} could not be found.")
        await _LOCK.first(tx, id=network.id)
        net = ipaddress.ip_network(columns["cidr"])
        for _, other in await _SIBLINGS.all(tx, network_id=network.id):
            if net.overlaps(ipaddress.ip_network(other)):
                raise errors.InvalidInput(
                    f"Invalid input for operation: the CIDR {net} overlaps with {other} of the same network.",
                    field="cidr",
                )
        subnet_id = new_id()
        await _INSERT.run(tx, id=subnet_id, network_id=network.id, project_id=project_id, **columns)
        await _POOL.many(tx, [{"id": subnet_id, **pool} for pool in pools])
        await networks.touch(tx, network.id)
        await self._changes.record(tx, SUBNET, [subnet_id])
        return await _SHOW.one(tx, id=subnet_id, project_id=None)

    async def show(self, tx: Tx, subnet_id: str, *, project_id: str | None) -> Subnet:
        """One subnet that the project sees: its own, or of a shared or external network. Raises SubnetNotFound."""
        found = await _SHOW.first(tx, id=subnet_id, project_id=project_id)
        if found is None:
            raise errors.SubnetNotFound(f"Subnet {subnet_id} could not be found.", subnet_id=subnet_id)
        return found

    async def page(self, tx: Tx, query_: listing.ListQuery, *, project_id: str | None) -> list[Subnet]:
        """The subnets that the project sees."""
        select = selects.SUBNETS
        if project_id is not None:
            select = select.where(sa.or_(_s.c.project_id == project_id, _s.c.network_id.in_(_shared)))
        return await listing.page(tx, select, _s, query_, FILTERS, SORTABLE, Subnet)

    async def update(
        self, tx: Tx, subnet: Subnet, changes: dict[str, Any], revision: int | None = None
    ) -> Subnet:
        """Change attributes of a subnet that ``show`` gave. Raises as ``create`` does."""
        given = dict(changes)
        net = ipaddress.ip_network(subnet.cidr)
        gateway = subnet.gateway_ip
        if "gateway_ip" in given:
            gateway = given["gateway_ip"] = _gateway(net, given["gateway_ip"])
        wanted = given.pop("allocation_pools", None)
        if wanted is not None:
            pools = cidr.check_pools(net, wanted, gateway)
            await _CLEAR_POOLS.run(tx, id=subnet.id)
            await _POOL.many(tx, [{"id": subnet.id, **pool} for pool in pools])
        elif gateway is not None and "gateway_ip" in given:
            cidr.check_gateway(cidr.pool_ranges(subnet.allocation_pools), gateway)
        if given.get("enable_dhcp") and not subnet.enable_dhcp:
            _check_dhcp(net)
        _check_lists(net, given)
        await rows.update(tx, _s, subnet.id, given, revision)
        await self._changes.record(tx, SUBNET, [subnet.id])
        return await _SHOW.one(tx, id=subnet.id, project_id=None)

    async def delete(self, tx: Tx, subnet: Subnet) -> None:
        """Delete a subnet. Raises SubnetInUse while ports have addresses of it."""
        try:
            await _DELETE.run(tx, id=subnet.id)
        except ForeignKeyViolation as error:
            raise errors.SubnetInUse(
                f"Unable to complete operation on subnet {subnet.id}: One or more ports have an IP allocation from "
                "this subnet."
            ) from error
        await networks.touch(tx, subnet.network_id)
        await self._changes.record(tx, SUBNET, [subnet.id])


def plan(spec: SubnetSpec) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The columns and pools of a subnet to be made, checked. Raises InvalidInput and the conflicts of pools."""
    if spec.ip_version not in (4, 6):
        raise errors.InvalidInput("ip_version is 4 or 6", field="ip_version")
    net = cidr.parse_cidr(spec.cidr, spec.ip_version)
    _check_modes(spec, net)
    if spec.enable_dhcp:
        _check_dhcp(net)
    gateway = (
        cidr.default_gateway(net) if spec.gateway_ip is msgspec.UNSET else _gateway(net, spec.gateway_ip)
    )
    if spec.allocation_pools is None:
        pools = cidr.default_pools(net, gateway)
    else:
        pools = cidr.check_pools(net, spec.allocation_pools, gateway)
    columns = {f: getattr(spec, f) for f in _FIELDS if hasattr(spec, f)}
    columns.update(cidr=str(net), gateway_ip=gateway)
    _check_lists(net, columns)
    return columns, pools


def _gateway(net: cidr.Net, text: str | None) -> str | None:
    if text is None:
        return None
    address = cidr.parse_address(text, field="gateway_ip")
    if address.version != net.version:
        raise errors.InvalidInput(f"gateway_ip {text} is not an IPv{net.version} address", field="gateway_ip")
    if address in net and not cidr.is_host_address(net, address):
        raise errors.InvalidInput(f"gateway_ip {text} cannot be an address of {net}", field="gateway_ip")
    return str(address)


def _check_dhcp(net: cidr.Net) -> None:
    """Raise InvalidInput where no client could be given an address."""
    for broken, why in (
        (net.prefixlen > net.max_prefixlen - 2, "has no room for a client and its gateway"),
        (net.is_multicast, "is multicast"),
        (net.is_loopback, "is loopback"),
        (net.version == 4 and not int(net.network_address), "begins with 0.0.0.0"),
    ):
        if broken:
            raise errors.InvalidInput(
                f"cidr {net} {why}: it can be used with enable_dhcp false alone", field="cidr"
            )


def _check_lists(net: cidr.Net, given: dict[str, Any]) -> None:
    # Canonical text, so that equal things compare equal in the data plane too.
    for name, most in (("dns_nameservers", values.NAMESERVERS), ("host_routes", values.ROUTES)):
        if len(given.get(name, ())) > most:
            raise errors.InvalidInput(f"{name}: there may be {most} of them at most", field=name)
    if "dns_nameservers" in given:
        servers = given["dns_nameservers"]
        given["dns_nameservers"] = [_of_family(net, a, "dns_nameservers") for a in servers]
    if "host_routes" in given:
        given["host_routes"] = [
            {
                "destination": str(cidr.parse_cidr(r["destination"], net.version, field="host_routes")),
                "nexthop": _of_family(net, r["nexthop"], "host_routes"),
            }
            for r in given["host_routes"]
        ]


def _of_family(net: cidr.Net, text: str, field: str) -> str:
    address = cidr.parse_address(text, field=field)
    if address.version != net.version:
        raise errors.InvalidInput(f"{field}: {text} is not an IPv{net.version} address", field=field)
    return str(address)


def _check_modes(spec: SubnetSpec, net: cidr.Net) -> None:
    modes = (spec.ipv6_ra_mode, spec.ipv6_address_mode)
    if spec.ip_version == 4 and modes != (None, None):
        raise errors.InvalidInput("ipv6 modes need ip_version 6", field="ipv6_address_mode")
    for name, mode in zip(("ipv6_ra_mode", "ipv6_address_mode"), modes, strict=True):
        if mode not in (None, "slaac", "dhcpv6-stateful", "dhcpv6-stateless"):
            raise errors.InvalidInput(
                f"'{mode}' is not slaac, dhcpv6-stateful or dhcpv6-stateless", field=name
            )
    if None not in modes and modes[0] != modes[1]:
        raise errors.InvalidInput("ipv6_ra_mode and ipv6_address_mode must be equal", field="ipv6_ra_mode")
    if modes != (None, None) and not spec.enable_dhcp:
        raise errors.InvalidInput(
            "ipv6_ra_mode and ipv6_address_mode need enable_dhcp true", field="enable_dhcp"
        )
    if {"slaac", "dhcpv6-stateless"} & {*modes} and net.prefixlen != 64:
        raise errors.InvalidInput(
            f"cidr {net} is not a /64: guests that make their own addresses, as ipv6_ra_mode and ipv6_address_mode say,"
            " need one",
            field="cidr",
        )


FILTERS: dict[str, listing.Condition] = {
    **{
        name: listing.equals(_s.c[name])
        for name in (
            "id", "network_id", "segment_id", "project_id", "name", "description", "ip_version", "cidr",
            "gateway_ip", "enable_dhcp", "ipv6_ra_mode", "ipv6_address_mode", "revision_number",
        )
    },
    **listing.tags(_s.c.tags),
    "tenant_id": listing.equals(_s.c.project_id),
    "shared": lambda values: _s.c.network_id.in_(sa.select(_n.c.id).where(listing.equals(_n.c.shared)(values))),
    "router:external": lambda values: _s.c.network_id.in_(
        sa.select(_n.c.id).where(listing.equals(_n.c.external)(values))
    ),
}  # fmt: skip
