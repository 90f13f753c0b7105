"""How one operation is driven, by the conductor that holds its lease.

An operation moves by records. Each record is one transaction: the effects of one or more steps, the log of them,
and the operation's new position, written only where the fence still holds. Consecutive local steps share a
transaction (``fuse``): if any of them fails, the whole transaction is rolled back and they are taken one by one,
so that the failing step is known and what came before it is kept.

Parking (waiting for a host, an event, a time) holds nothing: the row says what it waits for. Whatever arrives
while the engine looks at it raises ``wakes``, and a record that would park sees that and goes on instead.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.core.clock import utcnow
from moorage.core.errors import MoorageError, Unavailable
from moorage.core.log import get_logger
from moorage.operations import journal
from moorage.operations.definition import Command, Definition, Refusal, Step, StepDefinition
from moorage.operations.faults import Faults, NoFaults
from moorage.operations.model import (
    CANCELLED,
    DONE,
    FAILED,
    FORWARD,
    RUNNING,
    STUCK,
    UNDO,
    WAITING,
    Event,
    FencedOut,
    Operation,
    error_of,
)
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict

log = get_logger(__name__)
Send = Callable[..., Awaitable[str]]
"""Enqueues a command: (tx, host, operation, step, fence, kind, payload) -> command id."""

UNDO_ATTEMPTS = 10
TRANSIENT_ATTEMPTS = 20


class Environment(msgspec.Struct, frozen=True):
    """What every operation of a conductor is driven with."""

    database: Database
    definitions: dict[tuple[str, int], Definition]
    app: Any
    send: Send
    faults: Faults = NoFaults()
    fuse: bool = True


class _StepFailed(Exception):
    """A step raised in a transaction that has been rolled back."""

    def __init__(self, step: StepDefinition, cause: Exception, first: bool) -> None:
        super().__init__(step.name)
        self.step = step
        self.cause = cause
        self.first = first


async def drive(env: Environment, op: Operation) -> None:
    """Move an operation until it is parked or finished; raises FencedOut where another conductor has it."""
    definition = env.definitions[op.kind, op.version]
    fuse = env.fuse
    while op.state == RUNNING:
        try:
            if op.direction == FORWARD and op.cancel:
                await _fail(env, op, {"code": "cancelled", "message": "cancelled"}, cancelled=True)
            elif op.direction == FORWARD:
                await _forward(env, definition, op, fuse=fuse)
            else:
                await _backward(env, definition, op)
        except SerializationConflict:
            await asyncio.sleep(0.02)
        except _StepFailed as failure:
            if isinstance(failure.cause, SerializationConflict | Unavailable) and await _again(
                env, op, failure
            ):
                continue
            if not failure.first:
                fuse = False
                continue
            await _refused_or_failed(env, op, failure.step, failure.cause)


async def _forward(env: Environment, definition: Definition, op: Operation, *, fuse: bool) -> None:
    """As many steps as one transaction may hold, then the record."""
    work = msgspec.structs.replace(op, data=dict(op.data))
    events: list[Event] = []
    first = True
    consumed = op.inbox is not None
    index = definition.index(op.step)
    async with env.database.transaction() as tx:
        while True:
            step = definition.steps[index]
            try:
                env.faults.at("before", op.kind, step.name, FORWARD)
                done = await _run_step(env, work, step, tx, events)
                env.faults.at("effect", op.kind, step.name, FORWARD)
            except Exception as error:
                raise _StepFailed(step, error, first) from error
            if not done:
                break
            first = False
            index += 1
            work.attempts = 0
            work.inbox = None
            if index == len(definition.steps):
                work.state = DONE
                break
            work.step = definition.steps[index].name
            if not fuse:
                break
        await journal.record(tx, work, events, consumed=consumed)
    _take(op, work)
    env.faults.at("recorded", op.kind, events[-1].step if events else step.name, FORWARD)


async def _run_step(
    env: Environment, work: Operation, step: StepDefinition, tx: Tx, events: list[Event]
) -> bool:
    """Do what can be done of a step now; True when it is through, False when the operation is to be parked."""
    if step.kind == "remote" and work.sent:
        inbox = work.inbox
        if inbox is None:
            if work.wake_at is not None and work.wake_at <= utcnow():
                raise Unavailable(
                    f"the host gave no result for {step.name} in time", code="operation.no_result"
                )
            work.state = WAITING
            return False
        _check_outcome(step, work, inbox)
        _clear_command(work)
        return _succeed(work, events, step, inbox.get("data"))
    result = await step.run(_step(env, work, tx))
    if step.kind == "local":
        return _succeed(work, events, step, result)
    if step.kind == "wait":
        if result:
            work.wake_at = None
            work.data.pop("_until", None)
            return _succeed(work, events, step, None)
        _wait_on(env, work, step, events)
        return False
    if result is None:  # there is no host to tell
        return _succeed(work, events, step, None)
    await _send(env, work, step.name, result, tx)
    events.append(Event(step.name, "started", {"host": result.host, "kind": result.kind}))
    work.state = WAITING
    return False


def _wait_on(env: Environment, work: Operation, step: StepDefinition, events: list[Event]) -> None:
    """Park until an event or the deadline, which is set the first time; raises once it has passed."""
    seconds = step.deadline_for(env.app)
    if "_until" not in work.data:
        events.append(Event(step.name, "started"))
        work.data["_until"] = (utcnow() + timedelta(seconds=seconds)).isoformat()
    until = datetime.fromisoformat(work.data["_until"])
    if until <= utcnow():
        words = step.name.replace("_", " ")
        raise MoorageError(f"{words}: not within {seconds:.0f} s", code="operation.deadline")
    work.wake_at = until
    work.state = WAITING


def _succeed(work: Operation, events: list[Event], step: StepDefinition, result: Any) -> bool:
    work.data[step.name] = msgspec.to_builtins(result, enc_hook=str)
    events.append(Event(step.name, "succeeded"))
    return True


def _check_outcome(step: StepDefinition, work: Operation, inbox: dict[str, Any]) -> None:
    """Raise what a host's result means: Refusal where another host may be tried."""
    if inbox["outcome"] == "succeeded":
        return
    error = inbox.get("error") or {}
    message = error.get("message") or f"{step.name} {inbox['outcome']}"
    raise Refusal(
        message, subject=work.data.get("_host", ""), code=error.get("code") or "operation.host_failed"
    )


