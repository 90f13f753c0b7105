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
# SELECT DISTINCT ON (port, subnet) port, subnet, address FROM unnest(..) WITH ORDINALITY
# WHERE nobody has (subnet, address) ORDER BY port, subnet, ordinality ON CONFLICT DO NOTHING RETURNING ..
_offers = (
    sa.func.unnest(texts_param("port_ids"), texts_param("subnet_ids"), texts_param("addresses"))
    .table_valued("port_id", "subnet_id", "address", with_ordinality="place")
    .render_derived(name="offers")
)
_taken = (
    sa.select(sa.literal_column("1"))
    .where(tables.port_fixed_ips.c.subnet_id == _offers.c.subnet_id)
    .where(tables.port_fixed_ips.c.address == _offers.c.address)
    .correlate(_offers)
)
_TAKE = Statement(
    postgresql.insert(tables.port_fixed_ips)
    .from_select(
        ["port_id", "subnet_id", "address"],
        sa.select(_offers.c.port_id, _offers.c.subnet_id, _offers.c.address)
        .distinct(_offers.c.port_id, _offers.c.subnet_id)
        .where(~_taken.exists())
        .order_by(_offers.c.port_id, _offers.c.subnet_id, _offers.c.place),
    )
    .on_conflict_do_nothing()
    .returning(
        tables.port_fixed_ips.c.port_id, tables.port_fixed_ips.c.subnet_id, tables.port_fixed_ips.c.address
    )
)
_USED = Statement(
    sa.select(tables.port_fixed_ips.c.address).where(tables.port_fixed_ips.c.subnet_id == text_param("subnet_id"))
)


async def allocate(
    tx: Tx,
    requests: Sequence[AddressRequest],
    pools: Mapping[str, Pool],
    chance: random.Random,
) -> dict[tuple[str, str], str]:
    """Give every request an address: ``{(port_id, subnet_id): address}``.

    A port may ask once for each subnet in one call. Raises IpAddressInUse for a certain address that is taken,
    IpAddressGenerationFailure when a subnet has none left; the caller's transaction must then be rolled back.
    """
    given: dict[tuple[str, str], str] = {}
    offered: dict[str, set[str]] = {}
    offers = [
        (r, [r.address] if r.address else sample(pools[r.subnet_id], CANDIDATES, _known(offered, r), chance))
        for r in requests
    ]
    for _ in range(_ROUNDS):
        given.update(await _take(tx, offers))
        missing = [r for r in requests if (r.port_id, r.subnet_id) not in given]
        if not missing:
            return given
        for request in missing:
            if request.address:
                raise errors.IpAddressInUse(
                    f"address {request.address} is in use", ip_address=request.address, subnet_id=request.subnet_id
                )
        offers = await _offers_of_rest(tx, missing, pools, chance)
    raise _exhausted(pools[missing[0].subnet_id])


def _known(offered: dict[str, set[str]], request: AddressRequest) -> set[str]:
    return offered.setdefault(request.subnet_id, set())


async def _take(tx: Tx, offers: Iterable[tuple[AddressRequest, list[str]]]) -> dict[tuple[str, str], str]:
    flat = [(r.port_id, r.subnet_id, address) for r, addresses in offers for address in addresses]
    if not flat:
        return {}
    port_ids, subnet_ids, addresses = zip(*flat, strict=True)
    rows = await _TAKE.all(tx, port_ids=port_ids, subnet_ids=subnet_ids, addresses=addresses)
    return {(row[0], row[1]): row[2] for row in rows}


async def _offers_of_rest(
    tx: Tx, missing: Sequence[AddressRequest], pools: Mapping[str, Pool], chance: random.Random
) -> list[tuple[AddressRequest, list[str]]]:
    walks: dict[str, Iterator[str]] = {}
    for subnet_id in {r.subnet_id for r in missing}:
        pool = pools[subnet_id]
        used = {row[0] for row in await _USED.all(tx, subnet_id=subnet_id)}
        walks[subnet_id] = free(pool, used, chance.randrange(pool.size) if pool.size else 0)
    offers = []
    for request in missing:
        walk = walks[request.subnet_id]
        address = next(walk, None)
        if address is None:
            raise _exhausted(pools[request.subnet_id])
        offers.append((request, [address]))
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
