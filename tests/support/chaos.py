"""Random writers on a forest; as a process of its own: `python -m tests.support.chaos URL SEED HOST...`.

A process answers lines with lines, until its input ends: `work` with how often each act was committed by now, once it has
written for a while; `compare` with the providers of which its index and the ledger do not say the same.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from moorage.core import log
from moorage.core.errors import BadRequest, NotFound
from moorage.core.ids import new_id
from moorage.placement import providers
from moorage.placement.errors import (
    CapacityExceeded,
    ConcurrentUpdate,
    ConsumerExists,
    InventoryInUse,
    NoInventory,
    ProviderHasChildren,
    ProviderInUse,
    UnknownProvider,
)
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import Allocations, ConsumerWrite, Inventory
from moorage.placement.reshape import NewInventories, reshape
from moorage.placement.service import PlacementService
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict
from tests.support.mirror import known, stored

TRAITS = ("HW_CPU_X86_AVX", "CUSTOM_FAST", "CUSTOM_NEAR", "MISC_SHARES_VIA_AGGREGATE")
AGGREGATES = ("rack-1", "rack-2", "rack-3")
CLASSES = ("VCPU", "DISK_GB", "SRIOV_NET_VF")


Act = Callable[[Tx, Ledger], Awaitable[bool]]
"""Writes something; tells whether there was anything to write."""


class RolledBack(Exception):
    pass


REFUSALS = (
    CapacityExceeded, ConcurrentUpdate, ConsumerExists, InventoryInUse, NoInventory, NotFound, ProviderHasChildren,
    ProviderInUse, RolledBack, SerializationConflict, UnknownProvider,
)  # fmt: skip
"""What may happen to a writer among others. A constraint of the database that is broken is none of it."""


class Chaos:
    """Random writers, half of them through a ledger that feeds the index, some rolled back.

    They meet those of other processes: providers and consumers are any that are there. `hosts` are never deleted.
    `done` counts what was committed.
    """

    def __init__(self, hosts: list[str], index: Index, seed: int) -> None:
        self.hosts = hosts
        self.ledgers = [Ledger(), Ledger(index)]
        self.rng = random.Random(seed)
        self.done: Counter[str] = Counter()
        often = [self.claim, self.claim, self.exchange, self.resize, self.reshape, self.grow, self.prune]
        self.acts: list[Act] = [
            *often, *often, self.move, self.release, self.set_traits, self.set_aggregates, self.reparent,
        ]  # fmt: skip
        self.next: list[Act] = []

    async def step(self, database: Database) -> None:
        if not self.next:
            self.next = self.rng.sample(self.acts, len(self.acts))
        act = self.next.pop()
        try:
            async with database.transaction() as tx:
                acted = await act(tx, self.rng.choice(self.ledgers))
                if self.rng.random() < 0.1:
                    raise RolledBack
        except REFUSALS:
            return
        except BadRequest as error:
            # A loop, or a parent that has gone.
            if error.field != "parent_provider_uuid":
                raise
            return
        self.done[act.__name__] += acted

    async def any_provider(self, tx: Tx) -> str:
        return self.rng.choice(await column(tx, "SELECT id FROM resource_providers ORDER BY id"))

    async def any_place(self, tx: Tx) -> str:
        places = await column(tx, "SELECT provider_id FROM inventories ORDER BY version")
        return self.rng.choice(places or self.hosts)

    async def any_consumers(self, tx: Tx, count: int) -> list[str]:
        found = await column(tx, "SELECT id FROM consumers ORDER BY id")
        return self.rng.sample(found, min(count, len(found)))

    async def any_amounts(self, tx: Tx, places: int) -> Allocations:
        rows = await tx.fetch(
            "SELECT provider_id, array_agg(resource_class ORDER BY resource_class) AS classes FROM inventories"
            " GROUP BY provider_id ORDER BY provider_id"
        )
        rng = self.rng
        chosen = rng.sample(rows, min(places, len(rows)))
        return {
            row["provider_id"]: {
                name: rng.randint(1, 4)
                for name in rng.sample(row["classes"], rng.randint(1, len(row["classes"])))
            }
            for row in chosen
        }

    async def claim(self, tx: Tx, ledger: Ledger) -> bool:
        want = await self.any_amounts(tx, self.rng.randint(1, 2))
        await ledger.claim(tx, consumer=new_id(), project_id="p", user_id="u", allocations=want)
        return bool(want)

    async def release(self, tx: Tx, ledger: Ledger) -> bool:
        held = [await ledger.release(tx, consumer) for consumer in await self.any_consumers(tx, 1)]
        return any(held)

    async def move(self, tx: Tx, ledger: Ledger) -> bool:
        consumers = await self.any_consumers(tx, 1)
        wanted = await self.any_amounts(tx, 1)
        await ledger.write(tx, [written(consumer, wanted) for consumer in consumers])
        return bool(consumers)

    async def exchange(self, tx: Tx, ledger: Ledger) -> bool:
        """Two consumers at once: each gets what the other has, or one all of it, as with a migration."""
        consumers = await self.any_consumers(tx, 2)
        if len(consumers) < 2:
            return False
        one, two = [await ledger.allocations_of(tx, consumer) for consumer in consumers]
        after = (two, one) if self.rng.random() < 0.5 else ({}, one)
        generations = [await generation_of(tx, "consumers", consumer) for consumer in consumers]
        await ledger.write(
            tx,
            [
                msgspec.structs.replace(
                    written(consumer, wanted), generation=generation, check_generation=True
                )
                for consumer, wanted, generation in zip(consumers, after, generations, strict=True)
            ],
        )
        return True

    def stock(self, name: str) -> Inventory:
        rng = self.rng
        total = rng.randint(4, 16) if name != "DISK_GB" else rng.randint(20, 60)
        return Inventory(
            total=total,
            reserved=rng.choice([0, 0, 1]),
            max_unit=rng.choice([3, 100, 100]),
            step_size=rng.choice([1, 1, 1, 2]),
            allocation_ratio=rng.choice([0.5, 1.0, 1.5]),
        )

    async def resize(self, tx: Tx, ledger: Ledger) -> bool:
        """All figures change, also to less than is used; classes come, and go where nothing is used."""
        provider = await self.any_provider(tx)
        used = await column(
            tx, "SELECT resource_class FROM inventories WHERE provider_id = $1 AND used > 0", provider
        )
        names = {*used, *self.rng.sample(CLASSES, self.rng.randint(1, 3))}
        await ledger.set_inventory(tx, provider, {name: self.stock(name) for name in sorted(names)})
        return True

    async def reshape(self, tx: Tx, ledger: Ledger) -> bool:
        """A class of one provider goes to another that has it not, with all that is allocated of it."""
        source, target = await self.any_place(tx), await self.any_provider(tx)
        have = {provider: await providers.inventories_of(tx, provider) for provider in (source, target)}
        names = sorted(have[source].keys() - have[target].keys())
        if not names:
            return False
        name = self.rng.choice(names)
        writes = []
        query = (
            "SELECT consumer_id FROM allocations WHERE provider_id = $1 AND resource_class = $2 ORDER BY 1"
        )
        for consumer in await column(tx, query, source, name):
            held = await ledger.allocations_of(tx, consumer)
            if name not in held.get(source, {}):
                continue  # it has gone meanwhile
            held.setdefault(target, {})[name] = held[source].pop(name)
            moved = written(consumer, {place: amounts for place, amounts in held.items() if amounts})
            generation = await generation_of(tx, "consumers", consumer)
            writes.append(msgspec.structs.replace(moved, generation=generation, check_generation=True))
        after = {
            provider: {rc: row.inventory for rc, row in rows.items() if rc != name}
            for provider, rows in have.items()
        }
        after[target][name] = have[source][name].inventory
        wanted = {
            provider: NewInventories(await generation_of(tx, "resource_providers", provider), inventories)
            for provider, inventories in after.items()
        }
        await reshape(tx, ledger, wanted, writes)
        return True

    async def set_traits(self, tx: Tx, ledger: Ledger) -> bool:
        await ledger.set_traits(tx, await self.any_provider(tx), self.rng.sample(TRAITS, 2))
        return True

    async def set_aggregates(self, tx: Tx, ledger: Ledger) -> bool:
        await ledger.set_aggregates(tx, await self.any_provider(tx), self.rng.sample(AGGREGATES, 2))
        return True

    async def grow(self, tx: Tx, ledger: Ledger) -> bool:
        child = new_id()
        await ledger.ensure_provider(
            tx, uuid=child, name=f"child {child}", parent=await self.any_provider(tx)
        )
        if self.rng.random() < 0.5:
            await ledger.set_inventory(tx, child, {"VCPU": self.stock("VCPU")})
        return True

    async def prune(self, tx: Tx, _ledger: Ledger) -> bool:
        query = (
            "SELECT id FROM resource_providers p WHERE id <> ALL($1)"
            " AND NOT EXISTS (SELECT FROM resource_providers c WHERE c.parent_id = p.id) ORDER BY id"
        )
        leaves = await column(tx, query, self.hosts)
        if leaves:
            await providers.delete_provider(tx, self.rng.choice(leaves))
        return bool(leaves)

    async def reparent(self, tx: Tx, _ledger: Ledger) -> bool:
        parent = await self.any_provider(tx) if self.rng.random() < 0.7 else None
        await providers.update_provider(
            tx,
            provider=await self.any_provider(tx),
            name=f"moved {new_id()}",
            parent=parent,
            keep_parent=False,
            reparent=True,
        )
        return True

    async def together(self, service: PlacementService, count: int) -> None:
        """Claims as they come over HTTP, of one place and at once: they share transactions."""
        async with service.database.read() as tx:
            wanted = await self.any_amounts(tx, 1)
        claims = [
            msgspec.structs.replace(written(new_id(), wanted), check_generation=True) for _ in range(count)
        ]
        for result in await asyncio.gather(*(service.write([one]) for one in claims), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, REFUSALS):
                raise result
            self.done["together"] += result is None


async def column(tx: Tx, query: str, *args: Any) -> list[str]:
    return [row[0] for row in await tx.fetch(query, args)]


async def generation_of(tx: Tx, table: str, name: str) -> int:
    (row,) = await tx.fetch(f"SELECT coalesce(min(generation), -1) FROM {table} WHERE id = $1", (name,))  # noqa: S608
    return int(row[0])


def written(consumer: str, allocations: Allocations) -> ConsumerWrite:
    return ConsumerWrite(consumer_id=consumer, allocations=allocations, project_id="p", user_id="u")


async def differences(database: Database, index: Index) -> list[str]:
    """The providers of which index and ledger do not say the same; nobody may write meanwhile."""
    here, there = known(index.columns), await stored(database)
    return [
        f"{provider}: index {here.get(provider)}, ledger {there.get(provider)}"
        for provider in sorted(here.keys() | there.keys())
        if here.get(provider) != there.get(provider)
    ]


async def main(url: str, seed: int, hosts: list[str]) -> None:
    """Do what is asked."""
    log.configure(level="WARNING")
    database = Database(url)
    await database.open()
    service = PlacementService(database)
    await service.start()
    chaos = Chaos(hosts, service.index, seed)
    while command := await asyncio.to_thread(sys.stdin.readline):
        answer: object
        if command == "work\n":
            for _ in range(3):
                await asyncio.gather(chaos.together(service, 6), *(chaos.step(database) for _ in range(8)))
                await service.follower.catch_up()
            answer = chaos.done
        else:
            await service.follower.catch_up()
            answer = await differences(database, service.index)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