async def _send(env: Environment, work: Operation, step: str, command: Command, tx: Tx) -> None:
    work.sent = True
    work.wake_at = utcnow() + timedelta(seconds=command.timeout)
    work.data["_host"] = command.host
    work.data["_command"] = await env.send(
        tx,
        host=command.host,
        operation=work.id,
        step=step,
        fence=work.fence,
        kind=command.kind,
        payload=command.payload,
    )


def _clear_command(work: Operation) -> None:
    work.sent = False
    work.wake_at = None
    work.data.pop("_command", None)
    work.data.pop("_until", None)


async def _refused_or_failed(env: Environment, op: Operation, step: StepDefinition, cause: Exception) -> None:
    back = step.on_refusal
    if isinstance(cause, Refusal) and back is not None and len(op.refusals) < back.limit:
        log.info("operation.refused", kind=op.kind, step=step.name, host=cause.subject, reason=cause.message)
        refusal = {"host": cause.subject, "step": step.name, "code": cause.code, "message": cause.message}
        await _begin_undo(env, op, Event(step.name, "failed", refusal), undo_to=back.step, refusal=refusal)
        return
    if not isinstance(cause, MoorageError):
        log.error("operation.step_crashed", kind=op.kind, step=step.name, operation_id=op.id, exc_info=cause)
    await _fail(env, op, {**error_of(cause), "step": step.name})


async def _fail(env: Environment, op: Operation, error: dict[str, Any], *, cancelled: bool = False) -> None:
    log.info("operation.failed", kind=op.kind, step=op.step, operation_id=op.id, error=error.get("message"))
    event = Event(op.step, "failed", error)
    await _begin_undo(env, op, event, undo_to=None, error={**error, "cancelled": cancelled})


