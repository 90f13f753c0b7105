"""Long work: operations of named steps with undo, a durable log, leases with fences.

Start at ``definition`` (what an operation is), then ``engine`` and ``undo`` (how one is driven), ``runner`` (who drives
it), ``versions`` (what becomes of those that an earlier release began), ``service`` (what operators do with them).
"""

from moorage.operations.definition import (
    NORMAL,
    URGENT,
    Command,
    Definition,
    Earlier,
    NoRoom,
    Refusal,
    Step,
    back_to,
    local,
    operation,
    remote,
    wait,
)
from moorage.operations.journal import cancel, complete, signal
from moorage.operations.queue import submit
from moorage.operations.runner import Runner
from moorage.operations.service import OperationsService

__all__ = [
    "NORMAL",
    "URGENT",
    "Command",
    "Definition",
    "Earlier",
    "NoRoom",
    "OperationsService",
    "Refusal",
    "Runner",
    "Step",
    "back_to",
    "cancel",
    "complete",
    "local",
    "operation",
    "remote",
    "signal",
    "submit",
    "wait",
]
