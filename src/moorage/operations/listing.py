"""Operations as operators see them: lists, and one with its log and what it waits for."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.core.errors import BadRequest, NotFound
from moorage.operations.model import FINISHED, OPEN
from moorage.operations.tables import operation_steps, operations
from moorage.store.database import Tx
from moorage.store.statement import Statement, query, text_param


class OperationView(msgspec.Struct, frozen=True):
    """One operation, without what steps keep for themselves.

    ``host`` is the one that was asked last, ``room`` the one that has as much to do as it may; ``undo_error`` why the
    last try to undo failed; ``attempts`` counts the tries of the present step that failed.
    """

    id: str
    kind: str
    version: int
    state: str
    direction: str
    subject: str
    project: str
    step: str
    round: int
    attempts: int
    cancel: bool
    sent: bool
    host: str | None
    room: str | None
    error: dict[str, Any] | None
    undo_error: dict[str, Any] | None
    refusals: list[dict[str, Any]]
    owner: str | None
    fence: int
    lease_until: datetime | None
    wake_at: datetime | None
    until: str | None
    request_id: str | None
    created_at: datetime
    updated_at: datetime | None


class StepView(msgspec.Struct, frozen=True):
    """One line of an operation's log. ``data``: what a host was asked, or the error or refusal."""

    step: str
    event: str
    round: int
    fence: int
    at: datetime
    data: Any


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """``state``: open (all that have not ended), all, or one; ``marker``: the id after which a page begins."""

    state: str = "open"
    kind: str | None = None
    subject: str | None = None
    project: str | None = None
    marker: str | None = None
    limit: int = 100


_FROM_DATA = {
    "host": operations.c.data["_host"].astext,
    "room": operations.c.data["_room"].astext,
    "undo_error": operations.c.data["_undo_error"],
    "until": operations.c.data["_until"].astext,
}
_VIEW = sa.select(
    *[
        _FROM_DATA[name].label(name) if name in _FROM_DATA else operations.c[name]
        for name in OperationView.__struct_fields__
    ]
)
_ONE = Statement(_VIEW.where(operations.c.id == text_param("key")), row=OperationView)
_SEQ: Statement[tuple[int]] = Statement(
    sa.select(operations.c.seq).where(operations.c.id == text_param("key"))
)
_LOG = Statement(
    sa.select(*[operation_steps.c[name] for name in StepView.__struct_fields__])
    .where(operation_steps.c.operation == text_param("key"))
    .order_by(operation_steps.c.at),
    row=StepView,
)
_this = operations.alias("this")
_AHEAD = Statement(
    _VIEW.join(_this, _this.c.subject == operations.c.subject)
    .where(
        _this.c.id == text_param("key"),
        operations.c.id != _this.c.id,
        operations.c.state.in_(OPEN),
        sa.or_(operations.c.fence > 0, sa.and_(_this.c.fence == 0, operations.c.seq < _this.c.seq)),
    )
    .order_by(operations.c.seq)
    .limit(1),
    row=OperationView,
)
_PRUNE = Statement(
    sa.delete(operations).where(
        operations.c.state.in_(FINISHED),
        operations.c.updated_at < sa.func.now() - sa.bindparam("age", type_=sa.Interval),
    )
)


async def operations_of(tx: Tx, wanted: Filter) -> list[OperationView]:
    """Newest first; raises BadRequest for a state or marker that does not exist."""
    states = {"open": OPEN, "all": None, **{s: (s,) for s in (*OPEN, *FINISHED)}}
    if wanted.state not in states:
        raise BadRequest(f"state must be one of {', '.join(states)}", field="state")
    select = _VIEW.order_by(operations.c.seq.desc()).limit(wanted.limit)
    if (among := states[wanted.state]) is not None:
        select = select.where(operations.c.state.in_(among))
    for name in ("kind", "subject", "project"):
        if (value := getattr(wanted, name)) is not None:
            select = select.where(operations.c[name] == value)
    if wanted.marker is not None:
        seq = await _SEQ.scalar(tx, key=wanted.marker)
        if seq is None:
            raise BadRequest(f"there is no operation {wanted.marker}", field="marker")
        select = select.where(operations.c.seq < seq)
    return await query(tx, select, OperationView)


async def one(tx: Tx, operation_id: str) -> OperationView:
    """One operation; raises NotFound."""
    found = await _ONE.first(tx, key=operation_id)
    if found is None:
        raise NotFound(f"there is no operation {operation_id}", code="operation.not_found")
    return found


async def log_of(tx: Tx, operation_id: str) -> list[StepView]:
    """Its log, oldest first."""
    return await _LOG.all(tx, key=operation_id)


async def ahead_of(tx: Tx, operation_id: str) -> OperationView | None:
    """The operation of the same subject for which it has to wait."""
    return await _AHEAD.first(tx, key=operation_id)


async def prune(tx: Tx, *, older_than: timedelta) -> int:
    """Forget operations that ended so long ago; how many."""
    return await _PRUNE.run(tx, age=older_than)
