"""Addresses: which port has which, safely under any concurrency.

The primary key (subnet, address) is the only authority. An allocation offers a handful of random candidates for each
address it needs and lets one ``INSERT ... SELECT`` take, for each, the first that nobody has: one statement for any
number of ports. Random, because two clients that walk the pool in the same order would meet at every address and wait
for each other's commit. Where no candidate was free (a nearly full pool, or a lost race) the addresses in use are read
once and the next candidates are taken from what is really left, until there are some or there is nothing left.
"""

import ipaddress
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.network import cidr, errors, tables
from moorage.network.model import AddressRequest
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param

CANDIDATES = 8
# A client that loses this many races in a row for addresses that looked free gives up.
_ROUNDS = 20


class Pool(msgspec.Struct, frozen=True):
    """What can be allocated of a subnet: ranges of integers, ends included."""

    subnet_id: str
    network_id: str
    version: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """The number of addresses in all ranges."""
        return sum(b - a + 1 for a, b in self.ranges)

    def nth(self, index: int) -> int:
        """The address at a position, counted over all ranges."""
        for a, b in self.ranges:
            if index <= b - a:
                return a + index
            index -= b - a + 1
        raise IndexError(index)


def pool_of(subnet: Mapping[str, Any]) -> Pool:
    """The pool of a subnet given as in the API (id, network_id, ip_version, allocation_pools)."""
    ranges = tuple(cidr.pool_ranges(subnet["allocation_pools"]))
    return Pool(subnet["id"], subnet["network_id"], subnet["ip_version"], ranges)


def sample(pool: Pool, count: int, taken: set[str], chance: random.Random) -> list[str]:
    """Up to ``count`` different random addresses of the pool that are not in ``taken``, which grows by them."""
    size = pool.size
    found: list[str] = []
    for _ in range(min(count, size) * 2):
        address = cidr.text_of(pool.version, pool.nth(chance.randrange(size)))
        if address not in taken:
            taken.add(address)
            found.append(address)
            if len(found) == count:
                break
    return found


def free(pool: Pool, used: set[str], start: int) -> Iterator[str]:
    """Every address of the pool that is not used, walking once round from position ``start``."""
    size = pool.size
    for step in range(size):
        address = cidr.text_of(pool.version, pool.nth((start + step) % size))
        if address not in used:
            yield address


# INSERT INTO port_fixed_ips
# SELECT DISTINCT ON (slot) port, subnet, address FROM unnest(..) WITH ORDINALITY
# WHERE nobody has (subnet, address) ORDER BY slot, ordinality ON CONFLICT DO NOTHING RETURNING ..
_ips = tables.port_fixed_ips
_offers = (
    sa.func.unnest(
        sa.bindparam("slots", type_=postgresql.ARRAY(sa.Integer)),
        texts_param("port_ids"),
        texts_param("subnet_ids"),
        texts_param("addresses"),
    )
    .table_valued("slot", "port_id", "subnet_id", "address", with_ordinality="place")
    .render_derived(name="offers")
)
_taken: Any = (
    sa.select(sa.literal_column("1"))
    .where(_ips.c.subnet_id == _offers.c.subnet_id, _ips.c.address == _offers.c.address)
    .correlate(_offers)
)


def taking(*ports: Any) -> Any:
    """SQL: take, for each request, the first address offered that nobody has; ``offered`` gives the parameters.

    ``ports``: a column of ids, where only these are to have one.
    """
    return (
        postgresql.insert(_ips)
        .from_select(
            ["port_id", "subnet_id", "address"],
            sa.select(_offers.c.port_id, _offers.c.subnet_id, _offers.c.address)
            .ext(postgresql.distinct_on(_offers.c.slot))
            .where(~_taken.exists(), *(_offers.c.port_id.in_(sa.select(ids)) for ids in ports))
            .order_by(_offers.c.slot, _offers.c.place),
        )
        .on_conflict_do_nothing()
        .returning(_ips.c.port_id, _ips.c.subnet_id, _ips.c.address)
    )


