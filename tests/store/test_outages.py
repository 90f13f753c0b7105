"""PostgreSQL goes, is full, or takes too long: every way of it is told as StoreUnavailable, and passes."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from moorage.store.database import Database
from moorage.store.errors import SerializationConflict, StatementTimeout, StoreUnavailable
from moorage.store.signals import Signals

_SEVER = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.mark.parametrize("where", ["idle", "statement", "transaction", "commit", "read"])
async def test_a_severed_connection_is_told_as_unavailable_and_replaced(
    database: Database, admin: asyncpg.Connection, where: str
) -> None:
    async def work() -> None:
        if where == "read":
            async with database.read() as tx:
                await admin.execute(_SEVER)
                await tx.fetch("SELECT 1")
            return
        async with database.transaction() as tx:
            await tx.execute("CREATE TEMPORARY TABLE t (n integer)")
            if where == "statement":
                sleeping = asyncio.ensure_future(tx.fetch("SELECT pg_sleep(30)"))
                while not await admin.fetch(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' "
                    "AND datname = current_database()"
                ):
                    await asyncio.sleep(0.01)
                await admin.execute(_SEVER)
                await sleeping
            await admin.execute(_SEVER)
            if where == "transaction":
                await tx.fetch("SELECT 1")

    if where == "idle":
        async with database.read() as tx:
            await tx.fetch("SELECT 1")
        await admin.execute(_SEVER)
    else:
        with pytest.raises(StoreUnavailable):
            await work()
    # A connection that was closed while it was idle may be noticed by the first statement on it.
    async with asyncio.timeout(120):
        while True:
            try:
                async with database.transaction() as tx:
                    assert await tx.fetch("SELECT 1")
            except StoreUnavailable:
                await asyncio.sleep(0.05)
                continue
            break


async def test_a_statement_that_takes_too_long_is_ended(database_url: str) -> None:
    database = Database(database_url, statement_timeout=1.5)
    await database.open()
    with pytest.raises(StatementTimeout):
        async with database.transaction() as tx:
            await tx.fetch("SELECT pg_sleep(30)")
    async with database.read() as tx:
        assert await tx.fetch("SELECT 1")
    await database.close()


async def test_who_gets_no_connection_in_time_is_told_so(database_url: str) -> None:
    database = Database(database_url, size=1, acquire_timeout=1.0)
    await database.open()
    async with database.read():
        with pytest.raises(StoreUnavailable) as caught:
            async with database.read():
                pytest.fail("there was one connection, and it was taken")
    assert caught.value.status == 503
    assert caught.value.retry_after > 0
    await database.close()


async def test_a_server_without_connections_to_give_is_unavailable(
    database_url: str, admin: asyncpg.Connection
) -> None:
    name, role = await admin.fetchval("SELECT current_database()"), f"few_{os.getpid()}"
    await admin.execute(f"CREATE ROLE {role} LOGIN")
    try:
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
        with pytest.raises(StoreUnavailable):
            await Database(database_url.replace("postgres@", f"{role}@")).open()
    finally:
        await admin.execute(f"DROP ROLE {role}")


async def test_a_deadlock_is_a_conflict_that_can_be_run_again(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE locked (n integer PRIMARY KEY)")
        await tx.execute("INSERT INTO locked VALUES (1), (2)")
    first_done, second_done = asyncio.Event(), asyncio.Event()

    async def lock(mine: int, other: int, done: asyncio.Event, wait: asyncio.Event) -> None:
        async with database.transaction() as tx:
            await tx.execute("UPDATE locked SET n = n WHERE n = $1", (mine,))
            done.set()
            await wait.wait()
            await tx.execute("UPDATE locked SET n = n WHERE n = $1", (other,))

    ends = await asyncio.gather(
        lock(1, 2, first_done, second_done), lock(2, 1, second_done, first_done), return_exceptions=True
    )
    assert sorted(type(e) for e in ends if e is not None) == [SerializationConflict]


async def test_signals_come_again_after_the_listening_connection_was_severed(
    database: Database, admin: asyncpg.Connection
) -> None:
    signals = Signals(database)
    subscription = signals.subscribe("things")
    await signals.start()
    assert await subscription.wait(120)
    for _ in range(2):
        await admin.execute(_SEVER)
        # What was missed meanwhile is made good: everybody is woken once the connection is back.
        assert await subscription.wait(120)
        await admin.execute("SELECT pg_notify('things', '')")
        assert await subscription.wait(120)
    await signals.stop()


class Leaving(Database):
    """The first connection for listening fails as one does that is used while its server says good-bye."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(url)
        self.errors = [error]

    async def dedicated(self) -> Any:
        connection = await super().dedicated()
        return connection if not self.errors else _Failing(connection, self.errors.pop())


class _Failing:
    def __init__(self, connection: Any, error: Exception) -> None:
        self._connection = connection
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def add_listener(self, *_: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.AdminShutdownError("terminating connection due to administrator command"),
        ConnectionResetError(),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_signals_come_again_however_the_listening_connection_fails(
    database_url: str, admin: asyncpg.Connection, error: Exception
) -> None:
    database = Leaving(database_url, error)
    await database.open()
    signals = Signals(database)
    subscription = signals.subscribe("things")
    await signals.start()
    assert await subscription.wait(120)
    await admin.execute("SELECT pg_notify('things', '')")
    assert await subscription.wait(120)
    await signals.stop()
    await database.close()
