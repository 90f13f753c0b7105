"""Forgetting: rows that only the recent past needs are deleted, so that no table grows without end."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from moorage.agentlink.service import AgentLink
from moorage.operations import listing
from moorage.placement.service import PlacementService
from moorage.store.database import Database


class Housekeeping:
    """A reconciler: commands and operations that ended ``keep`` ago, hosts' certificates and enrolment tokens that
    have expired, and old rows of placement's change log.
    """

    name = "housekeeping"
    channel: str | None = None
    interval = 300.0

    def __init__(
        self,
        database: Database,
        link: AgentLink,
        placement: PlacementService,
        *,
        keep_changes: timedelta,
        keep: timedelta = timedelta(days=7),
    ) -> None:
        self._database = database
        self._link = link
        self._placement = placement
        self._keep_changes = keep_changes
        self._keep = keep

    async def reconcile(self) -> Mapping[str, Any]:
        """One pass; how many rows of each went."""
        async with self._database.transaction() as tx:
            return {
                "commands": await self._link.prune(tx, older_than=self._keep),
                "certificates": await self._link.enrolment.prune(tx),
                "changes": await self._placement.ledger.trim_changes(tx, keep=self._keep_changes),
                "operations": await listing.prune(tx, older_than=self._keep),
            }
