"""Claims against a real PostgreSQL: all or nothing, and never over capacity, whoever races."""

from __future__ import annotations

import asyncio
import random

import pytest

from moorage.core.ids import new_id
from moorage.placement.columns import Columns
from moorage.placement.errors import CapacityExceeded, ConsumerExists, NoInventory
from moorage.placement.following import Follower
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import ConsumerWrite, Inventory
from moorage.placement.reads import PROVIDER_USAGES, THESE
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict

LEDGER = Ledger()


async def provider(database: Database, **inventory: Inventory) -> str:
    uuid = new_id()
    async with database.transaction() as tx:
        await LEDGER.ensure_provider(tx, uuid=uuid, name=uuid)
        await LEDGER.set_inventory(tx, uuid, inventory)
    return uuid


async def claim(database: Database, allocations, consumer: str | None = None) -> str:
    consumer = consumer or new_id()
    async with database.transaction() as tx:
        await LEDGER.claim(tx, consumer=consumer, project_id="p", user_id="u", allocations=allocations)
    return consumer


async def used(database: Database, uuid: str) -> dict[str, int]:
    async with database.read() as tx:
        return {row.resource_class: row.used for row in await PROVIDER_USAGES.all(tx, id=uuid)}


async def test_claim_and_release_keep_used(database: Database) -> None:
    uuid = await provider(database, VCPU=Inventory(total=4), MEMORY_MB=Inventory(total=1024))
    consumer = await claim(database, {uuid: {"VCPU": 3, "MEMORY_MB": 1000}})
    assert await used(database, uuid) == {"VCPU": 3, "MEMORY_MB": 1000}
    async with database.transaction() as tx:
        assert await LEDGER.allocations_of(tx, consumer) == {uuid: {"VCPU": 3, "MEMORY_MB": 1000}}
        assert await LEDGER.release(tx, consumer)
        assert not await LEDGER.release(tx, consumer)
    assert await used(database, uuid) == {"VCPU": 0, "MEMORY_MB": 0}


async def test_a_claim_is_few_statements(database: Database) -> None:
    uuid = await provider(database, VCPU=Inventory(total=4))
    async with database.transaction() as tx:
        await LEDGER.claim(
            tx, consumer=new_id(), project_id="p", user_id="u", allocations={uuid: {"VCPU": 1}}
        )
        assert tx.statements == 1


async def test_a_refused_claim_changes_nothing_and_the_transaction_goes_on(database: Database) -> None:
    full = await provider(database, VCPU=Inventory(total=4), MEMORY_MB=Inventory(total=100))
    other = await provider(database, VCPU=Inventory(total=4), MEMORY_MB=Inventory(total=1000))
    consumer = new_id()
    async with database.transaction() as tx:
        want = {"VCPU": 1, "MEMORY_MB": 500}
        with pytest.raises(CapacityExceeded) as refused:
            await LEDGER.claim(tx, consumer=consumer, project_id="p", user_id="u", allocations={full: want})
        await LEDGER.claim(tx, consumer=consumer, project_id="p", user_id="u", allocations={other: want})
    assert (refused.value.resource_class, refused.value.needed, refused.value.available) == (
        "MEMORY_MB",
        500,
        100,
    )
    assert await used(database, full) == {"VCPU": 0, "MEMORY_MB": 0}
    assert await used(database, other) == want


async def test_repeating_a_claim_changes_nothing(database: Database) -> None:
    uuid = await provider(database, VCPU=Inventory(total=4))
    consumer = await claim(database, {uuid: {"VCPU": 2}})
    await claim(database, {uuid: {"VCPU": 2}}, consumer)
    assert await used(database, uuid) == {"VCPU": 2}
    with pytest.raises(ConsumerExists):
        await claim(database, {uuid: {"VCPU": 1}}, consumer)


@pytest.mark.parametrize(
    ("inventory", "amount", "limit"),
    [
        (Inventory(total=10, min_unit=2), 1, "min_unit"),
        (Inventory(total=10, max_unit=2), 3, "max_unit"),
        (Inventory(total=10, step_size=4), 6, "step_size"),
        (Inventory(total=10, reserved=8), 3, "capacity"),
        (Inventory(total=10, allocation_ratio=0.5), 6, "capacity"),
    ],
)
async def test_what_an_inventory_does_not_give(
    database: Database, inventory: Inventory, amount: int, limit: str
) -> None:
    uuid = await provider(database, VCPU=inventory)
    with pytest.raises(CapacityExceeded) as refused:
        await claim(database, {uuid: {"VCPU": amount}})
    assert refused.value.limit == limit


async def test_a_class_that_is_not_there(database: Database) -> None:
    uuid = await provider(database, VCPU=Inventory(total=1))
    with pytest.raises(NoInventory):
        await claim(database, {uuid: {"VCPU": 1, "DISK_GB": 1}})
    assert await used(database, uuid) == {"VCPU": 0}


