"""Random writers at once, in one process and in several: index and ledger agree, and no claim grows over capacity."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import Any

from moorage.core.ids import new_id
from moorage.placement.following import Follower
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import Inventory
from moorage.store.database import Database
from tests.support.chaos import Chaos, differences
from tests.support.mirror import contradictions

# A sequence counts what was caught also where the writer's transaction is rolled back and its error handled. Deadlocks,
# which moves and reshapes may end in, are found soon.
WATCH = (
    "CREATE SEQUENCE grown_over_capacity",
    """
    CREATE FUNCTION refuse_growth() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM nextval('grown_over_capacity');
        RAISE EXCEPTION 'usage of % on % grew to %, over its capacity', NEW.resource_class, NEW.provider_id, NEW.used;
    END $$
    """,
    """
    CREATE TRIGGER refuse_growth BEFORE UPDATE ON inventories FOR EACH ROW
    WHEN (NEW.used > OLD.used AND NEW.used > (NEW.total - NEW.reserved) * NEW.allocation_ratio)
    EXECUTE FUNCTION refuse_growth()
    """,
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''50ms''', current_database()); END $$",
)


async def watched(database: Database) -> list[str]:
    """Five hosts, in a database that refuses usage that grows over capacity."""
    ledger = Ledger()
    sizes = {"VCPU": Inventory(total=8, allocation_ratio=1.5), "DISK_GB": Inventory(total=50)}
    hosts = [new_id() for _ in range(5)]
    async with database.transaction() as tx:
        for statement in WATCH:
            await tx.execute(statement)
        for host in hosts:
            await ledger.ensure_provider(tx, uuid=host, name=host)
            await ledger.set_inventory(tx, host, sizes)
    return hosts


async def agree(database: Database, index: Index) -> None:
    """Index and ledger are equal, a new index too; the ledger agrees with itself, and no usage grew over capacity."""
    assert await differences(database, index) == []
    fresh = Index()
    await Follower(database, fresh, None).catch_up()
    assert await differences(database, fresh) == []
    assert await contradictions(database) == []
    async with database.read() as tx:
        (caught,) = await tx.fetch("SELECT is_called FROM grown_over_capacity")
        (held,) = await tx.fetch("SELECT count(*) FROM allocations")
    assert not caught["is_called"]
    assert held["count"]


async def test_index_equals_ledger_after_random_changes(database: Database) -> None:
    index = Index()
    follower = Follower(database, index, None)
    await follower.catch_up()
    chaos = Chaos(await watched(database), index, seed=11)
    for _ in range(15):
        await asyncio.gather(*(chaos.step(database) for _ in range(8)))
        await follower.catch_up()
        assert await differences(database, index) == []
    await agree(database, index)


@contextlib.asynccontextmanager
async def chaotic(url: str, hosts: list[str]) -> AsyncIterator[list[Process]]:
    """Three processes of writers; none outlives the test."""
    processes: list[Process] = []
    try:
        for seed in range(3):
            command = (sys.executable, "-m", "tests.support.chaos", url, str(seed), *hosts)
            processes.append(
                await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=1 << 24)
            )
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def ask(processes: list[Process], command: bytes) -> list[Any]:
    """What each of them answers, once all have."""

    async def one(process: Process) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(command + b"\n")
        answer = await process.stdout.readline()
        assert answer, "a process of writers has ended; its own output says why"
        return json.loads(answer)

    return await asyncio.gather(*(one(process) for process in processes))


async def test_processes_that_write_at_random_leave_index_and_ledger_equal(
    database: Database, database_url: str
) -> None:
    hosts = await watched(database)
    index = Index()
    follower = Follower(database, index, None)
    await follower.catch_up()
    every = {act.__name__ for act in Chaos(hosts, index, 0).acts} | {"together"}
    async with chaotic(database_url, hosts) as processes:
        for burst in range(1, 60):
            work = asyncio.create_task(ask(processes, b"work"))
            while not work.done():
                await follower.catch_up()
                await asyncio.sleep(0.02)
            missed = {name for name in every if not any(counts.get(name) for counts in await work)}
            await follower.catch_up()
            await agree(database, index)
            assert await ask(processes, b"compare") == [[], [], []]
            if burst >= 4 and not missed:
                break
    assert missed == set(), "acts that never succeeded"