async def _begin_undo(
    env: Environment,
    op: Operation,
    event: Event,
    *,
    undo_to: str | None,
    refusal: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> None:
    work = msgspec.structs.replace(op, data=dict(op.data), direction=UNDO, attempts=0, undo_to=undo_to)
    _clear_command(work)
    work.inbox = None
    work.error = error
    if refusal is not None:
        work.refusals = [*op.refusals, refusal]
    async with env.database.transaction() as tx:
        await journal.record(tx, work, [event], consumed=True)
    _take(op, work)


async def _backward(env: Environment, definition: Definition, op: Operation) -> None:
    """Undo one step, or end."""
    index = definition.index(op.step)
    step = definition.steps[index]
    work = msgspec.structs.replace(op, data=dict(op.data))
    events: list[Event] = []
    consumed = op.inbox is not None
    try:
        env.faults.at("before", op.kind, step.name, UNDO)
        async with env.database.transaction() as tx:
            through = await _undo_step(env, work, step, tx, events)
            env.faults.at("effect", op.kind, step.name, UNDO)
            if through:
                await _after_undo(env, definition, work, index, tx)
            await journal.record(tx, work, events, consumed=consumed, logged_round=op.round)
    except FencedOut:
        raise
    except Exception as error:  # noqa: BLE001  an undo is retried whatever its failure; it is logged and kept
        await _undo_failed(env, definition, op, step, error)
        return
    _take(op, work)
    env.faults.at("recorded", op.kind, step.name, UNDO)


async def _undo_step(
    env: Environment, work: Operation, step: StepDefinition, tx: Tx, events: list[Event]
) -> bool:
    if work.sent:
        if work.inbox is None:
            if work.wake_at is not None and work.wake_at <= utcnow():
                raise Unavailable(f"the host gave no result for the undo of {step.name} in time")
            work.state = WAITING
            return False
        inbox, work.inbox = work.inbox, None
        if inbox["outcome"] != "succeeded":
            raise MoorageError((inbox.get("error") or {}).get("message") or f"undo of {step.name} failed")
    elif step.undo is not None:
        command = await step.undo(_step(env, work, tx))
        if isinstance(command, Command):
            await _send(env, work, step.name, command, tx)
            events.append(Event(step.name, "undo_started", {"host": command.host, "kind": command.kind}))
            work.state = WAITING
            return False
    _clear_command(work)
    events.append(Event(step.name, "undone"))
    return True


async def _after_undo(env: Environment, definition: Definition, work: Operation, index: int, tx: Tx) -> None:
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
        cancelled = bool((work.error or {}).get("cancelled"))
        if definition.on_failure is not None:
            await definition.on_failure(_step(env, work, tx))
        work.state = CANCELLED if cancelled else FAILED


async def _undo_failed(
    env: Environment, definition: Definition, op: Operation, step: StepDefinition, error: Exception
) -> None:
    attempts = op.attempts + 1
    stuck = attempts >= UNDO_ATTEMPTS
    work = msgspec.structs.replace(
        op, data=dict(op.data), attempts=attempts, state=STUCK if stuck else WAITING
    )
    _clear_command(work)
    work.inbox = None
    work.wake_at = utcnow() + timedelta(seconds=min(60.0, 0.1 * 2**attempts))
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
    async with env.database.transaction() as tx:
        if stuck and definition.on_stuck is not None:
            await definition.on_stuck(_step(env, work, tx))
        await journal.record(tx, work, [Event(step.name, "undo_failed", error_of(error))], consumed=True)
    _take(op, work)


async def _again(env: Environment, op: Operation, failure: _StepFailed) -> bool:
    """Whether a transient failure is to be tried again; parks with a growing delay."""
    if op.attempts >= TRANSIENT_ATTEMPTS or getattr(failure.cause, "code", "") == "operation.no_result":
        return False
    log.info("operation.retry", kind=op.kind, step=failure.step.name, error=str(failure.cause))
    work = msgspec.structs.replace(op, data=dict(op.data), attempts=op.attempts + 1, state=WAITING)
    work.wake_at = utcnow() + timedelta(seconds=min(10.0, 0.05 * 2**op.attempts))
    async with env.database.transaction() as tx:
        await journal.record(tx, work, [], consumed=False)
    _take(op, work)
    return True


def _step(env: Environment, work: Operation, tx: Tx) -> Step:
    return Step(
        app=env.app,
        tx=tx,
        operation_id=work.id,
        subject=work.subject,
        params=work.params,
        data=work.data,
        refusals=work.refusals,
        error=work.error,
    )


def _take(op: Operation, work: Operation) -> None:
    """The record is committed: the copy becomes the truth."""
    for field in work.__struct_fields__:
        setattr(op, field, getattr(work, field))