@pytest.mark.parametrize("clients", [2, 8, 16])
async def test_the_last_place_is_won_once(database: Database, clients: int) -> None:
    hosts = [
        await provider(database, VCPU=Inventory(total=1), MEMORY_MB=Inventory(total=64)) for _ in range(6)
    ]

    async def attempt(host: str) -> bool:
        try:
            await claim(database, {host: {"VCPU": 1, "MEMORY_MB": 8}})
        except CapacityExceeded:
            return False
        return True

    results = await asyncio.gather(*(attempt(host) for host in hosts for _ in range(clients)))
    assert sum(results) == len(hosts)
    for host in hosts:
        assert await used(database, host) == {"VCPU": 1, "MEMORY_MB": 8}


async def test_all_that_fit_succeed_on_one_host(database: Database) -> None:
    host = await provider(database, VCPU=Inventory(total=40))
    await asyncio.gather(*(claim(database, {host: {"VCPU": 2}}) for _ in range(20)))
    assert await used(database, host) == {"VCPU": 40}


class Chaos:
    """Random writers on five hosts, half of them through a ledger that feeds the index, some rolled back."""

    def __init__(self, hosts: list[str], index: Index) -> None:
        self.hosts = hosts
        self.ledgers = [LEDGER, Ledger(index)]
        self.held: list[str] = []
        self.rng = random.Random(11)

    async def step(self, database: Database) -> None:
        act = self.rng.choice([self.claim, self.claim, self.release, self.move, self.resize])
        try:
            async with database.transaction() as tx:
                await act(tx, self.rng.choice(self.ledgers))
                self.maybe_roll_back()
        except (CapacityExceeded, SerializationConflict, RolledBack):
            pass

    def maybe_roll_back(self) -> None:
        if self.rng.random() < 0.1:
            raise RolledBack

    async def claim(self, tx: Tx, ledger: Ledger) -> None:
        rng = self.rng
        chosen = rng.sample(self.hosts, rng.randint(1, 2))
        want = {host: {"VCPU": rng.randint(1, 4), "DISK_GB": rng.randint(1, 9)} for host in chosen}
        consumer = new_id()
        await ledger.claim(tx, consumer=consumer, project_id="p", user_id="u", allocations=want)
        self.held.append(consumer)

    async def release(self, tx: Tx, ledger: Ledger) -> None:
        if self.held:
            await ledger.release(tx, self.held.pop(self.rng.randrange(len(self.held))))

    async def move(self, tx: Tx, ledger: Ledger) -> None:
        if self.held:
            allocations = {self.rng.choice(self.hosts): {"VCPU": 1}}
            consumer = self.rng.choice(self.held)
            await ledger.write(
                tx,
                [ConsumerWrite(consumer_id=consumer, allocations=allocations, project_id="p", user_id="u")],
            )

    async def resize(self, tx: Tx, ledger: Ledger) -> None:
        inventory = {"VCPU": Inventory(total=self.rng.randint(4, 12)), "DISK_GB": Inventory(total=50)}
        await ledger.set_inventory(tx, self.rng.choice(self.hosts), inventory)


class RolledBack(Exception):
    pass


async def test_index_equals_ledger_after_random_changes(database: Database) -> None:
    index = Index()
    follower = Follower(database, index, None)
    await follower.catch_up()
    sizes = {"VCPU": Inventory(total=8, allocation_ratio=1.5), "DISK_GB": Inventory(total=50)}
    chaos = Chaos([await provider(database, **sizes) for _ in range(5)], index)
    for _ in range(15):
        await asyncio.gather(*(chaos.step(database) for _ in range(8)))
        await follower.catch_up()
    async with database.read() as tx:
        truth = await THESE.all(tx, ids=chaos.hosts)
        sums = await tx.fetch(
            "SELECT i.used, coalesce(sum(a.used), 0)::bigint AS total FROM inventories i"
            " LEFT JOIN allocations a USING (provider_id, resource_class) GROUP BY i.provider_id, resource_class, i.used"
        )
    assert all(row["used"] == row["total"] for row in sums)
    fresh = Index()
    await Follower(database, fresh, None).catch_up()
    assert figures(index.columns) == figures(fresh.columns)
    assert figures(fresh.columns) == {
        (record.id, name): (int((total - reserved) * ratio), used_now)
        for record in truth
        for name, total, reserved, _, _, _, ratio, used_now, _ in record.inventories or []
    }


def figures(columns: Columns) -> dict[tuple[str, str], tuple[int, int]]:
    """Capacity and usage of every inventory that an index knows."""
    return {
        (provider, name): (int(column.capacity[column.at[row]]), int(column.used[column.at[row]]))
        for provider, row in columns.row_of.items()
        for name, column in columns.classes.items()
        if column.at[row] >= 0
    }
