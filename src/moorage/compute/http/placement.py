"""/moorage/v1/servers/{server_id}/placement: why a server is where it is."""

from typing import Any

from moorage.compute import placements, servers
from moorage.compute.http.values import ComputeCall
from moorage.compute.model import PlacementRecord, Server
from moorage.core.clock import iso

_FULL = "moorage:placement:full"


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
