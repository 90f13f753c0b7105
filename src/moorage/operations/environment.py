"""What every operation of a conductor is driven with."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.operations.definition import Definition, Step
from moorage.operations.faults import Faults, NoFaults
from moorage.operations.metrics import OperationMetrics
from moorage.operations.model import Operation
from moorage.operations.room import Room
from moorage.operations.versions import Catalogue
from moorage.store.database import Database, Tx

Send = Callable[..., Awaitable[str]]
"""Enqueues a command: (tx, host, operation, step, fence, kind, payload) -> command id."""


def _heard(_host: str) -> bool:
    return False


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """A conductor's surroundings.

    app        what steps find as ``step.app``
    silent     whether a host is not heard of any more, so that waiting for it is in vain
    deadlines  seconds that a whole operation may take, by kind, over the definitions' own; 0: no limit
    fuse       consecutive local steps share a transaction
    look       seconds after which an operation that waits for a host looks whether that is still heard of; in twice as
               many, one that waits for room at a host looks at the others
    """

    database: Database
    catalogue: Catalogue
    app: Any
    send: Send
    silent: Callable[[str], bool] = _heard
    deadlines: Mapping[str, float] = {}
    metrics: OperationMetrics
    room: Room
    faults: Faults = NoFaults()
    fuse: bool = True
    look: float = 15.0

    def deadline(self, definition: Definition, op: Operation) -> datetime | None:
        """When ``op`` has to be done, or None."""
        seconds = self.deadlines.get(definition.kind, definition.deadline or 0.0)
        return op.created_at + timedelta(seconds=seconds) if seconds > 0 else None

    def step(self, work: Operation, tx: Tx) -> Step:
        """What a step's function gets."""
        return Step.of(self.app, work, tx, self.room.full_for(work))


def copy_of(op: Operation, **changes: Any) -> Operation:
    """A copy to be changed in a transaction: where that fails, ``op`` is as it was."""
    return msgspec.structs.replace(op, data=dict(op.data), **changes)


def take(env: Environment, op: Operation, work: Operation) -> None:
    """The record is committed: the copy becomes the truth, and a host's answer that it used up is counted."""
    if op.sent and op.inbox is not None and work.inbox is None:
        env.metrics.answered(op)
    for field in work.__struct_fields__:
        setattr(op, field, getattr(work, field))
