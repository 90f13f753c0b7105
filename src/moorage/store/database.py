"""The pool of connections, transactions and what they run after they have committed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from moorage.core.log import get_logger
from moorage.store.errors import (
    CheckViolation,
    ForeignKeyViolation,
    SerializationConflict,
    StoreUnavailable,
    UniqueViolation,
)

log = get_logger(__name__)
_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_LOST = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.CannotConnectNowError)


class Tx:
    """One transaction on one connection; statements run on it in order."""

    __slots__ = ("_after", "connection", "statements")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.statements = 0
        self._after: list[Callable[[], None]] = []

    async def fetch(self, sql: str, args: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""
        self.statements += 1
        try:
            rows: list[Any] = await self.connection.fetch(sql, *args)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        return rows

    async def execute(self, sql: str, args: Sequence[Any] = ()) -> int:
        """Run a write; the number of rows it touched."""
        self.statements += 1
        try:
            status: str = await self.connection.execute(sql, *args)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        tail = status.rpartition(" ")[2]
        return int(tail) if tail.isdigit() else 0

    async def execute_many(self, sql: str, args: Iterable[Sequence[Any]]) -> None:
        """Run a write once for each row of arguments, pipelined."""
        self.statements += 1
        try:
            await self.connection.executemany(sql, args)
        except asyncpg.PostgresError as error:
            raise translate(error) from error

    async def notify(self, channel: str, payload: str = "") -> None:
        """Wake the listeners of ``channel`` when this transaction commits."""
        await self.execute("SELECT pg_notify($1, $2)", (channel, payload))

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Statements whose failure does not spoil the transaction: they alone are rolled back."""
        async with self.connection.transaction():
            yield

    def on_commit(self, action: Callable[[], None]) -> None:
        """Call ``action`` in this process after the commit; not at all after a roll-back."""
        self._after.append(action)

    def run_after(self) -> None:
        """Called by the database once the commit is known."""
        for action in self._after:
            action()


def translate(error: asyncpg.PostgresError) -> Exception:
    """The typed form of a PostgreSQL error; the error itself where there is none."""
    constraint = getattr(error, "constraint_name", None) or ""
    table = getattr(error, "table_name", None) or "the database"
    match error:
        case asyncpg.UniqueViolationError():
            return UniqueViolation(f"{table}: the key exists already ({constraint})", constraint=constraint)
        case asyncpg.ForeignKeyViolationError():
            return ForeignKeyViolation(
                f"{table}: a reference does not hold ({constraint})", constraint=constraint
            )
        case asyncpg.CheckViolationError():
            return CheckViolation(f"{table}: a value is out of range ({constraint})", constraint=constraint)
        case asyncpg.SerializationError() | asyncpg.DeadlockDetectedError():
            return SerializationConflict("a concurrent change came between; try again")
        case _:
            return error


async def _prepare_connection(connection: Any) -> None:
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\x01" + _encode_json(value),
        decoder=lambda data: _decode_json(data[1:]),
        format="binary",
    )
    for name in ("inet", "cidr", "macaddr"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=str, format="text")


async def _keep_session(_connection: Any) -> None:
    # Sessions here carry no state between transactions, so asyncpg's reset query on release is left out.
    return


class Database:
    """A PostgreSQL database and its pool. ``await open()`` first, ``await close()`` last.

    ``url`` is ``postgresql://…``; ``size`` bounds the connections of this process; a transaction that gets
    no connection within ``acquire_timeout`` seconds raises StoreUnavailable.
    """

    def __init__(self, url: str, *, size: int = 16, acquire_timeout: float = 10.0) -> None:
        self.url = url
        self.size = size
        self.acquire_timeout = acquire_timeout
        self._pool: Any = None

    async def open(self) -> None:
        """Connect; raises StoreUnavailable when PostgreSQL does not answer."""
        try:
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=self.size,
                init=_prepare_connection,
                reset=_keep_session,
                statement_cache_size=1024,
                max_cached_statement_lifetime=0,
                # JIT compilation costs more than it saves in statements this short.
                server_settings={"jit": "off", "application_name": "moorage"},
            )
        except _LOST as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error

    async def close(self) -> None:
        """Give up every connection."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A read-write transaction; commits at the end of the block, rolls back when it raises."""
        connection = await self._acquire()
        try:
            tx = Tx(connection)
            try:
                async with connection.transaction():
                    yield tx
            except asyncpg.SerializationError as error:
                raise translate(error) from error
            except _LOST as error:
                raise StoreUnavailable(f"the connection to PostgreSQL was lost: {error}") from error
        finally:
            await self._pool_release(connection)
        tx.run_after()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Tx]:
        """Statements that each see the newest committed state; nothing to commit."""
        connection = await self._acquire()
        try:
            yield Tx(connection)
        except _LOST as error:
            raise StoreUnavailable(f"the connection to PostgreSQL was lost: {error}") from error
        finally:
            await self._pool_release(connection)

    async def dedicated(self) -> Any:
        """A connection outside the pool, for LISTEN or an advisory lock; the caller closes it."""
        try:
            return await asyncpg.connect(self.url, server_settings={"application_name": "moorage"})
        except _LOST as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error

    async def _acquire(self) -> Any:
        try:
            return await self._pool.acquire(timeout=self.acquire_timeout)
        except TimeoutError as error:
            raise StoreUnavailable("no connection to PostgreSQL was free in time") from error
        except _LOST as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error

    async def _pool_release(self, connection: Any) -> None:
        pool = self._pool
        if pool is not None:
            await pool.release(connection)
        else:
            connection.terminate()
