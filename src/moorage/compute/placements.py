"""Why a server is where it is: the plan of each attempt to place it, kept as the scheduler made it."""

import hashlib
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.compute.model import PlacementRecord
from moorage.compute.tables import placements
from moorage.scheduling.plan import PlanRecord
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param

_LIST = Statement(
    sa.select(placements)
    .where(placements.c.server_id == text_param("server_id"))
    .order_by(placements.c.attempt),
    row=PlacementRecord,
)


async def of_server(tx: Tx, server_id: str) -> list[PlacementRecord]:
    """The plans of all attempts, first one first."""
    return await _LIST.all(tx, server_id=server_id)


def host_alias(project_id: str, host: str) -> str:
    """The name a project knows a host by: the same for all its servers there, and no other project's."""
    return hashlib.sha224((project_id + host).encode()).hexdigest()


def for_owner(record: PlacementRecord, project_id: str) -> dict[str, Any]:
    """The plan without other projects' figures and operators' names for hosts."""
    plan = msgspec.convert(record.plan, PlanRecord).for_owner(lambda host: host_alias(project_id, host))
    chosen = record.plan.get("chosen")
    shown: dict[str, Any] = msgspec.to_builtins(plan)
    return {**shown, "chosen": None if chosen is None else host_alias(project_id, chosen)}
