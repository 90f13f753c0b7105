"""The handlers of /moorage/v1/operations."""

from typing import Annotated, Any

import msgspec

from moorage.api import Call
from moorage.api.paging import next_link
from moorage.operations.listing import Filter, OperationView, StepView
from moorage.operations.service import OperationsService
from moorage.operations.waits import Wait

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class OperationsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``state``: open (default), all, or one state; ``subject``: such as server:ID; ``marker``: the last id seen."""

    state: str = "open"
    kind: str | None = None
    subject: str | None = None
    project: str | None = None
    marker: str | None = None
    limit: Limit = 100


class ShownOperation(OperationView, frozen=True, kw_only=True):
    """With what it waits for, and its log, oldest line first."""

    waits_for: Wait | None
    log: list[StepView]


class Undone(msgspec.Struct):
    """A step whose undo nobody will do. ``undo``: None where this release does not know the step."""

    step: str
    undo: str | None
    what: str
    host: str | None


class AbandonedOperation(msgspec.Struct):
    id: str
    state: str
    left: list[Undone]


async def index(call: Call[OperationsService]) -> Any:
    """A page of operations, newest first."""
    given = msgspec.structs.asdict(call.query)
    found = await call.app.list(Filter(**given))
    answer: dict[str, Any] = {"operations": found}
    if len(found) == call.query.limit:
        answer["operations_links"] = [next_link(call.url("/operations"), given, found[-1].id)]
    return answer


async def show(call: Call[OperationsService]) -> Any:
    """One operation: its log, and what it waits for."""
    return {"operation": await call.app.show(call.path["operation_id"])}


async def resume(call: Call[OperationsService]) -> None:
    """Let a stuck operation try again at once."""
    await call.app.resume(call.path["operation_id"])


async def abandon(call: Call[OperationsService]) -> Any:
    """Give up an operation whose undo does not end."""
    by = call.context.user_id or ""
    return {"operation": await call.app.abandon(call.path["operation_id"], by=by)}