_TAKE: Statement[Any] = Statement(taking())
_USED: Statement[Any] = Statement(
    sa.select(_ips.c.address).where(_ips.c.subnet_id == text_param("subnet_id"))
)

# What is offered for a request, by its place in the list of requests.
Offers = dict[int, list[tuple[str, str]]]


async def allocate(
    tx: Tx, requests: Sequence[AddressRequest], pools: Mapping[str, Pool], chance: random.Random
) -> list[dict[str, str]]:
    """Give every request an address, in order: ``{"subnet_id", "ip_address"}``. One statement, as a rule.

    Raises IpAddressInUse for a certain address that is taken, IpAddressGenerationFailure when none of a request's
    subnets has one left; the caller's transaction must then be rolled back.
    """
    given: dict[int, tuple[str, str]] = {}
    offers = first_offers(requests, pools, chance)
    for _ in range(_ROUNDS):
        given.update(await _take(tx, requests, offers))
        missing = [slot for slot in range(len(requests)) if slot not in given]
        if not missing:
            return [{"subnet_id": given[s][0], "ip_address": given[s][1]} for s in range(len(requests))]
        for slot in missing:
            if requests[slot].address is not None:
                raise errors.IpAddressInUse(
                    f"Unable to complete operation: the IP address {requests[slot].address} is in use.",
                    ip_address=requests[slot].address,
                )
        offers = await _offers_of_rest(tx, {s: requests[s] for s in missing}, pools, chance)
    raise _exhausted(pools[requests[missing[0]].subnet_ids[-1]])


def first_offers(
    requests: Sequence[AddressRequest], pools: Mapping[str, Pool], chance: random.Random
) -> Offers:
    """Random addresses for each request, of its first subnet, or the one it names."""
    offered: dict[str, set[str]] = {}
    for request in requests:
        if request.address is not None:
            offered.setdefault(request.subnet_ids[0], set()).add(request.address)
    offers: Offers = {}
    for slot, request in enumerate(requests):
        subnet_id = request.subnet_ids[0]
        if request.address is not None:
            offers[slot] = [(subnet_id, request.address)]
        elif pools[subnet_id].size:
            taken = offered.setdefault(subnet_id, set())
            offers[slot] = [(subnet_id, a) for a in sample(pools[subnet_id], CANDIDATES, taken, chance)]
    return offers


def offered(requests: Sequence[AddressRequest], offers: Offers) -> dict[str, list[Any]]:
    """The parameters of ``taking``."""
    flat = [
        (slot, requests[slot].port_id, subnet_id, address)
        for slot, choices in offers.items()
        for subnet_id, address in choices
    ]
    names = ("slots", "port_ids", "subnet_ids", "addresses")
    return {name: [row[i] for row in flat] for i, name in enumerate(names)}


def taken_by(offers: Offers, taken: Iterable[tuple[str, str]]) -> dict[int, tuple[str, str]]:
    """Who got what was taken (subnet, address): no address is offered twice."""
    slot_of = {offer: slot for slot, choices in offers.items() for offer in choices}
    return {slot_of[each]: each for each in taken}


async def _take(tx: Tx, requests: Sequence[AddressRequest], offers: Offers) -> dict[int, tuple[str, str]]:
    if not any(offers.values()):
        return {}
    taken = await _TAKE.all(tx, **offered(requests, offers))
    return taken_by(offers, [(subnet_id, address) for _, subnet_id, address in taken])


