"""The way back: last step first, the failing one included, each undo repeated until it ends.

An undo that fails is tried again with growing pauses. After ten times the operation is shown as ``stuck`` and its
subject says so; it is still tried once a minute, and at once when an operator says ``resume``. What it has not undone
is held: it may be in use.

Two things end an operation with something left: an operator's ``abandon``, and a cancellation by an operation that gives
back all that the subject holds (a delete). That one then does what could not be undone here.
"""

import inspect
from datetime import timedelta
from typing import Any

from moorage.core.clock import utcnow
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.operations import commands, journal
from moorage.operations.definition import Command, Definition, StepDefinition
from moorage.operations.environment import Environment, copy_of, take
from moorage.operations.model import (
    CANCELLED,
    FAILED,
    FORWARD,
    STUCK,
    UNDO,
    WAITING,
    Event,
    FencedOut,
    Operation,
    error_of,
)
from moorage.store.database import Tx

log = get_logger(__name__)
ATTEMPTS = 10
_PAUSE, _LONGEST = 0.1, 60.0  # seconds


async def fail(env: Environment, op: Operation, error: dict[str, Any], *, cancelled: bool = False) -> None:
    """Turn round for good."""
    log.info("operation.failed", kind=op.kind, step=op.step, operation_id=op.id, error=error.get("message"))
    event = Event(op.step, "failed", error)
    await begin(env, op, event, undo_to=None, error={**error, "cancelled": cancelled})


async def begin(
    env: Environment,
    op: Operation,
    event: Event,
    *,
    undo_to: str | None,
    refusal: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> None:
    """Turn round: down to the step ``undo_to``, or to the end."""
    work = copy_of(op, direction=UNDO, attempts=0, undo_to=undo_to)
    commands.clear(work)
    work.inbox = None
    work.error = error
    if refusal is not None:
        work.refusals = [*op.refusals, refusal]
    async with env.database.transaction() as tx:
        await journal.record(tx, work, [event], consumed=True)
    take(env, op, work)


async def backward(env: Environment, definition: Definition, op: Operation) -> None:
    """Undo one step, or end."""
    index = definition.index(op.step)
    step = definition.steps[index]
    work = copy_of(op)
    events: list[Event] = []
    consumed = op.inbox is not None
    try:
        await env.faults.at("before", op, step.name)
        async with env.database.transaction() as tx:
            through = await _undo_step(env, work, step, tx, events)
            await env.faults.at("effect", op, step.name)
            if through:
                await _after(env, definition, work, index, tx)
            await journal.record(tx, work, events, consumed=consumed, logged_round=op.round)
    except FencedOut:
        raise
    except Exception as error:  # noqa: BLE001  an undo is retried whatever its failure; it is logged and kept
        await _failed(env, definition, op, step, error)
        return
    before = copy_of(op)
    take(env, op, work)
    await env.faults.at("recorded", before, step.name)


async def _undo_step(
    env: Environment, work: Operation, step: StepDefinition, tx: Tx, events: list[Event]
) -> bool:
    if work.sent:
        if work.inbox is None:
            if error := commands.silent(env, work.data.get("_host", "")):
                raise error
            commands.keep_waiting(env, work, f"the undo of {step.name}")
            return False
        inbox, work.inbox = work.inbox, None
        if inbox["outcome"] != "succeeded":
            raise MoorageError((inbox.get("error") or {}).get("message") or f"undo of {step.name} failed")
    elif step.undo is not None:
        command = await step.undo(env.step(work, tx))
        if isinstance(command, Command):
            if error := commands.silent(env, command.host):
                raise error
            await commands.send(env, work, step.name, command, tx)
            events.append(Event(step.name, "undo_started", {"host": command.host, "kind": command.kind}))
            return False
    commands.clear(work)
    work.data.pop("_undo_error", None)
    events.append(Event(step.name, "undone"))
    return True


async def _after(env: Environment, definition: Definition, work: Operation, index: int, tx: Tx) -> None:
    """Where to go once a step is undone: further back, forward again, or to the end."""
    step = definition.steps[index]
    work.data.pop(step.name, None)
    work.attempts = 0
    if work.undo_to == step.name:
        work.direction = FORWARD
        work.undo_to = None
        work.round += 1
    elif index > 0:
        work.step = definition.steps[index - 1].name
    else:
        # It may have been asked to stop after it had turned round, or failed because of that.
        cancelled = work.cancel or bool((work.error or {}).get("cancelled"))
        if definition.on_failure is not None:
            await definition.on_failure(env.step(work, tx))
        work.state = CANCELLED if cancelled else FAILED


async def _failed(
    env: Environment, definition: Definition, op: Operation, step: StepDefinition, error: Exception
) -> None:
    attempts = op.attempts + 1
    stuck = attempts >= ATTEMPTS
    log.warning(
        "operation.undo_failed",
        kind=op.kind,
        step=step.name,
        operation_id=op.id,
        attempts=attempts,
        stuck=stuck,
        exc_info=error if not isinstance(error, MoorageError) else None,
        error=str(error),
    )
    event = Event(step.name, "undo_failed", error_of(error))
    if op.cancel:
        await _leave(env, definition, op, event)
        return
    work = copy_of(op, attempts=attempts, state=STUCK if stuck else WAITING, inbox=None)
    commands.clear(work)
    work.data["_undo_error"] = event.data
    work.wake_at = utcnow() + timedelta(seconds=min(_LONGEST, _PAUSE * 2**attempts))
    async with env.database.transaction() as tx:
        if attempts == ATTEMPTS and definition.on_stuck is not None:
            await definition.on_stuck(env.step(work, tx))
        await journal.record(tx, work, [event], consumed=True)
    take(env, op, work)


async def _leave(env: Environment, definition: Definition, op: Operation, event: Event) -> None:
    """End with what could not be undone left to the operation that cancelled this one."""
    work = copy_of(op, state=CANCELLED, inbox=None)
    events = [event, *give_up(definition, work)]
    work.error = {**(work.error or {}), "code": "cancelled", "message": "cancelled", "cancelled": True} | {
        "left": leftovers(definition, op)
    }
    async with env.database.transaction() as tx:
        if definition.on_failure is not None:
            await definition.on_failure(env.step(work, tx))
        await journal.record(tx, work, events, consumed=True)
    take(env, op, work)


def give_up(definition: Definition, work: Operation) -> list[Event]:
    """Wait for nothing any more; the log's lines of what is not undone."""
    commands.clear(work)
    try:
        index = definition.index(work.step)
    except KeyError:  # begun by a release that this one does not know
        done = [name for name in work.data if not name.startswith("_")]
        return [Event(name, "abandoned") for name in dict.fromkeys([work.step, *done])]
    return [Event(step.name, "abandoned") for step in definition.steps[index::-1]]


def leftovers(definition: Definition, op: Operation) -> list[dict[str, Any]]:
    """What nobody takes back: the undo of the present step and of those before it, last first."""
    try:
        index = definition.index(op.step)
    except KeyError:
        return [{"step": op.step, "undo": None, "what": "unknown to this release", "host": None}]
    return [
        {
            "step": step.name,
            "undo": step.undo.__name__,
            "what": (inspect.getdoc(step.undo) or "").partition("\n")[0],
            "host": op.data.get("_host") if step.kind == "remote" else None,
        }
        for step in definition.steps[index::-1]
        if step.undo is not None
    ]
