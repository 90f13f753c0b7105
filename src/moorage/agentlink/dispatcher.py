"""Delivery: from committed command rows to the polls of this process.

Thousands of polls wait here on futures; none of them costs a statement while it is idle. A command reaches
its host's poll by one of three ways:

- *hand-over*: the host polls this process, and the transaction that enqueued the command ran in this process.
  The row is inserted as delivered, and handed over in memory after the commit: no further statement.
- *fetch*: the row was inserted elsewhere as not delivered, with a NOTIFY. One statement takes the new rows of
  all hosts that wait here.
- *again*: a poll with ``after=0`` (an agent that has started, or lost an answer) gets all that is unfinished. A
  sweep does the same for commands delivered a minute ago without a result.

A poll acknowledges by ``after``, the highest ``seq`` of what came last, what the one before it took here. What is
not acknowledged in time went into a dead poll, or was never taken up: it is given back to the table, and whoever has
the host's poll by then fetches it if it still stands.

So delivery is at least once; the agents' journals make the effect once.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable

import msgspec

from moorage.agentlink import statements as sql
from moorage.agentlink.background import end
from moorage.agentlink.model import QueuedCommand
from moorage.core.errors import MoorageError, Unavailable
from moorage.core.log import get_logger
from moorage.store.database import Database
from moorage.store.signals import Signals
from moorage.wire.messages import Command

log = get_logger(__name__)
CHANNEL = "commands"
_GRACE = 5.0  # seconds between two polls within which a host still counts as polling here
_BEHIND = 1.0  # seconds a command may take from the table to the poll
_SWEEP = 30.0


class Handed(msgspec.Struct, frozen=True):
    """What a poll took away: ``seq`` of each command by id, and when."""

    seqs: dict[str, int]
    at: float


class Dispatcher:
    """The polls of one process. ``start`` before use, ``stop`` at the end."""

    def __init__(self, database: Database, signals: Signals, again_after: float = 60.0) -> None:
        self._database = database
        self._signals = signals
        self._again_after = again_after
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._polled: dict[str, float] = {}
        self._behind: dict[str, float] = {}
        self._ready: dict[str, list[Command]] = {}
        self._ready_since: dict[str, float] = {}
        self._handed: dict[str, Handed] = {}
        self._checked: dict[str, int] = {}
        self._wakes = 1
        self._stopped = False
        self._subscription = signals.subscribe(CHANNEL)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to fetch and to sweep."""
        self._stopped = False
        self._tasks = [
            asyncio.create_task(self._fetch_loop(), name="agentlink-fetch"),
            asyncio.create_task(self._sweep_loop(), name="agentlink-sweep"),
        ]

    async def stop(self) -> None:
        """End every poll with nothing, refuse those that still come, and give back what was not taken up."""
        self._stopped = True
        await end(*self._tasks)
        self._tasks = []
        for future in self._waiting.values():
            if not future.done():
                future.set_result(False)
        with contextlib.suppress(MoorageError):
            await self._give_back(self._untaken(list(self._ready)))

    def polls_here(self, host: str) -> bool:
        """Whether a command for ``host`` may be handed over in memory.

        After one that could not, for a moment no other is: they would overtake it.
        """
        now = time.monotonic()
        if now < self._behind.get(host, 0.0):
            return False
        here = host in self._waiting or now - self._polled.get(host, -_GRACE) < _GRACE
        if not here:
            self._behind[host] = now + _BEHIND
        return here

    def hand_over(self, host: str, commands: Iterable[Command]) -> None:
        """Committed commands, marked as delivered, for the host's poll that waits or comes next."""
        self._ready.setdefault(host, []).extend(commands)
        self._ready_since.setdefault(host, time.monotonic())
        future = self._waiting.get(host)
        if future is not None and not future.done():
            future.set_result(True)

    def end_poll(self, host: str) -> None:
        """Let the host's waiting poll return with nothing."""
        future = self._waiting.get(host)
        if future is not None and not future.done():
            future.set_result(False)

    async def poll(self, host: str, *, after: int, wait: float) -> list[Command]:
        """The host's next commands in order; empty after ``wait`` seconds. ``after``: the highest seq of what came last.

        Raises Unavailable once this process stops.
        """
        earlier = self._waiting.pop(host, None)
        if earlier is not None and not earlier.done():
            earlier.set_result(False)  # its connection is gone: an agent has one poll at a time
        handed = self._handed.pop(host, None)
        found: list[Command] = []
        if after == 0:
            found = await self._everything(host)
        elif handed is not None:
            await self._give_back([i for i, seq in handed.seqs.items() if seq > after])
        if not found:
            if host not in self._ready and not await self._wait(host, wait):
                return []
            found = self._take(host)
        self._polled[host] = time.monotonic()
        if found:
            self._handed[host] = Handed({c.id: c.seq for c in found}, self._polled[host])
        return found

    async def _wait(self, host: str, wait: float) -> bool:
        # True: look at what is ready, also after a time-out. False: this poll has been replaced, or was held at the end.
        if self._stopped:
            # Not with nothing, at once: a host that keeps its connection would ask again without a pause.
            raise Unavailable("this process stops", retry_after=1)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[host] = future
        if self._checked.get(host) != self._wakes:
            self._subscription.set()  # something was enqueued while this host did not poll
        try:
            async with asyncio.timeout(wait):
                return await future
        except TimeoutError:
            return True
        finally:
            if self._waiting.get(host) is future:
                del self._waiting[host]

    def _take(self, host: str) -> list[Command]:
        self._ready_since.pop(host, None)
        return sorted(self._ready.pop(host, ()), key=lambda c: c.seq)

    async def _everything(self, host: str) -> list[Command]:
        self._take(host)
        self._checked[host] = self._wakes
        async with self._database.transaction() as tx:
            rows = await sql.DELIVER_ALL.all(tx, host=host)
        self._polled[host] = time.monotonic()
        return sorted((row.to_wire() for row in rows), key=lambda c: c.seq)

    async def _fetch_loop(self) -> None:
        while True:
            if await self._subscription.wait(_SWEEP):
                self._wakes += 1
            try:
                await self._fetch()
            except MoorageError as error:
                log.warning("commands.fetch_failed", error=error.message)
                await asyncio.sleep(1)
                self._subscription.set()

    async def _fetch(self) -> None:
        hosts = list(self._waiting)
        if not hosts:
            return
        for host in hosts:
            self._checked[host] = self._wakes
        async with self._database.transaction() as tx:
            rows = await sql.DELIVER_NEW.all(tx, hosts=hosts)
        self._spread(rows)

    def _spread(self, rows: list[QueuedCommand]) -> None:
        for row in rows:
            self.hand_over(row.host, [row.to_wire()])

    async def _sweep_loop(self) -> None:
        while True:
            await asyncio.sleep(_GRACE)
            try:
                await self._sweep()
            except MoorageError as error:
                log.warning("commands.sweep_failed", error=error.message)

    async def _sweep(self) -> None:
        now = time.monotonic()
        ids = self._untaken([h for h, since in self._ready_since.items() if now - since > _GRACE])
        for host in [h for h, handed in self._handed.items() if now - handed.at > _GRACE]:
            ids += self._handed.pop(host).seqs
        await self._give_back(ids)
        self._behind = {h: until for h, until in self._behind.items() if until > now}
        self._polled = {h: at for h, at in self._polled.items() if now - at < _SWEEP}
        if hosts := list(self._waiting):
            async with self._database.transaction() as tx:
                rows = await sql.DELIVER_AGAIN.all(tx, hosts=hosts, seconds=self._again_after)
            self._spread(rows)

    def _untaken(self, hosts: list[str]) -> list[str]:
        return [command.id for host in hosts for command in self._take(host)]

    async def _give_back(self, ids: list[str]) -> None:
        if ids:
            async with self._database.transaction() as tx:
                await sql.GIVE_BACK.run(tx, ids=ids)
                await tx.notify(CHANNEL)