async def _offers_of_rest(
    tx: Tx, missing: Mapping[int, AddressRequest], pools: Mapping[str, Pool], chance: random.Random
) -> Offers:
    walks: dict[str, Iterator[str]] = {}
    for subnet_id in {s for r in missing.values() for s in r.subnet_ids}:
        pool = pools[subnet_id]
        used = {row[0] for row in await _USED.all(tx, subnet_id=subnet_id)}
        walks[subnet_id] = free(pool, used, chance.randrange(pool.size) if pool.size else 0)
    offers: Offers = {}
    for slot, request in missing.items():
        found = next(((s, a) for s in request.subnet_ids if (a := next(walks[s], None)) is not None), None)
        if found is None:
            raise _exhausted(pools[request.subnet_ids[-1]])
        offers[slot] = [found]
    return offers


def _exhausted(pool: Pool) -> errors.IpAddressGenerationFailure:
    return errors.IpAddressGenerationFailure(
        f"No more IP addresses available on network {pool.network_id}: subnet {pool.subnet_id} has no free address",
        network_id=pool.network_id,
        subnet_id=pool.subnet_id,
        needed=1,
        available=0,
    )


def match_subnet(subnets: Iterable[Mapping[str, Any]], address: str) -> Mapping[str, Any] | None:
    """The subnet that ``address`` belongs to, or None."""
    parsed = ipaddress.ip_address(address)
    for subnet in subnets:
        if parsed in ipaddress.ip_network(subnet["cidr"]):
            return subnet
    return None


def plan_addresses(
    port_id: str, mac: str, subnets: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, str]] | None
) -> list[AddressRequest]:
    """Which addresses a new port needs.

    Without a wish: one of an IPv4 subnet, one of a stateful IPv6 subnet, and the port's own in every SLAAC subnet; the
    subnets of a family are tried in order. Raises InvalidIpForNetwork, InvalidIpForSubnet or SubnetNotFound.
    """
    if wanted is not None:
        return [_wish(port_id, mac, subnets, w) for w in wanted]
    requests = []
    for version in (4, 6):
        ids = tuple(s["id"] for s in subnets if s["ip_version"] == version and not _is_slaac(s))
        if ids:
            requests.append(AddressRequest(port_id=port_id, subnet_ids=ids))
    return [*requests, *(_own(port_id, mac, s) for s in subnets if _is_slaac(s))]


def _is_slaac(subnet: Mapping[str, Any]) -> bool:
    return subnet["ipv6_address_mode"] in ("slaac", "dhcpv6-stateless")


def _own(port_id: str, mac: str, subnet: Mapping[str, Any]) -> AddressRequest:
    address = cidr.eui64(ipaddress.ip_network(subnet["cidr"]), mac)
    return AddressRequest(port_id=port_id, subnet_ids=(subnet["id"],), address=address)


def _wish(
    port_id: str, mac: str, subnets: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]
) -> AddressRequest:
    subnet_id, text = wanted.get("subnet_id"), wanted.get("ip_address")
    subnet = next((s for s in subnets if s["id"] == subnet_id), None)
    if subnet_id is not None and subnet is None:
        raise errors.InvalidInput(
            f"Invalid input for operation: subnet {subnet_id} is not of the port's network.",
            field="fixed_ips",
        )
    if text is None:
        if subnet is None:
            raise errors.InvalidInput("a fixed IP needs subnet_id or ip_address", field="fixed_ips")
        if _is_slaac(subnet):
            return _own(port_id, mac, subnet)
        return AddressRequest(port_id=port_id, subnet_ids=(subnet["id"],))
    address = cidr.parse_address(text, field="fixed_ips")
    if subnet is None:
        subnet = match_subnet(subnets, text)
        if subnet is None:
            raise errors.InvalidIpForNetwork(
                f"IP address {text} is not a valid IP for any of the subnets on the specified network.",
                field="fixed_ips",
            )
    if not cidr.is_host_address(ipaddress.ip_network(subnet["cidr"]), address):
        raise errors.InvalidIpForSubnet(
            f"IP address {text} is not a valid IP for the specified subnet.", field="fixed_ips"
        )
    return AddressRequest(port_id=port_id, subnet_ids=(subnet["id"],), address=str(address))
