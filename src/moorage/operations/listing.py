"""Operations as operators see them: lists, one with its log, and the order to try again."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.core.errors import NotFound
from moorage.operations import journal
from moorage.operations.tables import operation_steps, operations
from moorage.store.database import Tx
from moorage.store.statement import Statement, query, text_param


class OperationView(msgspec.Struct, frozen=True):
    """One operation, without what steps keep for themselves."""

    id: str
    kind: str
    version: int
    state: str
    direction: str
    subject: str
    step: str
    error: dict[str, Any] | None
    refusals: list[dict[str, Any]]
    owner: str | None
    request_id: str | None
    created_at: datetime
    updated_at: datetime | None


class StepView(msgspec.Struct, frozen=True):
    """One line of an operation's log."""

    step: str
    event: str
    round: int
    at: datetime
    data: Any


_VIEW = sa.select(*[operations.c[name] for name in OperationView.__struct_fields__])
_ONE = Statement(_VIEW.where(operations.c.id == text_param("key")), row=OperationView)
_LOG = Statement(
    sa.select(*[operation_steps.c[name] for name in StepView.__struct_fields__])
    .where(operation_steps.c.operation == text_param("key"))
    .order_by(operation_steps.c.at),
    row=StepView,
)
_PRUNE = Statement(
    sa.delete(operations).where(
        operations.c.state.in_(("done", "failed", "cancelled")),
        operations.c.updated_at < sa.func.now() - sa.bindparam("age", type_=sa.Interval),
    )
)
_OPEN = ("ready", "running", "waiting", "stuck")


async def operations_of(tx: Tx, *, subject: str | None, state: str, limit: int) -> list[OperationView]:
    """Newest first; ``state`` "open" means all that are not finished, "all" every one."""
    select = _VIEW.order_by(operations.c.seq.desc()).limit(limit)
    if subject is not None:
        select = select.where(operations.c.subject == subject)
    if state != "all":
        select = select.where(operations.c.state.in_(_OPEN if state == "open" else (state,)))
    return await query(tx, select, OperationView)


async def with_log(tx: Tx, operation_id: str) -> dict[str, Any]:
    """One operation with its log; raises NotFound."""
    found = await _ONE.first(tx, key=operation_id)
    if found is None:
        raise NotFound(f"there is no operation {operation_id}")
    return {**msgspec.structs.asdict(found), "log": await _LOG.all(tx, key=operation_id)}


async def prune(tx: Tx, *, older_than: timedelta) -> int:
    """Forget operations that ended so long ago; how many."""
    return await _PRUNE.run(tx, age=older_than)


async def resume(tx: Tx, operation_id: str) -> bool:
    """Let a stuck operation try again; whether it was stuck."""
    return await journal.resume(tx, operation_id)
