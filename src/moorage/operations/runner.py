"""The conductor's loop: claims operations that are ready, drives them side by side, holds their leases."""

import asyncio
import contextlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import structlog

from moorage.core.errors import Unavailable
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.operations import journal
from moorage.operations.definition import Definition
from moorage.operations.engine import Environment, Send, drive
from moorage.operations.faults import Crash, Faults, NoFaults
from moorage.operations.model import FencedOut, Operation
from moorage.store.database import Database
from moorage.store.errors import SerializationConflict
from moorage.store.signals import Signals, Subscription

log = get_logger(__name__)


class Runner:
    """One conductor.

    concurrency  operations driven at once; lease: seconds before another conductor may take over
    poll         seconds between looks without a signal, the safety net for deadlines and lost signals
    """

    def __init__(
        self,
        database: Database,
        signals: Signals,
        definitions: Iterable[Definition],
        app: Any,
        send: Send,
        *,
        concurrency: int = 12,
        lease: float = 30.0,
        poll: float = 1.0,
        faults: Faults | None = None,
        fuse: bool = True,
    ) -> None:
        table = {(d.kind, d.version): d for d in definitions}
        self.environment = Environment(database, table, app, send, faults or NoFaults(), fuse)
        self.owner = new_id()
        self._database = database
        self._signals = signals
        self._subscription: Subscription = signals.subscribe(journal.CHANNEL)
        self._kinds = sorted({kind for kind, _ in table})
        self._concurrency = concurrency
        self._lease = timedelta(seconds=lease)
        self._poll = poll
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to claim."""
        self._tasks = [
            asyncio.create_task(self._claim_loop(), name="conductor-claim"),
            asyncio.create_task(self._renew_loop(), name="conductor-renew"),
        ]

    async def stop(self) -> None:
        """Stop in order: what runs comes to its next record, then every lease is given up at once."""
        for task in self._tasks:
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=5)
        await self.kill()
        with contextlib.suppress(Unavailable):
            async with self._database.transaction() as tx:
                await journal.hand_over(tx, owner=self.owner)

    async def kill(self) -> None:
        """Stop as if killed: nothing is given up; for tests of take-over."""
        tasks = [*self._tasks, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._running = [], {}
        self._signals.unsubscribe(journal.CHANNEL, self._subscription)

    async def _claim_loop(self) -> None:
        while True:
            try:
                free = self._concurrency - len(self._running)
                claimed = await self._claim(free) if free > 0 else []
            except (Unavailable, SerializationConflict) as error:
                log.warning("conductor.claim_failed", error=str(error))
                await asyncio.sleep(0.5)
                continue
            for op in claimed:
                task = asyncio.create_task(self._drive(op), name=f"operation-{op.kind}")
                self._running[op.id] = task
            if not claimed or len(claimed) < free:
                await self._subscription.wait(self._poll)

    async def _claim(self, limit: int) -> list[Operation]:
        async with self._database.read() as tx:
            return await journal.claim(
                tx, owner=self.owner, kinds=self._kinds, limit=limit, lease=self._lease
            )

    async def _drive(self, op: Operation) -> None:
        bound = {"operation_id": op.id, "request_id": op.request_id or ""}
        with structlog.contextvars.bound_contextvars(**bound):
            try:
                await drive(self.environment, op)
                log.info("operation.recorded", kind=op.kind, state=op.state, step=op.step)
            except FencedOut:
                log.info("operation.fenced_out", kind=op.kind, step=op.step)
            except Crash:
                log.warning("operation.crash_injected", kind=op.kind, step=op.step)
            except (Unavailable, SerializationConflict) as error:
                # The lease runs out and the operation is claimed again, here or elsewhere.
                log.warning("operation.interrupted", kind=op.kind, step=op.step, error=str(error))
            except Exception:
                log.exception("operation.engine_failed", kind=op.kind, step=op.step)
            finally:
                self._running.pop(op.id, None)
                self._subscription.set()

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            if self._running:
                try:
                    async with self._database.transaction() as tx:
                        await journal.renew(tx, owner=self.owner, ids=list(self._running), lease=self._lease)
                except (Unavailable, SerializationConflict) as error:
                    log.warning("conductor.renew_failed", error=str(error))
