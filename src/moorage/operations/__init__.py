"""Long work: operations of named steps with undo, a durable log, leases with fences.

Start at ``definition`` (what an operation is), then ``engine`` (how one is driven), ``runner`` (who drives it).
"""

from moorage.operations.definition import (
    Command,
    Definition,
    Refusal,
    Step,
    back_to,
    local,
    operation,
    remote,
    wait,
)
from moorage.operations.journal import cancel, complete, signal, submit
from moorage.operations.runner import Runner

__all__ = [
    "Command",
    "Definition",
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
