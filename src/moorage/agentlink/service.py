"""AgentLink: what the rest of the control plane knows of the agents."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.agentlink import statements as sql
from moorage.agentlink.dispatcher import Dispatcher
from moorage.agentlink.recorder import OnEvent, OnResult, Recorder
from moorage.agentlink.registry import OnReport, Registry
from moorage.core.clock import utcnow
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals
from moorage.wire.coding import KINDS, encode, plain
from moorage.wire.messages import (
    Command,
    Commands,
    EnrollReply,
    EnrollRequest,
    GuestPayload,
    HostReport,
    Uplink,
)

log = get_logger(__name__)


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
        self.recorder = Recorder(database, on_result, on_event)
        self.service_down_time = service_down_time
        self._database = database
        self._dispatcher = Dispatcher(database, signals)

    @property
    def on_result(self) -> OnResult | None:
        """What a result means."""
        return self.recorder.on_result

    @on_result.setter
    def on_result(self, action: OnResult | None) -> None:
        self.recorder.on_result = action

    @property
    def on_event(self) -> OnEvent | None:
        """What an event means."""
        return self.recorder.on_event

    @on_event.setter
    def on_event(self, action: OnEvent | None) -> None:
        self.recorder.on_event = action

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
        log.info(
            "command.queued", command_id=command_id, operation_id=operation, step=step, kind=kind, host=host
        )
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
        """Record results once each, and pass events on; see Recorder.record."""
        await self.recorder.record(host, uplink)
