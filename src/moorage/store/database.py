"""The pool of connections, transactions and what they run after they have committed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import asyncpg
import msgspec

from moorage.core.log import get_logger
from moorage.store.errors import (
    CheckViolation,
    ForeignKeyViolation,
    SerializationConflict,
    StatementTimeout,
    StoreUnavailable,
    UniqueViolation,
    ValueRefused,
)

log = get_logger(__name__)
_MARGIN = 5.0
_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
# What PostgreSQL says when it, or this connection, is going, coming or full: classes 08, 53 and 57 of its codes, and
# writes on a server that is (still, or again) a standby.
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
# InternalClientError: among others, a statement sent while the server was saying good-bye.
LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, *_GONE)
"""What a connection that is gone may raise."""


class Commits:
    """How many transactions of a task (and of those it started) have been committed."""

    def __init__(self) -> None:
        self.count = 0


_commits: ContextVar[Commits | None] = ContextVar("commits", default=None)


@contextmanager
def counting_commits() -> Iterator[Commits]:
    """Count those that are made in the block: what has committed nothing can be begun again."""
    found = Commits()
    token = _commits.set(found)
    try:
        yield found
    finally:
        _commits.reset(token)


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

    async def copy_out(self, sql: str, form: str) -> bytes:
        """All rows of a query without parameters in a form of COPY, `text` or `binary`."""
        self.statements += 1
        chunks: list[bytes] = []

        async def take(chunk: bytes) -> None:
            chunks.append(chunk)

        try:
            await self.connection.copy_from_query(sql, output=take, format=form)
        except asyncpg.PostgresError as error:
            raise translate(error) from error
        return b"".join(chunks)

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


_CANNOT_STORE = (
    "The request has a text with the character NUL, a number beyond 64 bits, or a malformed regular expression; none can "
    "be stored or looked for."
)


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
        case (
            asyncpg.CharacterNotInRepertoireError()
            | asyncpg.UntranslatableCharacterError()
            | asyncpg.NumericValueOutOfRangeError()
            | asyncpg.InvalidRegularExpressionError()
        ):
            return ValueRefused(_CANNOT_STORE)
        case asyncpg.DataError() if isinstance(error.__cause__, OverflowError):
            return ValueRefused(_CANNOT_STORE)
        case asyncpg.SerializationError() | asyncpg.DeadlockDetectedError():
            return SerializationConflict("a concurrent change came between; try again")
        case asyncpg.QueryCanceledError() | asyncpg.LockNotAvailableError():
            return StatementTimeout(f"a statement took too long: {error}")
        case _ if isinstance(error, _GONE):
            return StoreUnavailable(f"the connection to PostgreSQL was lost: {error}")
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

    ``url`` is ``postgresql://…`` and may name several servers of which one may be written to:
    ``postgresql://a,b/moorage?target_session_attrs=read-write``. ``size`` bounds the connections of this process; a
    transaction that gets none within ``acquire_timeout`` seconds raises StoreUnavailable. A statement that runs longer
    than ``statement_timeout`` seconds raises StatementTimeout; so does one whose server has fallen silent. A transaction
    in which nothing is asked for ``idle_timeout`` seconds is ended: its process may be stopped or cut off,
    and its locks must hold nobody up.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = 16,
        acquire_timeout: float = 10.0,
        statement_timeout: float = 60.0,
        idle_timeout: float = 20.0,
    ) -> None:
        self.url = url
        self.size = size
        self.acquire_timeout = acquire_timeout
        self.statement_timeout = statement_timeout
        self.idle_timeout = idle_timeout
        self._pool: Any = None

    async def open(self) -> None:
        """Connect; raises StoreUnavailable when PostgreSQL does not answer."""
        try:
            self._pool = await asyncpg.create_pool(
                self.url,
                # None is kept for its own sake: asyncpg would go on trying by itself while PostgreSQL is away.
                min_size=0,
                max_size=self.size,
                init=_prepare_connection,
                reset=_keep_session,
                timeout=self.acquire_timeout,
                # The server's own timeout comes first; this one is for a server, or a way to it, that is gone.
                command_timeout=self.statement_timeout + _MARGIN,
                statement_cache_size=1024,
                max_cached_statement_lifetime=0,
                # JIT compilation costs more than it saves in statements this short. A plan is kept while its table
                # grows: one made for a table that is empty or small, by a statement or by the check of a foreign key,
                # would read all of it at every call until the table is next analysed. So what has an index uses it;
                # a statement on whole tables still reads them in their order where no index serves it.
                server_settings={
                    "jit": "off",
                    "enable_seqscan": "off",
                    "application_name": "moorage",
                    "statement_timeout": str(round(self.statement_timeout * 1000)),
                    "idle_in_transaction_session_timeout": str(round(self.idle_timeout * 1000)),
                },
            )
        except LOST as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        try:
            async with self.read() as tx:
                await tx.fetch("SELECT 1")
        except StoreUnavailable:
            await self.close()
            raise

    async def close(self) -> None:
        """Give up every connection."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()

    @property
    def connections(self) -> tuple[int, int]:
        """Connections of the pool that are in use, and that are open."""
        if self._pool is None:
            return 0, 0
        size: int = self._pool.get_size()
        return size - self._pool.get_idle_size(), size

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A read-write transaction; commits at the end of the block, rolls back when it raises.

        Where the connection is lost in the commit, StoreUnavailable leaves open whether it was committed.
        """
        connection = await self._acquire()
        try:
            tx = Tx(connection)
            with _lost(connection):
                async with connection.transaction():
                    yield tx
        finally:
            await self._pool_release(connection)
        if (commits := _commits.get()) is not None:
            commits.count += 1
        tx.run_after()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Tx]:
        """Statements that each see the newest committed state; nothing to commit."""
        connection = await self._acquire()
        try:
            with _lost(connection):
                yield Tx(connection)
        finally:
            await self._pool_release(connection)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Tx]:
        """Statements that all see one committed state; nothing can be written."""
        connection = await self._acquire()
        try:
            with _lost(connection):
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    yield Tx(connection)
        finally:
            await self._pool_release(connection)

    async def dedicated(self) -> Any:
        """A connection outside the pool, for LISTEN or an advisory lock; the caller closes it."""
        try:
            return await asyncpg.connect(
                self.url, timeout=self.acquire_timeout, server_settings={"application_name": "moorage"}
            )
        except LOST as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error

    async def _acquire(self) -> Any:
        pool = self._pool
        if pool is None:
            raise StoreUnavailable("the database is closed")
        try:
            return await pool.acquire(timeout=self.acquire_timeout)
        except TimeoutError as error:
            raise StoreUnavailable("no connection to PostgreSQL was free in time") from error
        except LOST as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error

    async def _pool_release(self, connection: Any) -> None:
        pool = self._pool
        if pool is not None:
            await pool.release(connection)
        else:
            connection.terminate()


def _closed(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # the pool has taken a closed connection back already
        return True


@contextmanager
def _lost(connection: Any) -> Iterator[None]:
    """What asyncpg raises when a connection goes, as StoreUnavailable; a conflict at the commit as ours."""
    try:
        yield
    except StatementTimeout:
        raise
    except StoreUnavailable as error:
        if isinstance(error.__cause__, _GONE):
            _give_up(connection)
        raise
    except LOST as error:
        if isinstance(error, asyncpg.InterfaceError) and not _closed(connection):
            raise  # a mistake of ours, such as an argument of the wrong type
        _give_up(connection)
        raise StoreUnavailable(f"the connection to PostgreSQL was lost: {error}") from error
    except asyncpg.PostgresError as error:
        found = translate(error)
        if found is error:
            raise
        raise found from error


def _give_up(connection: Any) -> None:
    """The next one goes to the server that may be written to by then: this one may have become a standby."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
