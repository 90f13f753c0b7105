"""Claims against a real PostgreSQL: all or nothing, and never over capacity, whoever races."""

from __future__ import annotations

import asyncio
import random

import pytest

from moorage.core.ids import new_id
from moorage.placement.errors import CapacityExceeded, ConsumerExists, NoInventory
from moorage.placement.index import Follower, Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import ConsumerWrite, Inventory
from moorage.placement.reads import PROVIDER_USAGES, THESE
from moorage.store.database import Database
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
        await LEDGER.claim(tx, consumer=new_id(), project_id="p", user_id="u", allocations={uuid: {"VCPU": 1}})
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
    assert (refused.value.resource_class, refused.value.needed, refused.value.available) == ("MEMORY_MB", 500, 100)
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
    hosts = [await provider(database, VCPU=Inventory(total=1), MEMORY_MB=Inventory(total=64)) for _ in range(6)]

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


async def test_index_equals_ledger_after_random_changes(database: Database) -> None:
    index = Index()
    ledger = Ledger(index)
    follower = Follower(database, index, None)
    await follower.catch_up()
    rng = random.Random(11)
    hosts = [
        await provider(database, VCPU=Inventory(total=8, allocation_ratio=1.5), DISK_GB=Inventory(total=50))
        for _ in range(5)
    ]
    held: list[str] = []

    async def step(number: int) -> None:
        kind = rng.random()
        writer = rng.choice([ledger, LEDGER])
        try:
            async with database.transaction() as tx:
                if kind < 0.5:
                    chosen = rng.sample(hosts, rng.randint(1, 2))
                    want = {host: {"VCPU": rng.randint(1, 4), "DISK_GB": rng.randint(1, 9)} for host in chosen}
                    consumer = new_id()
                    await writer.claim(tx, consumer=consumer, project_id="p", user_id="u", allocations=want)
                    held.append(consumer)
                elif kind < 0.7 and held:
                    await writer.release(tx, held.pop(rng.randrange(len(held))))
                elif kind < 0.85 and held:
                    move = ConsumerWrite(
                        consumer_id=rng.choice(held),
                        allocations={rng.choice(hosts): {"VCPU": 1}},
                        project_id="p",
                        user_id="u",
                    )
                    await writer.write(tx, [move])
                else:
                    await writer.set_inventory(
                        tx,
                        rng.choice(hosts),
                        {"VCPU": Inventory(total=rng.randint(4, 12)), "DISK_GB": Inventory(total=50)},
                    )
                if rng.random() < 0.1:
                    msg = "rolled back"
                    raise CapacityExceeded(msg, "VCPU", number, 0)
        except (CapacityExceeded, SerializationConflict):
            pass
        if rng.random() < 0.3:
            await follower.catch_up()

    for batch in range(12):
        await asyncio.gather(*(step(batch * 8 + i) for i in range(8)))
    await follower.catch_up()
    columns = index.columns
    async with database.read() as tx:
        for record in await THESE.all(tx, ids=hosts):
            for cell in record.inventories or []:
                at = columns.position[record.id, cell[0]]
                column = columns.classes[cell[0]]
                assert column.used[at] == cell[7]
                assert column.capacity[at] == int((cell[1] - cell[2]) * cell[6])
        sums = await tx.fetch(
            "SELECT i.provider_id, i.resource_class, i.used, coalesce(sum(a.used), 0)::bigint AS total FROM inventories i"
            " LEFT JOIN allocations a USING (provider_id, resource_class) GROUP BY 1, 2, 3"
        )
    assert all(row["used"] == row["total"] for row in sums)
