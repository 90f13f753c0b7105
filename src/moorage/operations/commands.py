"""The remote side of an operation: its command to a host, and the wait for the answer.

A command is out while ``sent``; ``_command``, ``_host``, ``_sent_at`` and ``_until`` of the operation's data say which,
where, since when and how long it is waited for. Meanwhile the operation looks up now and then: a host that is not heard
of any more will not answer, and there is no point in waiting for the end of its time.
"""

from datetime import datetime, timedelta
from typing import Any

from moorage.core.clock import utcnow
from moorage.core.errors import Unavailable
from moorage.operations.definition import Command, Refusal, StepDefinition
from moorage.operations.environment import Environment
from moorage.operations.model import WAITING, Operation
from moorage.operations.versions import KEPT
from moorage.store.database import Tx

SILENT, NO_RESULT, HOST_FAILED = (
    "operation.host_silent",
    "operation.no_result",
    "operation.host_failed",
)


async def send(env: Environment, work: Operation, step: str, command: Command, tx: Tx) -> None:
    """Enqueue the command of a step, or of its undo, and park."""
    now = utcnow()
    until = now + timedelta(seconds=command.timeout)
    work.sent = True
    for name in ("_room", "_told"):
        work.data.pop(name, None)
    work.data["_host"] = command.host
    work.data["_until"] = until.isoformat()
    work.data["_sent_at"] = now.isoformat()
    work.data["_command"] = await env.send(
        tx,
        host=command.host,
        operation=work.id,
        # Hosts refuse lower fences by the step's name: an operation keeps the names it began with.
        step=work.data.get(KEPT, {}).get(step, step),
        fence=work.fence,
        kind=command.kind,
        payload=command.payload,
    )
    _park(env, work, until)


def wait_for_room(env: Environment, work: Operation, host: str) -> None:
    """Park until something has ended at the host; it looks now and then whether another one has room."""
    work.data["_room"] = host
    work.data.pop("_told", None)
    work.wake_at = utcnow() + timedelta(seconds=2 * env.look)
    work.state = WAITING


def clear(work: Operation) -> None:
    """No command is out any more; a late answer is not heard."""
    work.sent = False
    work.wake_at = None
    for name in ("_command", "_room", "_told", "_sent_at", "_until"):
        work.data.pop(name, None)


def silent(env: Environment, host: str) -> Unavailable | None:
    """The error of waiting for a host that is not heard of."""
    if not env.silent(host):
        return None
    return Unavailable(f"host {host} is not heard of", code=SILENT, host=host)


def refuse_silent(env: Environment, host: str) -> None:
    """Raise Refusal where the host is not heard of."""
    error = silent(env, host)
    if error is not None:
        raise Refusal(error.message, subject=host, code=SILENT)


def keep_waiting(env: Environment, work: Operation, step: str) -> None:
    """Park again for the answer; raises Refusal where its time is over."""
    until = _until(work)
    if until is not None and until <= utcnow():
        host = work.data.get("_host", "")
        raise Refusal(f"host {host} gave no result for {step} in time", subject=host, code=NO_RESULT)
    _park(env, work, until)


def check_outcome(step: StepDefinition, work: Operation, inbox: dict[str, Any]) -> None:
    """Raise what a host's result means: Refusal where another host may be tried."""
    if inbox["outcome"] == "succeeded":
        return
    error = inbox.get("error") or {}
    message = error.get("message") or f"{step.name} {inbox['outcome']}"
    raise Refusal(message, subject=work.data.get("_host", ""), code=error.get("code") or HOST_FAILED)


def _until(work: Operation) -> datetime | None:
    # Rows of the first release have their command's deadline in ``wake_at`` alone.
    kept = work.data.get("_until")
    return datetime.fromisoformat(kept) if kept is not None else work.wake_at


def _park(env: Environment, work: Operation, until: datetime | None) -> None:
    look = utcnow() + timedelta(seconds=env.look)
    if until is not None:
        work.data["_until"] = until.isoformat()
    work.wake_at = look if until is None else min(until, look)
    work.state = WAITING
