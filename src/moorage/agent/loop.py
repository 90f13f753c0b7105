"""Carrying commands out: many guests at once, one guest in order, no more than a limit at a time."""

import asyncio
import contextlib

import msgspec
from structlog.contextvars import bound_contextvars

from moorage.agent.errors import Refused
from moorage.agent.guests import Done, Guests
from moorage.agent.journal import Journal
from moorage.agent.outbox import Outbox
from moorage.core.clock import utcnow
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.wire.coding import UnknownKindError, payload_of
from moorage.wire.messages import Command, CommandError, GuestPayload, Outcome, Result

log = get_logger(__name__)
_BACKLOG = 512


class CommandLoop:
    """Takes commands from the link, leaves results in the outbox."""

    def __init__(self, guests: Guests, journal: Journal, outbox: Outbox, limit: int) -> None:
        self._guests = guests
        self._journal = journal
        self._outbox = outbox
        self._slots = asyncio.Semaphore(limit)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._room.set()

    @property
    def busy(self) -> int:
        """Commands taken and not ended."""
        return len(self._running)

    async def has_room(self) -> None:
        """Wait until the backlog is short enough to take more."""
        await self._room.wait()

    def offer(self, command: Command) -> None:
        """Take a command; one that is being carried out already is dropped."""
        if command.id in self._running:
            return
        try:
            payload = payload_of(command)
        except (UnknownKindError, msgspec.DecodeError) as error:
            # Refused without the journal: nothing was touched, and asking again gives the same answer.
            self._outbox.put(_result(command, "refused", CommandError("agent.command_unknown", str(error))))
            return
        guest = payload.server_id
        task = asyncio.create_task(self._run(command, payload, self._last.get(guest)), name=command.kind)
        self._running[command.id] = self._last[guest] = task
        if len(self._running) >= _BACKLOG:
            self._room.clear()
        task.add_done_callback(lambda t: self._ended(command.id, guest, t))

    async def close(self) -> None:
        """Abandon what runs; it is asked for again and resumed by the journal at the next start."""
        for task in list(self._running.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _ended(self, command_id: str, guest: str, task: asyncio.Task[None]) -> None:
        self._running.pop(command_id, None)
        if self._last.get(guest) is task:
            del self._last[guest]
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The journal could not be written: no result may be claimed. The command is delivered again.
            log.error("command.unrecorded", command=command_id, exc_info=error)

    async def _run(
        self, command: Command, payload: GuestPayload, previous: asyncio.Task[None] | None
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        async with self._slots:
            verdict = await self._journal.accept(command)
            if verdict.action == "replay":
                self._outbox.put(verdict.result)
                return
            if verdict.action == "refuse":
                message = f"fence {command.fence} is older than {verdict.fence}, seen for the same step"
                self._outbox.put(_result(command, "refused", CommandError("agent.fence_old", message)))
                return
            with bound_contextvars(operation=command.operation, step=command.step):
                result, done = await self._perform(command, payload)
            await self._journal.finish(command, result)
            self._outbox.put(result, done.events)

    async def _perform(self, command: Command, payload: GuestPayload) -> tuple[Result, Done]:
        if command.deadline is not None and command.deadline < utcnow():
            error = CommandError("agent.deadline", f"{command.kind} came after its deadline")
            return _result(command, "refused", error), Done()
        try:
            done = await self._guests.perform(payload)
        except Refused as error:
            return _result(command, "refused", CommandError(error.code, error.message)), Done()
        except MoorageError as error:
            log.warning("command.failed", kind=command.kind, code=error.code, error=error.message)
            return _result(command, "failed", CommandError(error.code, error.message)), Done()
        except Exception as error:
            log.exception("command.crashed", kind=command.kind)
            told = CommandError("agent.internal", f"{command.kind}: {type(error).__name__}: {error}")
            return _result(command, "failed", told), Done()
        return _result(command, "succeeded", data=done.data), done


def _result(
    command: Command,
    outcome: Outcome,
    error: CommandError | None = None,
    data: dict[str, object] | None = None,
) -> Result:
    return Result(
        command_id=command.id,
        operation=command.operation,
        step=command.step,
        fence=command.fence,
        outcome=outcome,
        data=data or {},
        error=error,
    )
