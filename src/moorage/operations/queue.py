"""What has not begun and who drives what has: submitting, claiming, leases.

Each function runs in the caller's transaction. Waking the runners is part of the same statement that makes an
operation ready (``pg_notify`` in RETURNING), so that it costs no round trip of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
import structlog

from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.operations.definition import NORMAL, Definition
from moorage.operations.model import OPEN, READY, RUNNING, STUCK, WAITING, Operation
from moorage.operations.tables import operations
from moorage.store.database import Tx
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param, texts_param

log = get_logger(__name__)
CHANNEL = "operations"
NOTIFY = sa.func.pg_notify(CHANNEL, "").cast(sa.Text)
# Written into the statements as literals, so that the partial indexes fit.
_OPEN_STATES: sa.BindParameter[Any] = sa.bindparam("open_states", OPEN, expanding=True, literal_execute=True)
IS_OPEN = operations.c.state.in_(_OPEN_STATES)
COLUMNS = [operations.c[name] for name in Operation.__struct_fields__]


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
    .returning(NOTIFY)
)

_other = operations.alias("other")
# Eligible: ready, or due, or left by a dead owner; of a kind and version that the conductor knows; no other of the same
# subject has begun, and where this one has not either, none is older.
_ELIGIBLE = sa.and_(
    IS_OPEN,
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
_at_hosts = _p("at_hosts", sa.Integer)


def _first(name: str, which: Any, limit: Any) -> sa.CTE:
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
_there = operations.alias("there")


def _counted(*which: Any) -> Any:
    return (
        sa.select(sa.func.count().cast(sa.Integer))
        .where(_there.c.state.in_(_OPEN_STATES), _there.c.priority >= _NORMAL, *which)
        .scalar_subquery()
    )


# Those that are under way at hosts, and those that are about to be; each by a partial index.
_sent = _counted(_there.c.sent)
_driven = _counted(_there.c.fence > 0, _there.c.state == sa.literal_column("'running'"), ~_there.c.sent)
_new_limit = sa.case((_at_hosts > 0, sa.func.greatest(_at_hosts - _sent - _driven, 0)), else_=_normal_limit)
_new = operations.c.fence == 0
_urgent = _first("urgent", operations.c.priority < _NORMAL, _limit)
_begun = _first("begun", sa.and_(operations.c.priority >= _NORMAL, ~_new), _normal_limit)
_others = _first(
    "others", sa.and_(operations.c.priority >= _NORMAL, _new), sa.func.least(_normal_limit, _new_limit)
)
_normal = (
    sa.union_all(
        sa.select(_begun.c.id, sa.literal_column("1").label("class")),
        sa.select(_others.c.id, sa.literal_column("2").label("class")),
    )
    .order_by("class")
    .limit(_normal_limit)
    .subquery()
)
_chosen = (
    sa.union_all(
        sa.select(_urgent.c.id, sa.literal_column("0").label("class")),
        sa.select(_normal.c.id, _normal.c["class"]),
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
    .returning(*COLUMNS),
    row=Operation,
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
    sa.update(operations).where(_owned).values(state=READY, lease_until=None).returning(NOTIFY)
)
_YIELD_SOME = Statement(
    sa.update(operations)
    .where(_owned, operations.c.id == sa.any_(texts_param("ids")))
    .values(state=READY, lease_until=None)
    .returning(NOTIFY)
)
# What no conductor takes: kind and version of open operations that are not among those known.
_UNKNOWN = Statement(
    sa.select(operations.c.kind, operations.c.version, sa.func.count())
    .where(
        IS_OPEN, sa.func.concat(operations.c.kind, "/", operations.c.version) != sa.all_(texts_param("known"))
    )
    .group_by(operations.c.kind, operations.c.version)
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
    tx: Tx, *, owner: str, known: Sequence[str], limit: int, normal_limit: int, at_hosts: int, lease: Any
) -> list[Operation]:
    """Take up to ``limit`` operations that are ready, each with a new fence; of those that are not urgent up to
    ``normal_limit``, and new ones only while fewer than ``at_hosts`` (0: no limit) are under way at hosts. ``known``:
    "kind/version" of those that can be driven.

    Raises UniqueViolation where another conductor took another operation of the same subject at the same time.
    """
    return await _CLAIM.all(
        tx,
        owner=owner,
        known=list(known),
        limit=limit,
        normal_limit=max(normal_limit, 0),
        at_hosts=at_hosts,
        lease=lease,
    )


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
