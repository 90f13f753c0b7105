"""The durable side: every read and write of the operation tables.

Each function runs in the caller's transaction. Waking the runners is part of the same statement that makes an
operation ready (``pg_notify`` in RETURNING), so that it costs no round trip of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog
from sqlalchemy.dialects.postgresql import insert

from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.operations.definition import NORMAL, Definition
from moorage.operations.model import OPEN, READY, RUNNING, STUCK, WAITING, Event, FencedOut, Operation
from moorage.operations.tables import operation_steps, operations
from moorage.store.database import Tx
from moorage.store.schema import Json, Timestamp
from moorage.store.statement import Statement, text_param, texts_param

log = get_logger(__name__)
CHANNEL = "operations"
_NOTIFY = sa.func.pg_notify(CHANNEL, "").cast(sa.Text)
# Written into the statements as literals, so that the partial indexes fit.
_OPEN_STATES: sa.BindParameter[Any] = sa.bindparam("open_states", OPEN, expanding=True, literal_execute=True)
_OPEN = operations.c.state.in_(_OPEN_STATES)
_COLUMNS = [operations.c[name] for name in Operation.__struct_fields__]


def _p(name: str, kind: Any) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=kind)


_queued = operations.alias("queued")
# As start-time fair queueing: one turn after the project's last that has not begun, and no earlier than what has its
# turn now. A project that asks for a thousand has its last a thousand turns away; another's first comes next.
_waits = sa.and_(
    _queued.c.state == sa.literal_column("'ready'"),
    _queued.c.fence == sa.literal_column("0"),
    _queued.c.priority == _p("priority", sa.Integer),
)
_TURN = sa.func.greatest(
    sa.select(sa.func.max(_queued.c.turn) + 1)
    .where(_waits, _queued.c.project == text_param("project"))
    .scalar_subquery(),
    sa.select(sa.func.min(_queued.c.turn)).where(_waits).scalar_subquery(),
    sa.literal_column("1"),
)
_SUBMIT = Statement(
    sa.insert(operations)
    .values(
        id=text_param("id"),
        kind=text_param("kind"),
        version=_p("version", sa.Integer),
        state=READY,
        priority=_p("priority", sa.Integer),
        subject=text_param("subject"),
        project=text_param("project"),
        turn=_TURN,
        params=_p("params", Json),
        step=text_param("step"),
        data=_p("data", Json),
        refusals=_p("refusals", Json),
        request_id=text_param("request_id"),
    )
    .returning(_NOTIFY)
)

_other = operations.alias("other")
# Eligible: ready, or due, or left by a dead owner; of a kind and version that the conductor knows; no other of the same
# subject has begun, and where this one has not either, none is older.
_ELIGIBLE = sa.and_(
    _OPEN,
    sa.or_(
        operations.c.state == READY,
        sa.and_(operations.c.state.in_((WAITING, STUCK)), operations.c.wake_at <= sa.func.now()),
        sa.and_(operations.c.state == RUNNING, operations.c.lease_until < sa.func.now()),
    ),
    sa.func.concat(operations.c.kind, "/", operations.c.version) == sa.any_(texts_param("known")),
    ~sa.exists().where(
        _other.c.subject == operations.c.subject,
        _other.c.id != operations.c.id,
        sa.or_(_other.c.fence > 0, sa.and_(operations.c.fence == 0, _other.c.seq < operations.c.seq)),
        _other.c.state.in_(_OPEN_STATES),
    ),
)


_limit, _normal_limit = _p("limit", sa.Integer), _p("normal_limit", sa.Integer)


def _first(name: str, which: Any, limit: sa.BindParameter[Any]) -> sa.CTE:
    return (
        sa.select(operations.c.id)
        .where(which, _ELIGIBLE)
        .order_by(operations.c.priority, operations.c.turn, operations.c.seq)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte(name)
    )


# Urgent ones may take every free place, the others leave some free. What has begun has turn 0: it is finished before
# more is begun.
_NORMAL = sa.literal_column(str(NORMAL), sa.Integer)
_urgent = _first("urgent", operations.c.priority < _NORMAL, _limit)
_normal = _first("normal", operations.c.priority >= _NORMAL, _normal_limit)
_chosen = (
    sa.union_all(
        sa.select(_urgent.c.id, sa.literal_column("0").label("class")),
        sa.select(_normal.c.id, sa.literal_column("1").label("class")),
    )
    .order_by("class")
    .limit(_limit)
    .subquery()
)
_CLAIM = Statement(
    sa.update(operations)
    .where(operations.c.id == sa.any_(sa.func.array(sa.select(_chosen.c.id).scalar_subquery())))
    .values(
        state=RUNNING,
        turn=0,
        owner=text_param("owner"),
        fence=operations.c.fence + 1,
        lease_until=sa.func.now() + _p("lease", sa.Interval),
        updated_at=sa.func.now(),
    )
    .returning(*_COLUMNS),
    row=Operation,
)

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
# one round (a retried undo) is kept once.
_EVENTS = sa.func.jsonb_array_elements(_p("events", Json)).table_valued(sa.column("value", Json), name="e")
_LOGGED = (
    insert(operation_steps)
    .from_select(
        ["operation", "round", "step", "event", "fence", "data"],
        sa.select(
            _UPDATED.c.id,
            _p("logged_round", sa.Integer),
            _EVENTS.c.value["step"].astext,
            _EVENTS.c.value["event"].astext,
            _p("held", sa.BigInteger),
            _EVENTS.c.value["data"],
        ).select_from(sa.join(_UPDATED, _EVENTS, sa.true())),
    )
    .on_conflict_do_nothing()
    .cte("logged")
)
_RECORD = Statement(
    sa.select(_UPDATED.c.state, _UPDATED.c.wakes, _UPDATED.c.cancel, _UPDATED.c.inbox).add_cte(_LOGGED)
)
_RENEW = Statement(
    sa.update(operations)
    .where(
        operations.c.id == sa.any_(texts_param("ids")),
        operations.c.owner == text_param("owner"),
        operations.c.state == RUNNING,
    )
    .values(lease_until=sa.func.now() + _p("lease", sa.Interval))
)
_owned = sa.and_(operations.c.owner == text_param("owner"), operations.c.state == RUNNING)
_YIELD = Statement(
    sa.update(operations).where(_owned).values(state=READY, lease_until=None).returning(_NOTIFY)
)
_YIELD_SOME = Statement(
    sa.update(operations)
    .where(_owned, operations.c.id == sa.any_(texts_param("ids")))
    .values(state=READY, lease_until=None)
    .returning(_NOTIFY)
)
_READIED = sa.case((operations.c.state == WAITING, READY), else_=operations.c.state)
_SIGNAL = Statement(
    sa.update(operations)
    .where(operations.c.subject == sa.any_(texts_param("subjects")), _OPEN)
    .values(
        wakes=operations.c.wakes + 1, state=sa.case((operations.c.sent, operations.c.state), else_=_READIED)
    )
    .returning(_NOTIFY)
)
_COMPLETE = Statement(
    sa.update(operations)
    .where(
        operations.c.id == text_param("key"),
        operations.c.sent,
        operations.c.fence >= _p("sent_fence", sa.BigInteger),
        operations.c.data["_command"].astext == text_param("command"),
        _OPEN,
    )
    .values(inbox=_p("result", Json), wakes=operations.c.wakes + 1, state=_READIED)
    .returning(_NOTIFY)
)
_CANCEL = Statement(
    sa.update(operations)
    .where(
        operations.c.subject == text_param("of"),
        operations.c.kind == sa.any_(texts_param("kinds")),
        _OPEN,
    )
    .values(
        cancel=True,
        wakes=operations.c.wakes + 1,
        state=sa.case((operations.c.state.in_((WAITING, STUCK)), READY), else_=operations.c.state),
    )
    .returning(_NOTIFY)
)
_BY_ID = Statement(sa.select(*_COLUMNS).where(operations.c.id == text_param("key")), row=Operation)
_LOCKED = Statement(
    sa.select(*_COLUMNS).where(operations.c.id == text_param("key")).with_for_update(), row=Operation
)
_SEIZE = Statement(
    sa.update(operations)
    .where(operations.c.id == text_param("key"))
    .values(fence=operations.c.fence + 1, owner=None, lease_until=None)
    .returning(*_COLUMNS),
    row=Operation,
)
# What no conductor takes: kind and version of open operations that are not among those known.
_UNKNOWN = Statement(
    sa.select(operations.c.kind, operations.c.version, sa.func.count())
    .where(
        _OPEN, sa.func.concat(operations.c.kind, "/", operations.c.version) != sa.all_(texts_param("known"))
    )
    .group_by(operations.c.kind, operations.c.version)
)
_RESUME = Statement(
    sa.update(operations)
    .where(operations.c.id == text_param("key"), operations.c.state == STUCK)
    .values(state=READY, attempts=0)
    .returning(_NOTIFY)
)


async def submit(
    tx: Tx, definition: Definition, *, subject: str, params: Mapping[str, Any], project: str = ""
) -> str:
    """Begin an operation with the caller's transaction; its id. One statement.

    ``project``: whose it is; projects take turns.
    """
    operation_id = new_id()
    bound = structlog.contextvars.get_contextvars()
    await _SUBMIT.run(
        tx,
        id=operation_id,
        kind=definition.kind,
        version=definition.version,
        priority=definition.priority,
        subject=subject,
        project=project,
        params=dict(params),
        step=definition.steps[0].name,
        data={},
        refusals=[],
        request_id=bound.get("request_id"),
    )
    log.info("operation.submitted", operation_id=operation_id, kind=definition.kind, subject=subject)
    return operation_id


async def claim(
    tx: Tx, *, owner: str, known: Sequence[str], limit: int, normal_limit: int, lease: Any
) -> list[Operation]:
    """Take up to ``limit`` operations that are ready, each with a new fence; of those that are not urgent up to
    ``normal_limit``. ``known``: "kind/version" of those that can be driven.

    Raises UniqueViolation where another conductor took another operation of the same subject at the same time.
    """
    return await _CLAIM.all(
        tx, owner=owner, known=list(known), limit=limit, normal_limit=max(normal_limit, 0), lease=lease
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


async def renew(tx: Tx, *, owner: str, ids: Sequence[str], lease: Any) -> None:
    """Hold the leases of running operations longer."""
    await _RENEW.run(tx, owner=owner, ids=list(ids), lease=lease)


async def hand_over(tx: Tx, *, owner: str) -> None:
    """Give up every lease at once: an orderly stop."""
    await _YIELD.run(tx, owner=owner)


async def give_back(tx: Tx, *, owner: str, ids: Sequence[str]) -> None:
    """Give up the leases of these: they were interrupted, and whoever is free goes on with them."""
    await _YIELD_SOME.run(tx, owner=owner, ids=list(ids))


async def unknown(tx: Tx, known: Sequence[str]) -> list[tuple[str, int, int]]:
    """(kind, version, how many) of open operations that a conductor with these definitions leaves alone."""
    return [(r[0], r[1], r[2]) for r in await _UNKNOWN.all(tx, known=list(known))]


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
