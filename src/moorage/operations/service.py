"""What operators do with operations: look, let a stuck one try again, give one up."""

from collections.abc import Iterable
from typing import Any

import msgspec

from moorage.core.clock import iso, utcnow
from moorage.core.errors import Conflict
from moorage.core.log import get_logger
from moorage.operations import journal, listing
from moorage.operations.definition import Definition, Step
from moorage.operations.listing import Filter, OperationView
from moorage.operations.metrics import OperationMetrics
from moorage.operations.model import ABANDONED, READY, STUCK, UNDO, WAITING, Operation
from moorage.operations.undo import give_up, leftovers
from moorage.operations.versions import Catalogue
from moorage.operations.waits import wait_of
from moorage.store.database import Database

log = get_logger(__name__)


class OperationsService:
    """``app``: what steps find as ``step.app``; ``metrics`` count what is given up."""

    def __init__(
        self, database: Database, definitions: Iterable[Definition], app: Any, metrics: OperationMetrics
    ) -> None:
        self.database = database
        self._catalogue = Catalogue(definitions)
        self._app = app
        self._metrics = metrics

    async def list(self, wanted: Filter) -> list[OperationView]:
        """Newest first; raises BadRequest."""
        async with self.database.read() as tx:
            return await listing.operations_of(tx, wanted)

    async def show(self, operation_id: str) -> dict[str, Any]:
        """One operation with ``waits_for`` and its ``log``; raises NotFound."""
        async with self.database.read() as tx:
            found = await listing.one(tx, operation_id)
            lines = await listing.log_of(tx, operation_id)
            ahead = await listing.ahead_of(tx, operation_id)
        waits = wait_of(found, definition=self._definition(found), ahead=ahead, now=utcnow())
        return {**msgspec.structs.asdict(found), "waits_for": waits, "log": lines}

    async def resume(self, operation_id: str) -> None:
        """Let a stuck operation try again at once; raises NotFound, Conflict for one that is not stuck."""
        async with self.database.transaction() as tx:
            if not await journal.resume(tx, operation_id):
                found = await listing.one(tx, operation_id)
                raise Conflict(
                    f"Operation {operation_id} is {found.state}: only one that is stuck can be resumed.",
                    code="operation.not_stuck",
                )
        log.info("operation.resumed", operation_id=operation_id)

    async def abandon(self, operation_id: str, *, by: str) -> dict[str, Any]:
        """Give up an operation whose undo does not end: it ends as it is, and ``left`` says what nobody takes back.

        Raises NotFound; Conflict for one that a conductor can still bring to its end, or of a kind that this
        release does not have.
        """
        async with self.database.transaction() as tx:
            op = await journal.locked(tx, operation_id)
            definition = self._to_abandon(op)
            op = await journal.seize(tx, operation_id)
            left = leftovers(definition, op)
            op.error = {
                **(op.error or {"code": "operation.abandoned", "message": "abandoned", "details": {}}),
                "abandoned": {"by": by, "at": iso(utcnow())},
                "left": left,
            }
            op.state = ABANDONED
            events = give_up(definition, op)
            if definition.on_abandoned is not None:
                await definition.on_abandoned(Step.of(self._app, op, tx))
            await journal.record(tx, op, events, consumed=True)
        self._metrics.ended(op)
        log.warning("operation.abandoned", operation_id=operation_id, kind=op.kind, by=by, left=left)
        return {"id": operation_id, "state": op.state, "left": left}

    def _definition(self, op: Operation | OperationView) -> Definition | None:
        known = self._catalogue.knows(op.kind, op.version)
        return self._catalogue.definitions[op.kind] if known else None

    def _to_abandon(self, op: Operation) -> Definition:
        definition = self._catalogue.definitions.get(op.kind)
        if definition is None:
            raise Conflict(
                f"This release has no {op.kind}: abandon operation {op.id} with the one that began it.",
                code="operation.unknown",
            )
        backward = op.direction == UNDO and op.state in (WAITING, READY)
        nobodys = not self._catalogue.knows(op.kind, op.version) and op.state in (WAITING, READY)
        if op.state != STUCK and not backward and not nobodys:
            raise Conflict(
                f"Operation {op.id} is {op.state}, {op.direction}: only one that is stuck, or is being undone, can be "
                "abandoned.",
                code="operation.not_stuck",
            )
        return definition
