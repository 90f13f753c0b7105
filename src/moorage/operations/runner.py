"""The conductor's loops: claims operations that are ready, drives them side by side, holds their leases.

A quarter of its places (at least one, where it has two) is kept for urgent operations: whatever number of others is
ready or slow, a delete begins.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from moorage.core.errors import MoorageError, Unavailable
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.operations import queue
from moorage.operations.definition import Definition
from moorage.operations.engine import drive
from moorage.operations.environment import Environment, Send
from moorage.operations.faults import Crash, Faults, NoFaults
from moorage.operations.metrics import OperationMetrics
from moorage.operations.model import FINISHED, FencedOut, Operation
from moorage.operations.room import Room
from moorage.operations.versions import Catalogue
from moorage.store.database import Database
from moorage.store.errors import SerializationConflict, UniqueViolation
from moorage.store.signals import Signals, Subscription

log = get_logger(__name__)
_LOOK_FOR_UNKNOWN = 60.0  # seconds


class Runner:
    """One conductor.

    concurrency  operations driven at once; lease: seconds before another conductor may take over
    poll         seconds between looks without a signal, the safety net for deadlines and lost signals
    per_host     operations that are not urgent and under way at one host; at_hosts: at all of them; 0: no limit
    silent, deadlines, look: see Environment
    metrics      where what is done here is counted; the definitions' steps are
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
        per_host: int = 0,
        at_hosts: int = 0,
        silent: Callable[[str], bool] | None = None,
        deadlines: Mapping[str, float] | None = None,
        look: float = 15.0,
        metrics: OperationMetrics | None = None,
        faults: Faults | None = None,
        fuse: bool = True,
    ) -> None:
        metrics = metrics or OperationMetrics(CollectorRegistry())
        self.environment = Environment(
            database=database,
            catalogue=Catalogue(metrics.measured(definitions)),
            app=app,
            send=send,
            silent=silent or (lambda _host: False),
            deadlines=deadlines or {},
            faults=faults or NoFaults(),
            fuse=fuse,
            look=look,
            metrics=metrics,
            room=Room(database, per_host),
        )
        self.owner = new_id()
        self.unknown: list[tuple[str, int, int]] = []
        """(kind, version, how many) of open operations that no definition here fits, as last seen."""
        self._database = database
        self._signals = signals
        self._subscription: Subscription = signals.subscribe(queue.CHANNEL)
        self._known = self.environment.catalogue.known
        self._concurrency = concurrency
        self._reserved = min(max(1, concurrency // 4), concurrency - 1)
        self._at_hosts = at_hosts
        self._freed = asyncio.Event()
        self._lease = timedelta(seconds=lease)
        self._poll = poll
        self._running: dict[asyncio.Task[None], str] = {}
        self._interrupted: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to claim."""
        loops = {
            "conductor-claim": self._claim_loop,
            "conductor-renew": self._renew_loop,
            "conductor-room": self._room_loop,
            "conductor-unknown": self._unknown_loop,
        }
        self._tasks = [asyncio.create_task(loop(), name=name) for name, loop in loops.items()]

    async def stop(self, *, within: float = 5.0) -> None:
        """Stop in order: what runs has ``within`` seconds to come to its next record, then every lease is given up."""
        for task in self._tasks:
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=within)
        await self.kill()
        with contextlib.suppress(Unavailable):
            async with self._database.transaction() as tx:
                await queue.hand_over(tx, owner=self.owner)

    async def kill(self) -> None:
        """Stop as if killed: nothing is given up; for tests of take-over."""
        tasks = [*self._tasks, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._running = [], {}
        self._signals.unsubscribe(queue.CHANNEL, self._subscription)

    async def _claim_loop(self) -> None:
        while True:
            free = self._concurrency - len(self._running)
            try:
                if self._interrupted:
                    await self._give_back()
                claimed = await self._claim(free) if free > 0 else []
            except Exception as error:
                known = isinstance(error, Unavailable | SerializationConflict | UniqueViolation)
                log.warning("conductor.claim_failed", error=str(error), exc_info=None if known else error)
                await asyncio.sleep(0.5)
                continue
            for op in claimed:
                task = asyncio.create_task(self._drive(op), name=f"operation-{op.kind}")
                self._running[task] = op.id
                task.add_done_callback(self._ended)
            if not claimed or len(claimed) < free:
                await self._subscription.wait(self._poll)

    async def _claim(self, free: int) -> list[Operation]:
        async with self._database.read() as tx:
            return await queue.claim(
                tx,
                owner=self.owner,
                known=self._known,
                limit=free,
                normal_limit=free - self._reserved,
                at_hosts=self._at_hosts,
                lease=self._lease,
            )

    async def _give_back(self) -> None:
        ids = self._interrupted - set(self._running.values())
        async with self._database.transaction() as tx:
            await queue.give_back(tx, owner=self.owner, ids=list(ids))
        self._interrupted.clear()

    async def _drive(self, op: Operation) -> None:
        bound = {"operation_id": op.id, "request_id": op.request_id or ""}
        with structlog.contextvars.bound_contextvars(**bound):
            try:
                await drive(self.environment, op)
                log.info("operation.recorded", kind=op.kind, state=op.state, step=op.step)
                if op.state in FINISHED:
                    self.environment.metrics.ended(op)
            except FencedOut:
                log.info("operation.fenced_out", kind=op.kind, step=op.step)
            except Crash:
                log.warning("operation.crash_injected", kind=op.kind, step=op.step)
            except (Unavailable, SerializationConflict) as error:
                # Given back as soon as the database answers; at the latest the lease runs out.
                self._interrupted.add(op.id)
                log.warning("operation.interrupted", kind=op.kind, step=op.step, error=str(error))
            except Exception:
                # The lease is the pause before it is tried again.
                log.exception("operation.engine_failed", kind=op.kind, step=op.step)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if self.environment.room.wanted:
            self._freed.set()
        self._subscription.set()

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            if self._running:
                try:
                    async with self._database.transaction() as tx:
                        ids = list(self._running.values())
                        await queue.renew(tx, owner=self.owner, ids=ids, lease=self._lease)
                except Exception as error:  # noqa: BLE001  a conductor that does not renew loses what it does
                    log.warning("conductor.renew_failed", error=str(error))

    async def _room_loop(self) -> None:
        """Tell operations that wait for room at hosts: as places become free here, and with every poll."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._freed.wait()
            self._freed.clear()
            try:
                if await self.environment.room.wake():
                    self._subscription.set()
            except (MoorageError, SerializationConflict) as error:
                log.warning("conductor.wake_failed", error=str(error))

    async def _unknown_loop(self) -> None:
        """Say which operations wait for a conductor of another release."""
        while True:
            try:
                async with self._database.read() as tx:
                    found = await queue.unknown(tx, self._known)
            except MoorageError as error:
                log.warning("conductor.unknown_failed", error=error.message)
            else:
                for kind, version, count in sorted(set(found) - set(self.unknown)):
                    log.warning("operation.unknown", kind=kind, version=version, count=count)
                self.unknown = found
            await asyncio.sleep(_LOOK_FOR_UNKNOWN)
