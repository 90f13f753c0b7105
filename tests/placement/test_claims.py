"""Claims against a real PostgreSQL: all or nothing, and never over capacity, whoever races."""

from __future__ import annotations

import asyncio

import pytest

from moorage.core.ids import new_id
from moorage.placement.errors import (
    CapacityExceeded,
    ConcurrentUpdate,
    ConsumerExists,
    NoInventory,
    UnknownNames,
)  # fmt: skip
from moorage.placement.following import Follower
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import ConsumerWrite, Inventory
from moorage.placement.reads import PROVIDER_USAGES
from moorage.placement.service import PlacementService
from moorage.store.database import Database

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


async def whole_reads(database: Database) -> dict[str, int]:
    """How many rows of each table were read by reading all of it."""
    read = (
        "SELECT relname, seq_tup_read FROM pg_stat_user_tables"
        " WHERE relname IN ('allocations', 'consumers', 'inventories', 'placement_changes', 'resource_providers')"
    )
    async with database.read() as tx:
        await tx.fetch("SELECT pg_stat_force_next_flush()")
        return {row["relname"]: row["seq_tup_read"] for row in await tx.fetch(read)}


async def test_claims_read_no_table_as_a_whole_though_all_were_empty_once(database_url: str) -> None:
    # One connection, which keeps every plan that was made while the tables were empty.
    database = Database(database_url, size=1)
    await database.open()
    try:
        index = Index()
        follower = Follower(database, index, None)
        async with database.read() as tx:
            await tx.execute("ANALYZE")
        await follower.catch_up()
        uuid = await provider(database, VCPU=Inventory(total=1000))
        before = await whole_reads(database)
        for _ in range(20):
            await claim(database, {uuid: {"VCPU": 1}})
            await follower.catch_up()
        assert index.columns.classes["VCPU"].used.tolist() == [20]
        assert await whole_reads(database) == before
    finally:
        await database.close()


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


@pytest.fixture
async def hosts(database: Database) -> list[str]:
    """300 hosts with one place each."""
    found = [new_id() for _ in range(300)]
    async with database.transaction() as tx:
        for uuid in found:
            await LEDGER.ensure_provider(tx, uuid=uuid, name=uuid)
            await LEDGER.set_inventory(
                tx, uuid, {"VCPU": Inventory(total=1), "MEMORY_MB": Inventory(total=64)}
            )
    return found


@pytest.mark.parametrize("clients", [2, 8, 32])
async def test_the_last_place_is_won_once(database: Database, hosts: list[str], clients: int) -> None:
    # As PUT /allocations does it, in two processes' services; OpenStack's lets two win on most of the hosts.
    services = [PlacementService(database), PlacementService(database)]
    gate = asyncio.Semaphore(2 * clients)

    async def attempt(host: str, service: PlacementService) -> bool:
        write = ConsumerWrite(
            consumer_id=new_id(), allocations={host: {"VCPU": 1, "MEMORY_MB": 8}}, project_id="p", user_id="u",
            check_generation=True,
        )  # fmt: skip
        async with gate:
            try:
                await service.write([write])
            except CapacityExceeded:
                return False
        return True

    results = await asyncio.gather(
        *(attempt(host, services[number % 2]) for host in hosts for number in range(clients))
    )
    won = [sum(results[at : at + clients]) for at in range(0, len(results), clients)]
    assert won == [1] * len(hosts)
    async with database.read() as tx:
        rows = await tx.fetch("SELECT resource_class, used, count(*) FROM inventories GROUP BY 1, 2")
        consumers = await tx.fetch("SELECT count(*) FROM consumers")
    assert {tuple(row) for row in rows} == {("VCPU", 1, 300), ("MEMORY_MB", 8, 300)}
    assert consumers[0][0] == 300


async def test_claims_that_come_together_share_transactions_and_hurt_each_other_not(
    database: Database,
) -> None:
    service = PlacementService(database)
    host = await provider(database, VCPU=Inventory(total=10), DISK_GB=Inventory(total=100, step_size=10))
    known = await claim(database, {host: {"VCPU": 1}})

    def write(amounts: dict[str, int], consumer: str | None = None) -> ConsumerWrite:
        return ConsumerWrite(
            consumer_id=consumer or new_id(), allocations={host: amounts}, project_id="p", user_id="u",
            check_generation=True,
        )  # fmt: skip

    good = [write({"VCPU": 1, "DISK_GB": 10}) for _ in range(8)]
    bad = {
        "too much": (write({"VCPU": 11}), CapacityExceeded),
        "not a multiple": (write({"VCPU": 1, "DISK_GB": 5}), CapacityExceeded),
        "no such class": (write({"VCPU": 1, "CUSTOM_NO": 1}), UnknownNames),
        "not here": (write({"VCPU": 1, "MEMORY_MB": 1}), NoInventory),
        "exists": (write({"VCPU": 1}, known), ConcurrentUpdate),
    }
    # The first goes alone; the others gather meanwhile.
    asked = [good[0], *(wrong for wrong, _ in bad.values()), *good[1:]]
    results = await asyncio.gather(*(service.write([one]) for one in asked), return_exceptions=True)
    assert [type(result) for result in results[1:6]] == [error for _, error in bad.values()]
    assert [*results[:1], *results[6:]] == [None] * 8
    assert await used(database, host) == {"VCPU": 9, "DISK_GB": 80}
    async with database.read() as tx:
        (found,) = await tx.fetch("SELECT count(DISTINCT xmin::text), count(*) FROM consumers")
        (generation,) = await tx.fetch("SELECT generation FROM resource_providers")
    assert found[0] < found[1] == 9
    # Set once, claimed nine times.
    assert generation[0] == 10


async def test_of_two_claims_of_one_consumer_at_once_one_wins(database: Database) -> None:
    service = PlacementService(database)
    host = await provider(database, VCPU=Inventory(total=10))
    consumer = new_id()
    asked = [
        ConsumerWrite(
            consumer_id=consumer, allocations={host: {"VCPU": 1}}, project_id="p", user_id="u",
            check_generation=True,
        )
        for _ in range(5)
    ]  # fmt: skip
    results = await asyncio.gather(*(service.write([one]) for one in asked), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["ConcurrentUpdate"] * 4 + ["NoneType"]
    assert await used(database, host) == {"VCPU": 1}


async def test_all_that_fit_succeed_on_one_host(database: Database) -> None:
    host = await provider(database, VCPU=Inventory(total=40))
    await asyncio.gather(*(claim(database, {host: {"VCPU": 2}}) for _ in range(20)))
    assert await used(database, host) == {"VCPU": 40}
