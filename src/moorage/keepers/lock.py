"""One holder at a time: an advisory lock of PostgreSQL, held by a transaction of its own.

The lock lives as long as the pass it protects: a process that is killed loses its connection and with it the lock, so
there is nothing to clean up and no lease to wait for.
"""

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy as sa

from moorage.store.database import Database
from moorage.store.statement import Statement

# The first key tells keepers' locks from those of anybody else in the database.
_SPACE = 0x6B656570
_TRY: Statement[bool] = Statement(
    sa.select(
        sa.func.pg_try_advisory_xact_lock(
            sa.bindparam("space", type_=sa.Integer), sa.bindparam("key", type_=sa.Integer)
        )
    )
)


class AdvisoryLock:
    """The lock of one name in one database."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        # Signed 32 bits, as PostgreSQL's second key is.
        self._key = zlib.crc32(name.encode()) - (1 << 31)

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[bool]:
        """Whether the lock is ours for the length of the block; never waits for it."""
        async with self._database.transaction() as tx:
            yield bool(await _TRY.scalar(tx, space=_SPACE, key=self._key))
