"""Pure rules of addresses: pools, gateways, membership. Addresses are text in their canonical form."""

import ipaddress
from collections.abc import Iterable, Sequence
from itertools import pairwise

from moorage.network import errors

Net = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_cidr(text: str, ip_version: int | None = None, *, field: str = "cidr", strict: bool = True) -> Net:
    """The network ``text`` names; host bits must be zero, or count as zero. Raises InvalidInput naming ``field``."""
    _check_zone(text, field)
    try:
        net = ipaddress.ip_network(text, strict=strict)
    except ValueError as error:
        raise errors.InvalidInput(
            f"{field}: '{text[:64]}' is not a valid CIDR: {error}", field=field
        ) from error
    if ip_version is not None and net.version != ip_version:
        raise errors.InvalidInput(f"{field}: '{text[:64]}' is not an IPv{ip_version} CIDR", field=field)
    return net


def parse_address(text: str, *, field: str) -> Address:
    """The address ``text`` names. Raises InvalidInput naming ``field``."""
    _check_zone(text, field)
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise errors.InvalidInput(f"{field}: '{text[:64]}' is not a valid IP address", field=field) from error


def _check_zone(text: str, field: str) -> None:
    # Python takes any words for the zone, and keeps them: they would go into OVN's rows and expressions.
    if "%" in text:
        raise errors.InvalidInput(f"{field}: an address with a zone means nothing to others", field=field)


def host_range(net: Net) -> tuple[int, int]:
    """First and last address, as integers, that a port may have.

    Not the network address and, in IPv4, not the broadcast address; a /31, /32, /127 or /128 has no such thing.
    """
    first, last = int(net.network_address), int(net.broadcast_address)
    if net.prefixlen >= net.max_prefixlen - 1:
        return first, last
    return first + 1, last - 1 if net.version == 4 else last


def is_host_address(net: Net, address: Address) -> bool:
    """Whether a port may have ``address`` in ``net``."""
    if address.version != net.version:
        return False
    first, last = host_range(net)
    return first <= int(address) <= last


def text_of(version: int, number: int) -> str:
    """The canonical text of an address given as an integer."""
    return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))


def default_gateway(net: Net) -> str:
    """The subnet's first usable address, as Neutron chooses it."""
    return text_of(net.version, host_range(net)[0])


def default_pools(net: Net, gateway: str | None) -> list[dict[str, str]]:
    """Every usable address but the gateway's, as one or two ranges."""
    first, last = host_range(net)
    ranges = [(first, last)]
    if gateway is not None and is_host_address(net, ipaddress.ip_address(gateway)):
        number = int(ipaddress.ip_address(gateway))
        ranges = [(first, number - 1), (number + 1, last)]
    return [{"start": text_of(net.version, a), "end": text_of(net.version, b)} for a, b in ranges if a <= b]


def check_pools(net: Net, pools: Iterable[dict[str, str]], gateway: str | None) -> list[dict[str, str]]:
    """The pools in canonical form and order.

    Raises InvalidAllocationPool, OutOfBoundsAllocationPool, OverlappingAllocationPools or
    GatewayConflictWithAllocationPools.
    """
    ranges: list[tuple[int, int]] = []
    for pool in pools:
        start = parse_address(pool["start"], field="allocation_pools")
        end = parse_address(pool["end"], field="allocation_pools")
        shown = f"{start}-{end}"
        if start.version != net.version or end.version != net.version or int(end) < int(start):
            raise errors.InvalidAllocationPool(f"{shown} is not a range", field="allocation_pools")
        if not (is_host_address(net, start) and is_host_address(net, end)):
            raise errors.OutOfBoundsAllocationPool(f"{shown} is not within {net}", field="allocation_pools")
        ranges.append((int(start), int(end)))
    ranges.sort()
    for (_, before), (after, _) in pairwise(ranges):
        if after <= before:
            raise errors.OverlappingAllocationPools(f"allocation pools of {net} overlap")
    if gateway is not None:
        check_gateway(ranges, gateway)
    return [{"start": text_of(net.version, a), "end": text_of(net.version, b)} for a, b in ranges]


def check_gateway(ranges: Sequence[tuple[int, int]], gateway: str) -> None:
    """Raises GatewayConflictWithAllocationPools when a range holds the gateway."""
    number = int(ipaddress.ip_address(gateway))
    if any(a <= number <= b for a, b in ranges):
        raise errors.GatewayConflictWithAllocationPools(
            f"the gateway {gateway} lies in an allocation pool; leave it out of the pools"
        )


def pool_ranges(pools: Iterable[dict[str, str]]) -> list[tuple[int, int]]:
    """Pools as ranges of integers, ends included."""
    return [(int(ipaddress.ip_address(p["start"])), int(ipaddress.ip_address(p["end"]))) for p in pools]


def eui64(net: Net, mac: str) -> str:
    """The address a guest takes by SLAAC in a /64."""
    octets = [int(part, 16) for part in mac.split(":")]
    octets[0] ^= 2
    suffix = int.from_bytes(bytes([*octets[:3], 0xFF, 0xFE, *octets[3:]]), "big")
    return text_of(6, int(net.network_address) | suffix)
