"""The row of an operation as the engine holds it, and the states it passes through."""

from datetime import datetime
from typing import Any

import msgspec

from moorage.core.errors import MoorageError

READY, RUNNING, WAITING, DONE, FAILED, CANCELLED, STUCK, ABANDONED = (
    "ready",
    "running",
    "waiting",
    "done",
    "failed",
    "cancelled",
    "stuck",
    "abandoned",
)
OPEN = (READY, RUNNING, WAITING, STUCK)
FINISHED = (DONE, FAILED, CANCELLED, ABANDONED)
STATES = (*OPEN, *FINISHED)
FORWARD, UNDO = "forward", "undo"


class Operation(msgspec.Struct):
    """One operation under way. The engine changes its copy and writes it back under the fence."""

    id: str
    kind: str
    version: int
    state: str
    direction: str
    subject: str
    params: dict[str, Any]
    step: str
    sent: bool
    round: int
    attempts: int
    undo_to: str | None
    data: dict[str, Any]
    refusals: list[dict[str, Any]]
    inbox: dict[str, Any] | None
    error: dict[str, Any] | None
    cancel: bool
    wakes: int
    fence: int
    wake_at: datetime | None
    request_id: str | None
    created_at: datetime


class Event(msgspec.Struct, frozen=True):
    """One line of the log, to be written with the next record."""

    step: str
    event: str
    data: Any = None


class FencedOut(Exception):
    """Another conductor has taken this operation over; this one must not touch it again."""


def error_of(error: BaseException) -> dict[str, Any]:
    """The stored form of a failure: code, message, typed details."""
    if isinstance(error, MoorageError):
        details = msgspec.to_builtins(error.details, enc_hook=str)
        return {"code": error.code, "message": error.message, "status": error.status, "details": details}
    return {
        "code": "internal",
        "message": "Unexpected fault; the log has it under the operation's id.",
        "status": 500,
        "details": {"type": type(error).__name__},
    }
