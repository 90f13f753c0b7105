"""What an operation is: a name, a version and a table of steps.

``local``   its effect and its record commit in one transaction: it happens exactly once.
``remote``  gives a Command for a host; the command row commits with the record that it was sent, and nothing is
            held while the host works. Its undo gives a Command too, or does its work in the transaction.
``wait``    tells whether something holds by now; if not, the operation is parked until an event or the deadline.

A step that raises fails the operation: what was done is undone, last step first, and ``on_failure`` ends it. A
step that raises Refusal (or whose host refuses) jumps back to the step named by ``on_refusal`` after undoing
down to it, with the refusal kept where the repeated step finds it.

A host that is not heard of any more refuses what it has not answered, unless the step says by ``on_silence`` how the
operation goes on without its answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from moorage.core.errors import MoorageError
from moorage.operations.model import Operation
from moorage.store.database import Tx

Function = Callable[["Step"], Awaitable[Any]]
URGENT, NORMAL = 5, 10
"""Priorities: some of a conductor's places are kept for what is urgent."""


class Refusal(MoorageError):
    """One host (``subject``) does not take the work; another may."""

    status = 409
    code = "operation.refused"

    def __init__(self, message: str, *, subject: str, code: str | None = None, **details: Any) -> None:
        super().__init__(message, code=code, **details)
        self.subject = subject


class NoRoom(MoorageError):
    """One host (``subject``) has as much under way as it may; the operation waits until something there has ended."""

    status = 503
    code = "operation.no_room"

    def __init__(self, message: str, *, subject: str) -> None:
        super().__init__(message)
        self.subject = subject


class Command(msgspec.Struct, frozen=True):
    """What a remote step asks of a host. ``timeout`` seconds without a result fail the step."""

    host: str
    kind: str
    payload: Any
    timeout: float = 600.0


class Step:
    """What a step's function gets: the transaction, the parameters, earlier results by step name.

    ``full``: hosts that take no further work at the moment, and why. A step that chooses one leaves them out, and raises
    NoRoom where it would choose one of them.
    """

    __slots__ = ("app", "data", "error", "full", "operation_id", "params", "refusals", "subject", "tx")

    def __init__(
        self,
        *,
        app: Any,
        tx: Tx,
        operation_id: str,
        subject: str,
        params: Mapping[str, Any],
        data: Mapping[str, Any],
        refusals: list[dict[str, Any]],
        error: dict[str, Any] | None,
        full: Mapping[str, str],
    ) -> None:
        self.app = app
        self.tx = tx
        self.operation_id = operation_id
        self.subject = subject
        self.params = params
        self.data = data
        self.refusals = refusals
        self.error = error
        self.full = full

    @classmethod
    def of(cls, app: Any, op: Operation, tx: Tx, full: Mapping[str, str] | None = None) -> "Step":
        """What the functions of an operation's steps get."""
        return cls(
            app=app,
            tx=tx,
            operation_id=op.id,
            subject=op.subject,
            params=op.params,
            data=op.data,
            refusals=op.refusals,
            error=op.error,
            full=full or {},
        )


class Back(msgspec.Struct, frozen=True):
    """Where a refusal leads: the step to repeat, at most ``limit`` times."""

    step: str
    limit: int = 10


def back_to(function: Function, *, limit: int = 10) -> Back:
    """On refusal: undo down to this step and do it again."""
    return Back(_name(function), limit)


class StepDefinition(msgspec.Struct, frozen=True):
    """One row of an operation's table. ``kind`` is local, remote or wait; ``deadline`` is in seconds.

    ``on_silence`` of a remote step: its host is not heard of; what this returns is the step's result, and the command
    stays in the host's queue for its return.
    """

    name: str
    kind: str
    run: Function
    undo: Function | None = None
    on_refusal: Back | None = None
    deadline: float | Callable[[Any], float] = 600.0
    on_silence: Function | None = None

    def deadline_for(self, app: Any) -> float:
        """The deadline in seconds; some come from configuration."""
        return self.deadline(app) if callable(self.deadline) else self.deadline


def local(run: Function, *, undo: Function | None = None, on_refusal: Back | None = None) -> StepDefinition:
    """A step in our own database."""
    return StepDefinition(_name(run), "local", run, undo, on_refusal)


def remote(
    run: Function,
    *,
    undo: Function | None = None,
    on_refusal: Back | None = None,
    on_silence: Function | None = None,
) -> StepDefinition:
    """A step on a host: ``run`` and ``undo`` return the Command, or None where there is nothing to tell a host."""
    return StepDefinition(_name(run), "remote", run, undo, on_refusal, on_silence=on_silence)


def wait(run: Function, *, deadline: float | Callable[[Any], float]) -> StepDefinition:
    """Until ``run`` returns something true."""
    return StepDefinition(_name(run), "wait", run, None, None, deadline)


class Earlier(msgspec.Struct, frozen=True):
    """How operations that an earlier version began go on.

    steps   its names of steps -> ours, where they differ. A step that is gone leads to the one to go on with; that
            one's undo takes back what the old one did
    unwind  they are not resumed but undone, and end as failed
    """

    steps: Mapping[str, str] = {}
    unwind: bool = False


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """An operation.

    on_failure    runs in the transaction that ends it undone
    on_stuck      runs in the transaction after which it is shown as stuck
    on_abandoned  runs in the transaction in which an operator gives it up; ``step.error["left"]`` is what stays
    priority      lower goes first
    deadline      seconds that the whole of it may take until it is undone; None: no limit. A default: operators set it
    earlier       rules for the versions of earlier releases
    """

    kind: str
    version: int
    steps: tuple[StepDefinition, ...]
    on_failure: Function | None = None
    on_stuck: Function | None = None
    on_abandoned: Function | None = None
    priority: int = NORMAL
    deadline: float | None = None
    earlier: Mapping[int, Earlier] = {}

    def index(self, name: str) -> int:
        """The position of a step; raises KeyError for a name that this version does not have."""
        for i, step in enumerate(self.steps):
            if step.name == name:
                return i
        raise KeyError(name)


def operation(
    kind: str,
    *,
    version: int,
    steps: tuple[StepDefinition, ...],
    on_failure: Function | None = None,
    on_stuck: Function | None = None,
    on_abandoned: Function | None = None,
    priority: int = NORMAL,
    deadline: float | None = None,
    earlier: Mapping[int, Earlier] | None = None,
) -> Definition:
    """Check and make a definition; raises ValueError for a table that cannot be driven."""
    names = [s.name for s in steps]
    if len(set(names)) != len(names):
        raise ValueError(f"{kind}: two steps have one name: {names}")
    for i, step in enumerate(steps):
        if step.on_refusal is not None and step.on_refusal.step not in names[: i + 1]:
            raise ValueError(
                f"{kind}: {step.name} goes back to {step.on_refusal.step}, which is not before it"
            )
    for old, rule in (earlier or {}).items():
        if old >= version or not set(rule.steps.values()) <= set(names):
            raise ValueError(
                f"{kind}: the rule for version {old} leads to no step of version {version}: {rule.steps}"
            )
    return Definition(
        kind=kind,
        version=version,
        steps=steps,
        on_failure=on_failure,
        on_stuck=on_stuck,
        on_abandoned=on_abandoned,
        priority=priority,
        deadline=deadline,
        earlier=earlier or {},
    )


def _name(function: Function) -> str:
    return str(function.__name__)
