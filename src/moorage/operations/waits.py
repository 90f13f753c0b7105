"""What an operation waits for: one in words, many as a column that can be counted."""

from datetime import datetime

import msgspec
import sqlalchemy as sa

from moorage.operations.definition import Definition
from moorage.operations.listing import OperationView
from moorage.operations.model import FINISHED, READY, RUNNING, STUCK, UNDO
from moorage.operations.tables import operations as op_

WAITS_FOR = sa.case(
    (op_.c.state == sa.literal_column("'stuck'"), "operator"),
    (sa.and_(op_.c.state == sa.literal_column("'ready'"), op_.c.fence == 0), "turn"),
    (op_.c.state != sa.literal_column("'waiting'"), "conductor"),
    (op_.c.sent, "host"),
    (op_.c.data.has_key("_room"), "room"),
    (sa.or_(op_.c.direction == sa.literal_column("'undo'"), op_.c.attempts > 0), "retry"),
    else_="event",
)
"""Of an open operation; ``turn``: it has not begun."""


class Wait(msgspec.Struct, frozen=True):
    """``what``: conductor, turn, release, room, host, event, retry or operator; ``words`` say more.

    ``since``: when it began to wait; ``until``: when it goes on by itself, or gives up; None where nobody knows.
    """

    what: str
    words: str
    since: datetime
    until: datetime | None = None


def wait_of(
    op: OperationView, *, definition: Definition | None, ahead: OperationView | None, now: datetime
) -> Wait | None:
    """None for one that has ended. ``definition``: the one that drives it; None where this release has none."""
    since = op.updated_at or op.created_at
    if op.state in FINISHED:
        return None
    if definition is None:
        return Wait("release", f"a conductor that knows {op.kind} version {op.version}", since)
    if op.state == STUCK:
        return Wait("operator", _why_undo_failed(op), since, op.wake_at)
    if ahead is not None:
        words = f"operation {ahead.id} ({ahead.kind}, {ahead.state}) of the same subject"
        return Wait("turn", words, op.created_at)
    if op.state == READY:
        return Wait("conductor", "a conductor with a free place", since)
    if op.state == RUNNING:
        if op.lease_until is not None and op.lease_until < now:
            words = f"another conductor: the lease of {op.owner} has run out"
            return Wait("conductor", words, since, op.lease_until)
        return Wait("conductor", f"conductor {op.owner}, which works on it", since, op.lease_until)
    return _parked(op, definition, since)


def _parked(op: OperationView, definition: Definition, since: datetime) -> Wait:
    until = datetime.fromisoformat(op.until) if op.until is not None else op.wake_at
    undo = "the undo of " if op.direction == UNDO else ""
    if op.sent:
        return Wait("host", f"host {op.host}: {undo}{op.step}", since, until)
    if op.room is not None:
        return Wait("room", f"host {op.room}, which has as much to do as it may", since, op.wake_at)
    if op.attempts or op.direction == UNDO:
        words = _why_undo_failed(op) if undo else f"{op.step} is tried again"
        return Wait("retry", words, since, op.wake_at)
    step = next((s for s in definition.steps if s.name == op.step), None)
    if step is not None and step.kind == "wait":
        return Wait("event", op.step.replace("_", " "), since, until)
    return Wait("retry", f"{op.step} is tried again", since, op.wake_at)


def _why_undo_failed(op: OperationView) -> str:
    why = (op.undo_error or {}).get("message")
    return f"the undo of {op.step} failed {op.attempts} times" + (f", last with: {why}" if why else "")
