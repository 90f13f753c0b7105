"""/moorage/v1/servers/{server_id}/placement: why a server is where it is."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from moorage.api.answers import Time
from moorage.compute import placements, servers
from moorage.compute.http.values import ComputeCall
from moorage.compute.model import PlacementRecord, Server
from moorage.core.clock import iso
from moorage.scheduling.plan import PlanRecord, Refusal

_FULL = "moorage:placement:full"


class PlacedServer(msgspec.Struct):
    id: str
    name: str
    host: str | None
    vm_state: str


class Attempt(PlanRecord, frozen=True, kw_only=True):
    """A plan, and the host it came to; its owner sees hosts under the project's own names for them, without scores.

    ``lost``: hosts of the ranking that were full when it came to them; for administrators.
    """

    attempt: int
    at: Time
    chosen: str | None
    lost: list[Refusal] | UnsetType = UNSET


class ServerPlacement(msgspec.Struct):
    server: PlacedServer
    attempts: list[Attempt]


async def show(call: ComputeCall) -> dict[str, Any]:
    """Every attempt with every host considered; who is no administrator sees no other project's figures."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"], deleted=True)
        found = await placements.of_server(tx, server.id)
    whole = call.allowed(_FULL)
    return {
        "server": {
            "id": server.id,
            "name": server.name,
            "host": _host(server, whole=whole),
            "vm_state": server.vm_state,
        },
        "attempts": [_attempt(server, r, whole=whole) for r in found],
    }


def _host(server: Server, *, whole: bool) -> str | None:
    if server.host is None or whole:
        return server.host
    return placements.host_alias(server.project_id, server.host)


def _attempt(server: Server, record: PlacementRecord, *, whole: bool) -> dict[str, Any]:
    plan = record.plan if whole else placements.for_owner(record, server.project_id)
    return {"attempt": record.attempt, "at": iso(record.created_at), **plan}
