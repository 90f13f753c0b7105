"""Subnets and the addresses taken of them. They are kept as text, so they are compared here and not in SQL."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from moorage.audit.model import Invariant, Thing

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(text: Any) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _subnet(text: Any) -> Subnet | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def in_subnets(things: Sequence[Thing]) -> Iterator[tuple[Thing, str]]:
    """Addresses that are none of their subnet's, or that no host can have."""
    for thing in things:
        address, subnet = _address(thing["subject"]), _subnet(thing["cidr"])
        where = f"port {thing['port']}, subnet {thing['subnet']} ({thing['cidr']})"
        if address is None or subnet is None:
            yield thing, f"{where}: it cannot be read"
        elif address not in subnet:
            yield thing, f"{where}: it is outside"
        elif thing["network"] != thing["subnet_network"]:
            yield (
                thing,
                f"{where}: the subnet is of network {thing['subnet_network']}, not {thing['network']}",
            )
        elif subnet.prefixlen < subnet.max_prefixlen - 1 and (
            address == subnet.network_address
            or (address.version == 4 and address == subnet.broadcast_address)
        ):
            yield thing, f"{where}: no host can have it"


def unique(things: Sequence[Thing]) -> Iterator[tuple[Thing, str]]:
    """Addresses that a network has given out already, in whatever spelling."""
    seen: dict[tuple[str, Address], Thing] = {}
    for thing in things:
        address = _address(thing["subject"])
        if address is None:
            continue
        first = seen.setdefault((thing["network"], address), thing)
        if first is not thing:
            yield (
                thing,
                f"port {thing['port']} has it, and port {first['port']} too (network {thing['network']})",
            )


def in_pools(things: Sequence[Thing]) -> Iterator[tuple[Thing, str]]:
    """Addresses that nobody asked for by name, and that are in none of the pools."""
    for thing in things:
        address = _address(thing["subject"])
        if address is None or not _inside(address, thing["pools"]):
            yield thing, f"port {thing['port']} was given it, outside the pools {thing['pools']}"


def _inside(address: Address, pools: Sequence[Sequence[str]]) -> bool:
    ranges = [(_address(a), _address(b)) for a, b in pools]
    return any(
        a is not None and b is not None and a.version == b.version == address.version
        and int(a) <= int(address) <= int(b)
        for a, b in ranges
    )  # fmt: skip


def sound_pools(things: Sequence[Thing]) -> Iterator[tuple[Thing, str]]:
    """Subnets whose pools leave the subnet, overlap, or hold the gateway."""
    for thing in things:
        wrong = _pools_wrong(thing)
        if wrong:
            yield thing, f"{thing['cidr']}: {wrong}"


def _pools_wrong(thing: Thing) -> str | None:
    subnet = _subnet(thing["cidr"])
    if subnet is None or subnet.version != thing["ip_version"]:
        return f"no IPv{thing['ip_version']} subnet"
    ranges = []
    for start, end in thing["pools"]:
        a, b = _address(start), _address(end)
        if a is None or b is None or a not in subnet or b not in subnet or int(a) > int(b):
            return f"pool {start} to {end} is no range of it"
        ranges.append((int(a), int(b)))
    ranges.sort()
    if any(second[0] <= first[1] for first, second in pairwise(ranges)):
        return f"its pools overlap: {thing['pools']}"
    gateway = None if thing["gateway"] is None else _address(thing["gateway"])
    if gateway is not None and _inside(gateway, thing["pools"]):
        return f"its gateway {gateway} is in a pool"
    return None


def disjoint(things: Sequence[Thing]) -> Iterator[tuple[Thing, str]]:
    """Subnets that share addresses with another of their network."""
    of_network: dict[str, list[tuple[Thing, Subnet]]] = defaultdict(list)
    for thing in things:
        subnet = _subnet(thing["cidr"])
        if subnet is not None:
            of_network[thing["network"]].append((thing, subnet))
    for subnets in of_network.values():
        subnets.sort(key=lambda s: (s[1].version, int(s[1].network_address), s[1].prefixlen))
        last: tuple[Thing, Subnet] | None = None
        for thing, subnet in subnets:
            if last is not None and last[1].version == subnet.version and subnet.network_address in last[1]:
                yield thing, f"{subnet} overlaps {last[1]} of subnet {last[0]['subject']}"
            else:
                last = (thing, subnet)


INVARIANTS = (
    Invariant(
        name="address.subnet",
        sentence="an address is one of its subnet, and the subnet one of the port's network",
        things="""
            SELECT f.address AS subject, f.port_id AS port, f.subnet_id AS subnet, s.cidr,
                   s.network_id AS subnet_network, p.network_id AS network
            FROM port_fixed_ips f JOIN ports p ON p.id = f.port_id JOIN subnets s ON s.id = f.subnet_id
        """,
        judge=in_subnets,
    ),
    Invariant(
        name="address.unique",
        sentence="an address belongs to one port of a network",
        things="""
            SELECT f.address AS subject, f.port_id AS port, s.network_id AS network
            FROM port_fixed_ips f JOIN subnets s ON s.id = f.subnet_id
        """,
        judge=unique,
    ),
    Invariant(
        # Only of ports made for servers is it known whether the address was asked for. SLAAC makes its own. A subnet's
        # pools may change and leave out what was given: they hold for what came after.
        name="address.pool",
        sentence="an address that nobody asked for comes from the pools",
        things="""
            SELECT f.address AS subject, f.port_id AS port, f.subnet_id AS subnet, a.pools
            FROM port_fixed_ips f
            JOIN ports p ON p.id = f.port_id AND p.created_for_device
            JOIN live v ON v.id = p.device_id
            JOIN subnets s ON s.id = f.subnet_id
            CROSS JOIN LATERAL (
                SELECT coalesce(jsonb_agg(jsonb_build_array(a.start, a."end")), '[]') AS pools
                FROM allocation_pools a WHERE a.subnet_id = s.id
            ) a
            WHERE v.requested_networks->p.device_index->>'fixed_ip' IS NULL AND p.created_at >= s.updated_at
              AND coalesce(s.ipv6_address_mode, '') NOT IN ('slaac', 'dhcpv6-stateless')
        """,
        judge=in_pools,
    ),
    Invariant(
        name="subnet.pools",
        sentence="the pools of a subnet are ranges of it that neither overlap nor hold its gateway",
        things="""
            SELECT s.id AS subject, s.cidr, s.ip_version, s.gateway_ip AS gateway, a.pools
            FROM subnets s
            CROSS JOIN LATERAL (
                SELECT coalesce(jsonb_agg(jsonb_build_array(a.start, a."end")), '[]') AS pools
                FROM allocation_pools a WHERE a.subnet_id = s.id
            ) a
        """,
        judge=sound_pools,
    ),
    Invariant(
        name="subnet.disjoint",
        sentence="the subnets of a network share no address",
        things="SELECT s.id AS subject, s.network_id AS network, s.cidr FROM subnets s",
        judge=disjoint,
    ),
)
