"""Guests that go off without being told to: their servers become SHUTOFF, and an action says so.

Two ways lead here. An agent that sees a guest end says so at once (the event ``guest.power``). What no event tells (a
host that went down with its guests, or lost them) shows in the host's next report: a keeper compares all servers with
all reports, in one statement. A server that something is being done to is left alone; so is one that has changed so
shortly before its host spoke that the report may be older than its guest.

Source: upstream's periodic synchronisation of power states. It leaves a guest that is missing altogether ACTIVE; here it
is off like any other, and ``start`` makes it again.
"""

from collections.abc import Mapping
from typing import Any

from moorage.agentlink.registry import GUESTS_CHANNEL
from moorage.compute import actions, server_state
from moorage.compute.model import Server
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.store.database import Database, Tx

log = get_logger(__name__)


class PowerSync:
    """A reconciler: ACTIVE servers whose hosts say that they do not run. Times are in seconds."""

    name = "power-sync"
    channel: str | None = GUESTS_CHANNEL

    def __init__(self, database: Database, *, interval: float, grace: float) -> None:
        self.interval = interval
        self._database = database
        self._grace = grace

    async def reconcile(self) -> Mapping[str, Any]:
        """One pass; how many servers were found to be off."""
        async with self._database.transaction() as tx:
            lost = await server_state.guests_lost(tx, grace=self._grace)
            if lost:
                await _record(tx, lost, "The host reported that the guest does not run.")
        return {"stopped": len(lost)}


async def guest_ended(tx: Tx, server_id: str, host: str) -> None:
    """A host saw the guest go off by itself."""
    server = await server_state.guest_ended(tx, server_id, host=host)
    if server is not None:
        await _record(tx, [server], "The guest went off by itself.")


async def _record(tx: Tx, lost: list[Server], details: str) -> None:
    await actions.happened(
        tx,
        lost,
        action="stop",
        event="compute_stop_instance",
        request_id=f"req-{new_id()}",
        details=details,
    )
    for server in lost:
        log.warning("server.guest_off", server=server.id, host=server.host, told=details)
