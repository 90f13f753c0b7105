"""How one operation is driven, by the conductor that holds its lease.

An operation moves by records. Each record is one transaction: the effects of one or more steps, the log of them,
and the operation's new position, written only where the fence still holds. Consecutive local steps share a
transaction (``fuse``): if any of them fails, the whole transaction is rolled back and they are taken one by one,
so that the failing step is known and what came before it is kept.

Parking (waiting for a host, an event, a time) holds nothing: the row says what it waits for. Whatever arrives
while the engine looks at it raises ``wakes``, and a record that would park sees that and goes on instead.

This module is the way forward; ``undo`` is the way back, ``commands`` what hosts are asked.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.core.clock import utcnow
from moorage.core.errors import MoorageError, Unavailable
from moorage.core.log import get_logger
from moorage.operations import commands, journal, undo
from moorage.operations.definition import NORMAL, Definition, NoRoom, Refusal, StepDefinition
from moorage.operations.environment import Environment, copy_of, take
from moorage.operations.model import DONE, FORWARD, RUNNING, WAITING, Event, Operation, error_of
from moorage.operations.versions import BegunEarlier, adopt
from moorage.store.database import Tx
from moorage.store.errors import SerializationConflict

log = get_logger(__name__)
TRANSIENT_ATTEMPTS = 20


class _StepFailed(Exception):
    """A step raised in a transaction that has been rolled back."""

    def __init__(self, step: StepDefinition, cause: Exception, first: bool) -> None:
        super().__init__(step.name)
        self.step = step
        self.cause = cause
        self.first = first


async def drive(env: Environment, op: Operation) -> None:
    """Move an operation until it is parked or finished; raises FencedOut where another conductor has it."""
    definition = env.catalogue.of(op)
    if op.version != definition.version and adopt(definition, op):
        message = f"{op.kind}: begun by an earlier release that did it otherwise; it is undone"
        await undo.fail(env, op, error_of(BegunEarlier(message)))
    fuse = env.fuse
    while op.state == RUNNING:
        try:
            if op.direction != FORWARD:
                await undo.backward(env, definition, op)
            elif op.cancel:
                await undo.fail(env, op, {"code": "cancelled", "message": "cancelled"}, cancelled=True)
            elif (late := _late(env, definition, op)) is not None:
                await undo.fail(env, op, error_of(late))
            else:
                await _forward(env, definition, op, fuse=fuse)
        except SerializationConflict:
            await asyncio.sleep(0.02)
        except _StepFailed as failure:
            fuse = await _recover(env, definition, op, failure, fuse=fuse)


async def _recover(
    env: Environment, definition: Definition, op: Operation, failure: _StepFailed, *, fuse: bool
) -> bool:
    """Go on after a step that failed; whether steps still share transactions."""
    cause = failure.cause
    if isinstance(cause, NoRoom):
        await _no_room(env, definition, op, failure.step, cause.subject)
    elif isinstance(cause, SerializationConflict | Unavailable) and await _again(env, op, failure):
        pass
    elif failure.first:
        await _refused_or_failed(env, op, failure.step, cause)
    else:
        return False
    return fuse


async def _no_room(
    env: Environment, definition: Definition, op: Operation, step: StepDefinition, host: str
) -> None:
    """Wait for room at the host, unless the step that chose it is only to be done again and may choose another."""
    back = step.on_refusal
    if (
        step.kind == "remote"
        and back is not None
        and definition.index(op.step) <= definition.index(back.step)
    ):
        return
    log.info("operation.no_room", kind=op.kind, step=op.step, operation_id=op.id, host=host)
    work = copy_of(op)
    commands.wait_for_room(env, work, host)
    _end_in_time(env, definition, work)
    async with env.database.transaction() as tx:
        await journal.record(tx, work, [], consumed=False)
    take(env, op, work)


def _late(env: Environment, definition: Definition, op: Operation) -> MoorageError | None:
    deadline = env.deadline(definition, op)
    if deadline is None or utcnow() < deadline:
        return None
    seconds = (deadline - op.created_at).total_seconds()
    return MoorageError(f"{op.kind} was not done within {seconds:.0f} s", code="operation.deadline")


async def _forward(env: Environment, definition: Definition, op: Operation, *, fuse: bool) -> None:
    """As many steps as one transaction may hold, then the record."""
    work = copy_of(op)
    events: list[Event] = []
    first = True
    consumed = op.inbox is not None
    index = definition.index(op.step)
    await env.room.look()
    async with env.database.transaction() as tx:
        while True:
            step = definition.steps[index]
            try:
                await env.faults.at("before", work, step.name)
                done = await _run_step(env, definition, work, step, tx, events)
                await env.faults.at("effect", work, step.name)
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
        _end_in_time(env, definition, work)
        await journal.record(tx, work, events, consumed=consumed)
    take(env, op, work)
    await env.faults.at("recorded", op, events[-1].step if events else step.name)


def _end_in_time(env: Environment, definition: Definition, work: Operation) -> None:
    deadline = env.deadline(definition, work)
    if work.state == WAITING and deadline is not None and work.wake_at is not None:
        work.wake_at = min(work.wake_at, deadline)


async def _run_step(
    env: Environment,
    definition: Definition,
    work: Operation,
    step: StepDefinition,
    tx: Tx,
    events: list[Event],
) -> bool:
    """Do what can be done of a step now; True when it is through, False when the operation is to be parked."""
    if step.kind == "remote" and work.sent:
        if work.inbox is None:
            if await _go_on_without(env, work, step, tx, events):
                return True
            commands.keep_waiting(env, work, step.name)
            return False
        commands.check_outcome(step, work, work.inbox)
        data = work.inbox.get("data")
        commands.clear(work)
        return _succeed(work, events, step, data)
    result = await step.run(env.step(work, tx))
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
    if step.on_silence is None:
        commands.refuse_silent(env, result.host)
    if definition.priority >= NORMAL:
        await env.room.take(tx, work, result.host)
    await commands.send(env, work, step.name, result, tx)
    events.append(Event(step.name, "started", {"host": result.host, "kind": result.kind}))
    return await _go_on_without(env, work, step, tx, events)


async def _go_on_without(
    env: Environment, work: Operation, step: StepDefinition, tx: Tx, events: list[Event]
) -> bool:
    """Whether the step is through although its host is not heard of; raises Refusal where it needs the answer."""
    host = work.data["_host"]
    if not env.silent(host):
        return False
    if step.on_silence is None:
        commands.refuse_silent(env, host)
    else:
        result = await step.on_silence(env.step(work, tx))
        commands.clear(work)
        work.state = RUNNING
        log.info("operation.host_silent", kind=work.kind, step=step.name, operation_id=work.id, host=host)
        return _succeed(work, events, step, result)
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


async def _refused_or_failed(env: Environment, op: Operation, step: StepDefinition, cause: Exception) -> None:
    back = step.on_refusal
    if isinstance(cause, Refusal) and back is not None and len(op.refusals) < back.limit:
        log.info("operation.refused", kind=op.kind, step=step.name, host=cause.subject, reason=cause.message)
        refusal = {"host": cause.subject, "step": step.name, "code": cause.code, "message": cause.message}
        await undo.begin(env, op, Event(step.name, "failed", refusal), undo_to=back.step, refusal=refusal)
        return
    if not isinstance(cause, MoorageError):
        log.error("operation.step_crashed", kind=op.kind, step=step.name, operation_id=op.id, exc_info=cause)
    await undo.fail(env, op, {**error_of(cause), "step": step.name})


async def _again(env: Environment, op: Operation, failure: _StepFailed) -> bool:
    """Whether a transient failure is to be tried again; parks with a growing delay."""
    if op.attempts >= TRANSIENT_ATTEMPTS:
        return False
    log.info("operation.retry", kind=op.kind, step=failure.step.name, error=str(failure.cause))
    work = copy_of(op, attempts=op.attempts + 1, state=WAITING)
    work.wake_at = utcnow() + timedelta(seconds=min(10.0, 0.05 * 2**op.attempts))
    async with env.database.transaction() as tx:
        await journal.record(tx, work, [], consumed=False)
    take(env, op, work)
    return True
