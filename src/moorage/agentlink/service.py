"""AgentLink: what the rest of the control plane knows of the agents."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.agentlink import statements as sql
from moorage.agentlink.dispatcher import Dispatcher
from moorage.agentlink.errors import CommandUnknown
from moorage.agentlink.registry import OnReport, Registry
from moorage.core.clock import utcnow
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict
from moorage.store.signals import Signals
from moorage.wire.coding import KINDS, encode, plain
from moorage.wire.messages import (
    Command,
    Commands,
    EnrollReply,
    EnrollRequest,
    Event,
    GuestPayload,
    HostReport,
    Result,
    Uplink,
)

log = get_logger(__name__)
OnResult = Callable[[Tx, Result], Awaitable[None]]
OnEvent = Callable[[Tx, str, Event], Awaitable[None]]
_ATTEMPTS = 5


class AgentLink:
    """Commands down, results, events and reports up.

    The wiring sets what they mean: ``on_result(tx, result)`` once for each command, in the transaction that
    records it, with operation, step and fence as they were enqueued; ``on_event(tx, host, event)`` at least once
    for each event; ``on_report(tx, host, report)`` for reports with new facts (see Registry).
    ``service_down_time``: seconds without a report after which a host is down.
    """

    def __init__(
        self,
        database: Database,
        signals: Signals,
        *,
        on_result: OnResult | None = None,
        on_event: OnEvent | None = None,
        on_report: OnReport | None = None,
        service_down_time: float = 60.0,
    ) -> None:
        self.registry = Registry(database, on_report)
        self.on_result = on_result
        self.on_event = on_event
        self.service_down_time = service_down_time
        self._database = database
        self._dispatcher = Dispatcher(database, signals)

    async def start(self) -> None:
        """Serve polls; ``signals`` must be started too."""
        await self._dispatcher.start()
        await self.registry.start()

    async def stop(self) -> None:
        """End every poll."""
        await self._dispatcher.stop()
        await self.registry.stop()

    # --- the queue ---------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        tx: Tx,
        *,
        host: str,
        operation: str,
        step: str,
        fence: int,
        payload: GuestPayload | dict[str, Any],
        kind: str | None = None,
        deadline: datetime | None = None,
    ) -> str:
        """Queue a command for a host (by name), to be delivered when ``tx`` commits; its id. One statement.

        ``kind`` follows from a typed payload. The same key (operation, step, kind, fence) for the same host
        again is the same command. Raises store.errors.ForeignKeyViolation for an unknown host.
        """
        if kind is None:
            assert not isinstance(payload, dict), "a plain payload comes with its kind"
            kind = KINDS[type(payload)]
        local = self._dispatcher.polls_here(host)
        body = payload if isinstance(payload, dict) else plain(payload)
        row = await sql.ENQUEUE.first(
            tx,
            id=new_id(),
            host=host,
            operation=operation,
            step=step,
            kind=kind,
            fence=fence,
            payload=body,
            deadline=deadline,
            local=local,
        )
        assert row is not None
        command_id, seq = row[0], row[1]
        if local:
            command = Command(
                id=command_id,
                seq=seq,
                operation=operation,
                step=step,
                fence=fence,
                kind=kind,
                payload=msgspec.Raw(encode(body)),
                deadline=deadline,
            )
            tx.on_commit(lambda: self._dispatcher.hand_over(host, [command]))
        return command_id

    async def poll(self, host: str, *, after: int, wait: float) -> bytes:
        """The body of the answer to a host's poll: its next commands, as JSON."""
        return encode(Commands(await self._dispatcher.poll(host, after=after, wait=wait)))

    async def prune(self, tx: Tx, *, older_than: timedelta = timedelta(days=1)) -> int:
        """Forget commands that ended so long ago; how many."""
        return await sql.PRUNE.run(tx, before=utcnow() - older_than)

    # --- what hosts say ----------------------------------------------------------------------------------------

    async def enroll(self, request: EnrollRequest) -> EnrollReply:
        """A new host; see Registry.enroll."""
        async with self._database.transaction() as tx:
            return await self.registry.enroll(tx, request)

    async def report(self, host: str, report: HostReport) -> None:
        """A heartbeat."""
        await self.registry.report(host, report)

    async def record(self, host: str, uplink: Uplink) -> None:
        """Record results once each, and pass events on.

        All in one transaction; when that fails and there is more than one item, one transaction an item, so
        that one that cannot be recorded does not hold up the others. Raises that one's error, or CommandUnknown
        naming the results that were never this host's commands, after everything else is recorded.
        """
        count = len(uplink.results) + len(uplink.events)
        try:
            unknown = await self._record(host, uplink)
        except Exception as error:
            if count <= 1:
                raise
            log.warning("uplink.split", host=host, items=count, error=str(error))
            unknown = await self._record_singly(host, uplink)
        if unknown:
            message = f"host {host!r} has no such commands: {', '.join(unknown)}"
            raise CommandUnknown(message, commands=unknown)

    async def _record_singly(self, host: str, uplink: Uplink) -> list[str]:
        unknown: list[str] = []
        failed: Exception | None = None
        singles = [Uplink(results=[r]) for r in uplink.results] + [Uplink(events=[e]) for e in uplink.events]
        for single in singles:
            try:
                unknown += await self._record(host, single)
            except Exception as error:
                log.exception("uplink.item_failed", host=host, item=single)
                failed = error
        if failed is not None:
            raise failed
        return unknown

    async def _record(self, host: str, uplink: Uplink) -> list[str]:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._database.transaction() as tx:
                    unknown = await self._record_results(tx, host, uplink.results) if uplink.results else []
                    if self.on_event is not None:
                        for event in uplink.events:
                            await self.on_event(tx, host, event)
            except SerializationConflict:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return unknown
        raise AssertionError  # unreachable: the last attempt returns or raises

    async def _record_results(self, tx: Tx, host: str, results: list[Result]) -> list[str]:
        # Sorted, so that two batches with the same commands lock them in the same order.
        by_id = {r.command_id: r for r in sorted(results, key=lambda r: r.command_id)}
        ended = await sql.FINISH.all(
            tx,
            host=host,
            ids=list(by_id),
            outcomes=[r.outcome for r in by_id.values()],
            errors=[plain(r.error) if r.error else None for r in by_id.values()],
        )
        for row in ended:
            if self.on_result is not None:
                result = msgspec.structs.replace(
                    by_id[row.id], operation=row.operation, step=row.step, fence=row.fence
                )
                await self.on_result(tx, result)
        if len(ended) == len(by_id):
            return []
        own = {row[0] for row in await sql.OWN.all(tx, host=host, ids=list(by_id))}
        return [command_id for command_id in by_id if command_id not in own]
