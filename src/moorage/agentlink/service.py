"""AgentLink: what the rest of the control plane knows of the agents."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from structlog.contextvars import get_contextvars

from moorage.agentlink import statements as sql
from moorage.agentlink.authority import Authority
from moorage.agentlink.certificates import Certificates
from moorage.agentlink.dispatcher import Dispatcher
from moorage.agentlink.enrolment import Enrolment
from moorage.agentlink.model import seconds_left
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
    RenewReply,
    Uplink,
    Verdict,
    Verdicts,
)

log = get_logger(__name__)
Judge = Callable[[Tx, str, Sequence[str]], Awaitable[dict[str, Verdict]]]


async def _unknown(_tx: Tx, _host: str, server_ids: Sequence[str]) -> dict[str, Verdict]:
    # Until the wiring says who knows better, nothing is touched.
    return dict.fromkeys(server_ids, "unknown")


class AgentLink:
    """Commands down, results, events and reports up.

    The wiring sets what they mean: ``on_result(tx, result)`` once for each command, in the transaction that
    records it, with operation, step and fence as they were enqueued; ``on_event(tx, host, event)`` at least once
    for each event; ``on_report(tx, host, report)`` for reports with new facts (see Registry); ``judge(tx, host,
    server_ids)`` what a host that was cut off may still run. ``authority``: None where no host is enrolled.
    ``service_down_time``: seconds without a report after which a host is down.
    """

    def __init__(
        self,
        database: Database,
        signals: Signals,
        *,
        authority: Authority | None,
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
        self.certificates = Certificates(database, signals, self._dispatcher.end_poll)
        self.enrolment = Enrolment(authority, self.certificates)
        self.judge: Judge = _unknown

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
        await self.certificates.start()
        await self.registry.start()

    async def stop(self) -> None:
        """End every poll."""
        await self._dispatcher.stop()
        await self.certificates.stop()
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

        ``kind`` follows from a typed payload, the user's request from the context of the logs. The same key (operation, step, kind, fence) for the same host
        again is the same command. Raises store.errors.ForeignKeyViolation for an unknown host.
        """
        if kind is None:
            assert not isinstance(payload, dict), "a plain payload comes with its kind"
            kind = KINDS[type(payload)]
        local = self._dispatcher.polls_here(host)
        body = payload if isinstance(payload, dict) else plain(payload)
        request_id = get_contextvars().get("request_id") or None
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
            request_id=request_id,
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
                seconds_left=seconds_left(deadline),
                request_id=request_id,
            )
            tx.on_commit(lambda: self._dispatcher.hand_over(host, [command]))
        return command_id

    async def poll(self, host: str, *, after: int, wait: float) -> bytes:
        """The body of the answer to a host's poll: its next commands, as JSON."""
        return encode(Commands(await self._dispatcher.poll(host, after=after, wait=wait)))

    async def prune(self, tx: Tx, *, older_than: timedelta = timedelta(days=1)) -> int:
        """Forget commands that ended so long ago; how many."""
        return await sql.PRUNE.run(tx, before=utcnow() - older_than)

    # --- who hosts are ----------------------------------------------------------------------------------------

    async def enroll(self, request: EnrollRequest) -> EnrollReply:
        """A new host; see Enrolment.enroll."""
        async with self._database.transaction() as tx:
            return await self.enrolment.enroll(tx, request)

    async def renew(self, host: str, shown: bytes, csr: str) -> RenewReply:
        """A new certificate for a host that has shown the one it has; see Enrolment.renew."""
        async with self._database.transaction() as tx:
            return await self.enrolment.renew(tx, host, shown, csr)

    # --- what hosts say ----------------------------------------------------------------------------------------

    async def verdicts(self, host: str, guests: list[str]) -> Verdicts:
        """What a host that has started or was cut off may still run."""
        async with self._database.read() as tx:
            return Verdicts(await self.judge(tx, host, guests) if guests else {})

    async def report(self, host: str, report: HostReport) -> None:
        """A heartbeat."""
        await self.registry.report(host, report)

    async def record(self, host: str, uplink: Uplink) -> None:
        """Record results once each, and pass events on; see Recorder.record."""
        await self.recorder.record(host, uplink)
