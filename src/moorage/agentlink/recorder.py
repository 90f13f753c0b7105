"""Recording what hosts say: each result once, many hosts in one transaction when they come at once.

A few transactions run at a time. What arrives while all of them are busy is taken together by the next: an idle
cloud records each result at once, a busy one spends one commit on many. When a shared transaction fails, its items
are recorded one by one, so that one that cannot be recorded holds up neither its host's others nor another host.

A host that says of a command that it is old is right where its row is finished: it was taken back. Where the row still
stands, the numbers of the queue have gone back (its database was restored, or lost its last commits with its server),
and the command is queued again under the next number after the one that the host names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from moorage.agentlink import statements as sql
from moorage.agentlink.errors import CommandUnknown
from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict
from moorage.wire.coding import plain
from moorage.wire.messages import COMMAND_OLD, Event, Result, Uplink

log = get_logger(__name__)
OnResult = Callable[[Tx, Result], Awaitable[None]]
OnEvent = Callable[[Tx, str, Event], Awaitable[None]]
_AT_ONCE = 3
_BATCH = 64
_ATTEMPTS = 5
_HIGHEST = 1 << 62


class Said(msgspec.Struct, frozen=True, eq=False):
    """One host's uplink."""

    host: str
    uplink: Uplink

    def singly(self) -> "list[Said]":
        """The same, one item each."""
        results = [Uplink(results=[r]) for r in self.uplink.results]
        return [Said(self.host, u) for u in results + [Uplink(events=[e]) for e in self.uplink.events]]


class Recorder:
    """``on_result`` and ``on_event`` as in AgentLink."""

    def __init__(self, database: Database, on_result: OnResult | None, on_event: OnEvent | None) -> None:
        self.on_result = on_result
        self.on_event = on_event
        self._database = database
        self._waiting: list[tuple[Said, asyncio.Future[list[str]]]] = []
        self._workers: set[asyncio.Task[None]] = set()

    async def record(self, host: str, uplink: Uplink) -> None:
        """Returns once everything is committed.

        Raises the error of an item that could not be recorded, or CommandUnknown naming the results that were
        never this host's commands; everything else is recorded all the same.
        """
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting.append((Said(host, uplink), future))
        if len(self._workers) < _AT_ONCE:
            worker = asyncio.create_task(self._work(), name="agentlink-record")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        unknown = await future
        if unknown:
            message = f"host {host!r} has no such commands: {', '.join(unknown)}"
            raise CommandUnknown(message, commands=unknown)

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            try:
                unknown = await self._transact([said for said, _ in batch])
            except Unavailable as error:
                # Nothing can be recorded now: the hosts say it again.
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            except Exception as error:  # noqa: BLE001  each item gets its own error below
                await self._one_by_one(batch, error)
                continue
            for said, future in batch:
                if not future.done():
                    future.set_result([r.command_id for r in said.uplink.results if r.command_id in unknown])

    async def _one_by_one(
        self, batch: list[tuple[Said, "asyncio.Future[list[str]]"]], cause: Exception
    ) -> None:
        alone = len(batch) == 1 and len(batch[0][0].singly()) == 1
        if not alone:
            log.warning("uplink.split", hosts=len(batch), error=str(cause))
        for said, future in batch:
            unknown: set[str] = set()
            failed = cause if alone else None
            for single in [] if alone else said.singly():
                try:
                    unknown |= await self._transact([single])
                except Exception as error:
                    log.exception("uplink.item_failed", host=said.host)
                    failed = error
            if future.done():
                continue
            if failed is not None:
                future.set_exception(failed)
            else:
                future.set_result([r.command_id for r in said.uplink.results if r.command_id in unknown])

    async def _transact(self, batch: Sequence[Said]) -> set[str]:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._database.transaction() as tx:
                    unknown = await self._record_results(tx, batch)
                    if self.on_event is not None:
                        for said in batch:
                            for event in said.uplink.events:
                                await self.on_event(tx, said.host, event)
            except SerializationConflict:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return unknown
        raise AssertionError  # unreachable: the last attempt returns or raises

    async def _record_results(self, tx: Tx, batch: Sequence[Said]) -> set[str]:
        told = {r.command_id: (said.host, r) for said in batch for r in said.uplink.results}
        old = {i: (host, newest) for i, (host, r) in told.items() if (newest := _newest(r)) is not None}
        results = {i: found for i, found in told.items() if i not in old}
        if old:
            hosts, numbers = [host for host, _ in old.values()], [newest for _, newest in old.values()]
            await sql.QUEUE_AGAIN.run(tx, ids=list(old), hosts=hosts, numbers=numbers)
        recorded = await self._finish(tx, results) if results else 0
        if recorded == len(told):
            return set()
        own = await sql.OWN.all(tx, ids=list(told), hosts=[host for host, _ in told.values()])
        return set(told) - {row[0] for row in own}

    async def _finish(self, tx: Tx, results: dict[str, tuple[str, Result]]) -> int:
        ended = await sql.FINISH.all(
            tx,
            ids=list(results),
            hosts=[host for host, _ in results.values()],
            outcomes=[r.outcome for _, r in results.values()],
            errors=[plain(r.error) if r.error else None for _, r in results.values()],
        )
        for row in ended:
            if self.on_result is not None:
                result = results[row.id][1]
                await self.on_result(
                    tx,
                    msgspec.structs.replace(result, operation=row.operation, step=row.step, fence=row.fence),
                )
        return len(ended)


def _newest(result: Result) -> int | None:
    # The number that a host names of a command that it takes for an old one. A host may name any: it is its own queue's.
    if result.error is None or result.error.code != COMMAND_OLD:
        return None
    newest = result.data.get("newest")
    return newest if isinstance(newest, int) and 0 <= newest < _HIGHEST else None
