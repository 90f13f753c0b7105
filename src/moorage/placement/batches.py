"""Claims that arrive together share a transaction.

While a batch is being written, claims of new consumers gather; the next batch takes them all, and one statement decides
for each of them (`claims`). One that is not granted there is not refused yet, and goes its own way, where a refusal has its
reasons. A claim that comes alone is written at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence

from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.placement import claims
from moorage.placement.model import ConsumerWrite, UsedRow
from moorage.store.database import Database

log = get_logger(__name__)

MOST = 64
"""Claims in one batch."""


class ClaimQueue:
    """Gathers the claims of a process. `taken` is told new usage once it is committed."""

    def __init__(self, database: Database, taken: Callable[[Sequence[UsedRow]], None]) -> None:
        self._database = database
        self._taken = taken
        self._waiting: deque[tuple[ConsumerWrite, asyncio.Future[bool]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def claim(self, write: ConsumerWrite) -> bool:
        """Claim for a new consumer; True when it was committed. False is no refusal: ask the ledger alone.

        Raises Unavailable when the database does not answer; the claim may then have been committed or not.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if self._worker is None:
            # In a context of its own: it works for many requests, not for the one that happens to start it.
            self._worker = asyncio.create_task(
                self._work(), name="placement-claims", context=contextvars.Context()
            )
        return await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                try:
                    granted = await self._write([write for write, _ in batch])
                except Unavailable as error:
                    for _, done in batch:
                        if not done.done():
                            done.set_exception(error)
                    continue
                for write, done in batch:
                    # Whoever asked may have gone.
                    if not done.done():
                        done.set_result(write.consumer_id in granted)
        finally:
            self._worker = None
            for _, done in self._waiting:
                done.cancel()
            self._waiting.clear()

    def _next(self) -> list[tuple[ConsumerWrite, asyncio.Future[bool]]]:
        """Take waiting claims in their order, no consumer twice."""
        batch: dict[str, tuple[ConsumerWrite, asyncio.Future[bool]]] = {}
        while self._waiting and len(batch) < MOST and self._waiting[0][0].consumer_id not in batch:
            claim = self._waiting.popleft()
            batch[claim[0].consumer_id] = claim
        return list(batch.values())

    async def _write(self, writes: Sequence[ConsumerWrite]) -> frozenset[str]:
        try:
            async with self._database.transaction() as tx:
                used, granted = await claims.claim_all(tx, writes)
                tx.on_commit(lambda: self._taken(used))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  one of them spoilt it for all: each alone will say what is wrong
            log.debug("placement.batch_spoilt", claims=len(writes), error=str(error))
            return frozenset()
        return granted
