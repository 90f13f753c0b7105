"""Carrying commands out: many guests at once, one guest in order, no more than a limit at a time.

Removing a guest and reading its console take a moment, where a boot may take many minutes. So they have slots of their
own, as many again: neither waits for boots that are slow, and a flood of them is bounded too. Nor do they wait for a
boot of their own guest that has not begun: a later command of a guest takes its place. What has begun is waited for.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from structlog.contextvars import bound_contextvars

from moorage.agent.errors import Refused
from moorage.agent.guests import Done, Guests
from moorage.agent.journal import Journal, Verdict
from moorage.agent.outbox import Outbox
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.wire.coding import QUESTIONS, UnknownKindError, payload_of
from moorage.wire.messages import (
    COMMAND_OLD,
    Command,
    CommandError,
    DestroyGuest,
    GuestPayload,
    Outcome,
    Result,
)

log = get_logger(__name__)
Work = Callable[[], Coroutine[Any, Any, None]]
_BACKLOG = 512


class Turn:
    """Something to do with a guest, from when it was asked for until it has ended. ``seq``: of what may give way."""

    task: asyncio.Task[None]

    def __init__(self, key: str, guest: str, *, short: bool, seq: int | None = None) -> None:
        self.key = key
        self.guest = guest
        self.short = short
        self.seq = seq
        self.begun = False


class CommandLoop:
    """Takes commands from the link, leaves results in the outbox."""

    def __init__(self, guests: Guests, journal: Journal, outbox: Outbox, limit: int) -> None:
        self._guests = guests
        self._journal = journal
        self._outbox = outbox
        self._slots = asyncio.Semaphore(limit)
        self._short_slots = asyncio.Semaphore(limit)
        self._running: dict[str, Turn] = {}
        # The same by guest, in their order: each waits for the one before it.
        self._queues: dict[str, list[Turn]] = {}
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
        guest, question = payload.server_id, command.kind in QUESTIONS
        if not question:
            self._take_over(guest, command.seq)
        short = question or isinstance(payload, DestroyGuest)
        turn = Turn(command.id, guest, short=short, seq=None if question else command.seq)
        self._begin(turn, partial(self._run, command, payload, time.monotonic()))

    def destroy(self, server_id: str, failed: Callable[[], None]) -> None:
        """Remove a guest that may not be here, in its turn; ``failed`` is called where it could not be."""
        key = f"stale:{server_id}"
        if key not in self._running:
            self._begin(Turn(key, server_id, short=True), partial(self._remove, server_id, failed))

    def drop_waiting(self) -> None:
        """Forget the commands that have not begun; they are delivered again."""
        for turn in list(self._running.values()):
            if not turn.begun:
                self._drop(turn)

    async def close(self) -> None:
        """Abandon what runs; it is asked for again and resumed by the journal at the next start."""
        tasks = [turn.task for turn in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _take_over(self, guest: str, seq: int) -> None:
        # Who sent the later command has taken the earlier ones back: nobody waits for their results.
        for turn in list(self._queues.get(guest, ())):
            if not turn.begun and turn.seq is not None and turn.seq < seq:
                log.info("command.taken_back", command=turn.key, server=guest, by=seq)
                self._drop(turn)

    def _drop(self, turn: Turn) -> None:
        # Not here any more at once: the same command may be delivered before the task has ended.
        self._forget(turn)
        turn.task.cancel()

    def _begin(self, turn: Turn, work: Work) -> None:
        queue = self._queues.setdefault(turn.guest, [])
        turn.task = asyncio.create_task(self._in_turn(turn, work), name=turn.key)
        self._running[turn.key] = turn
        queue.append(turn)
        if len(self._running) >= _BACKLOG:
            self._room.clear()
        turn.task.add_done_callback(lambda task: self._ended(turn, task))

    async def _in_turn(self, turn: Turn, work: Work) -> None:
        # The one before may be dropped meanwhile, and then the one before that is waited for.
        queue = self._queues[turn.guest]
        while (place := queue.index(turn)) > 0:
            await asyncio.wait([queue[place - 1].task])
        async with self._short_slots if turn.short else self._slots:
            turn.begun = True
            await work()

    def _ended(self, turn: Turn, task: asyncio.Task[None]) -> None:
        self._forget(turn)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The journal could not be written: no result may be claimed. The command is delivered again.
            log.error("command.unrecorded", command=turn.key, exc_info=error)

    def _forget(self, turn: Turn) -> None:
        if self._running.get(turn.key) is turn:
            del self._running[turn.key]
            queue = self._queues[turn.guest]
            queue.remove(turn)
            if not queue:
                del self._queues[turn.guest]
        self._room.set()

    async def _run(self, command: Command, payload: GuestPayload, since: float) -> None:
        with bound_contextvars(**_context(command)):
            verdict = await self._journal.accept(command, payload.server_id)
            if verdict.action != "run":
                self._outbox.put(_answer(command, verdict))
                return
            result, done = await self._perform(command, payload, since)
            log.info("command.done", kind=command.kind, outcome=result.outcome, server=payload.server_id)
            await self._journal.finish(command, result)
            self._outbox.put(result, done.events)

    async def _remove(self, server_id: str, failed: Callable[[], None]) -> None:
        try:
            done = await self._guests.destroy(DestroyGuest(server_id=server_id))
        except MoorageError as error:
            log.warning("guest.stale_stays", server=server_id, error=error.message)
            failed()
        else:
            log.info("guest.stale_removed", server=server_id)
            self._outbox.put(events=done.events)

    async def _perform(self, command: Command, payload: GuestPayload, since: float) -> tuple[Result, Done]:
        # Both ends by this machine's steady clock: when it came, and how long it had from there.
        if command.seconds_left is not None and time.monotonic() > since + command.seconds_left:
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


def _context(command: Command) -> dict[str, str]:
    # For the logs: the names under which the control plane logs the same.
    found = {"operation_id": command.operation, "step": command.step, "request_id": command.request_id}
    return {key: value for key, value in found.items() if value}


def _answer(command: Command, verdict: Verdict) -> Result:
    # What is said to a command that is not run.
    if verdict.result is not None:
        return verdict.result
    if verdict.action == "old":
        message = f"a later command for the guest was begun: {verdict.higher}, this is {command.seq}"
        log.warning("command.old", kind=command.kind, seq=command.seq, newest=verdict.higher)
        error = CommandError(COMMAND_OLD, message)
        return _result(command, "refused", error, data={"newest": verdict.higher})
    message = f"fence {command.fence} is older than {verdict.higher}, seen for the same step"
    return _result(command, "refused", CommandError("agent.fence_old", message))


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
