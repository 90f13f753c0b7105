"""The durable side of what has begun: every record of it, and what wakes, stops or asks for it.

Each function runs in the caller's transaction, and wakes the runners by the statement that makes an operation ready
(``queue.NOTIFY``).
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from moorage.operations.model import READY, RUNNING, STUCK, WAITING, Event, FencedOut, Operation
from moorage.operations.queue import COLUMNS, IS_OPEN, NOTIFY
from moorage.operations.tables import operation_steps, operations
from moorage.store.database import Tx
from moorage.store.schema import Json, Timestamp
from moorage.store.statement import Statement, text_param, texts_param


def _p(name: str, kind: Any) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=kind)


# What arrived since the engine last looked keeps it running: no event is slept through.
_NEXT = sa.case(
    (
        sa.and_(
            text_param("wanted") == WAITING,
            sa.or_(
                operations.c.wakes != _p("seen", sa.BigInteger),
                operations.c.cancel != _p("known", sa.Boolean),
            ),
        ),
        RUNNING,
    ),
    else_=text_param("wanted"),
)
_UPDATED = (
    sa.update(operations)
    .where(operations.c.id == text_param("key"), operations.c.fence == _p("held", sa.BigInteger))
    .values(
        state=_NEXT,
        owner=sa.case((_NEXT == RUNNING, operations.c.owner)),
        lease_until=sa.case((_NEXT == RUNNING, operations.c.lease_until)),
        version=_p("version", sa.Integer),
        direction=text_param("direction"),
        step=text_param("step"),
        sent=_p("sent", sa.Boolean),
        round=_p("round", sa.Integer),
        attempts=_p("attempts", sa.Integer),
        undo_to=text_param("undo_to"),
        data=_p("data", Json),
        refusals=_p("refusals", Json),
        inbox=sa.case((_p("consumed", sa.Boolean), sa.null()), else_=operations.c.inbox),
        error=_p("error", Json),
        wake_at=_p("wake_at", Timestamp),
        updated_at=sa.func.now(),
    )
    .returning(
        operations.c.id, operations.c.state, operations.c.wakes, operations.c.cancel, operations.c.inbox
    )
    .cte("updated")
)
# The log goes with the record in one statement, and nowhere where the fence has moved. An event that is repeated in
# one round (a retried undo) is kept once. No two have the same time: those of one record come a microsecond apart.
_EVENTS = (
    sa.func.jsonb_array_elements(_p("events", Json))
    .table_valued(sa.column("value", Json), with_ordinality="nth", name="e")
    .render_derived()
)
_LOGGED = (
    insert(operation_steps)
    .from_select(
        ["operation", "round", "step", "event", "fence", "data", "at"],
        sa.select(
            _UPDATED.c.id,
            _p("logged_round", sa.Integer),
            _EVENTS.c.value["step"].astext,
            _EVENTS.c.value["event"].astext,
            _p("held", sa.BigInteger),
            _EVENTS.c.value["data"],
            sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, _EVENTS.c.nth * 1e-6),
        ).select_from(sa.join(_UPDATED, _EVENTS, sa.true())),
    )
    .on_conflict_do_nothing()
    .cte("logged")
)
_RECORD = Statement(
    sa.select(_UPDATED.c.state, _UPDATED.c.wakes, _UPDATED.c.cancel, _UPDATED.c.inbox).add_cte(_LOGGED)
)
_READIED = sa.case((operations.c.state == WAITING, READY), else_=operations.c.state)
_SIGNAL = Statement(
    sa.update(operations)
    .where(operations.c.subject == sa.any_(texts_param("subjects")), IS_OPEN)
    .values(
        wakes=operations.c.wakes + 1, state=sa.case((operations.c.sent, operations.c.state), else_=_READIED)
    )
    .returning(NOTIFY)
)
_COMPLETE = Statement(
    sa.update(operations)
    .where(
        operations.c.id == text_param("key"),
        operations.c.sent,
        operations.c.fence >= _p("sent_fence", sa.BigInteger),
        operations.c.data["_command"].astext == text_param("command"),
        IS_OPEN,
    )
    .values(inbox=_p("result", Json), wakes=operations.c.wakes + 1, state=_READIED)
    .returning(NOTIFY)
)
_CANCEL = Statement(
    sa.update(operations)
    .where(
        operations.c.subject == text_param("of"),
        operations.c.kind == sa.any_(texts_param("kinds")),
        IS_OPEN,
    )
    .values(
        cancel=True,
        wakes=operations.c.wakes + 1,
        state=sa.case((operations.c.state.in_((WAITING, STUCK)), READY), else_=operations.c.state),
    )
    .returning(NOTIFY)
)
_BY_ID = Statement(sa.select(*COLUMNS).where(operations.c.id == text_param("key")), row=Operation)
_LOCKED = Statement(
    sa.select(*COLUMNS).where(operations.c.id == text_param("key")).with_for_update(), row=Operation
)
_SEIZE = Statement(
    sa.update(operations)
    .where(operations.c.id == text_param("key"))
    .values(fence=operations.c.fence + 1, owner=None, lease_until=None)
    .returning(*COLUMNS),
    row=Operation,
)
_RESUME = Statement(
    sa.update(operations)
    .where(operations.c.id == text_param("key"), operations.c.state == STUCK)
    .values(state=READY, attempts=0)
    .returning(NOTIFY)
)


async def record(
    tx: Tx, op: Operation, events: Sequence[Event], *, consumed: bool, logged_round: int | None = None
) -> None:
    """Write the engine's copy back and its events; raises FencedOut where the fence has moved. One statement.

    Brings ``state``, ``wakes``, ``cancel`` and ``inbox`` of the copy up to date. The events belong to
    ``logged_round``, by default the operation's.
    """
    rows = [
        {"step": e.step, "event": e.event, "data": msgspec.to_builtins(e.data, enc_hook=str)} for e in events
    ]
    recorded = await _RECORD.first(
        tx,
        key=op.id,
        held=op.fence,
        seen=op.wakes,
        known=op.cancel,
        wanted=op.state,
        version=op.version,
        direction=op.direction,
        step=op.step,
        sent=op.sent,
        round=op.round,
        attempts=op.attempts,
        undo_to=op.undo_to,
        data=op.data,
        refusals=op.refusals,
        consumed=consumed,
        error=op.error,
        wake_at=op.wake_at,
        events=rows,
        logged_round=op.round if logged_round is None else logged_round,
    )
    if recorded is None:
        raise FencedOut(op.id)
    op.state, op.wakes, op.cancel, op.inbox = recorded


async def signal(tx: Tx, *subjects: str) -> None:
    """Something happened to these subjects: operations parked at a wait step look again."""
    await _SIGNAL.run(tx, subjects=list(subjects))


async def complete(
    tx: Tx,
    *,
    operation: str,
    fence: int,
    command: str,
    outcome: str,
    data: Any = None,
    error: Any = None,
) -> bool:
    """A host's result for a command of an operation; False where nobody waits for it any more."""
    result = {"outcome": outcome, "data": data, "error": error}
    count = await _COMPLETE.run(tx, key=operation, sent_fence=fence, command=command, result=result)
    return count > 0


async def cancel(tx: Tx, subject: str, *, kinds: Sequence[str]) -> bool:
    """Ask the open operations of these kinds to stop at their next safe point and undo; whether there was one.

    Only for an operation that gives back all that the subject holds: what they cannot undo is left to it.
    """
    return await _CANCEL.run(tx, of=subject, kinds=list(kinds)) > 0


async def locked(tx: Tx, operation_id: str) -> Operation:
    """One operation, held until the transaction ends; raises NotFound."""
    return await _LOCKED.one(tx, key=operation_id)


async def seize(tx: Tx, operation_id: str) -> Operation:
    """Take an operation from whoever drives it, with a new fence; raises NotFound."""
    return await _SEIZE.one(tx, key=operation_id)


async def get(tx: Tx, operation_id: str) -> Operation:
    """One operation; raises NotFound."""
    return await _BY_ID.one(tx, key=operation_id)


async def resume(tx: Tx, operation_id: str) -> bool:
    """Let a stuck operation try again; whether it was stuck."""
    return await _RESUME.run(tx, key=operation_id) > 0
