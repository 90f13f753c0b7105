"""The security groups of a server: those of its ports."""

from moorage.api.context import RequestContext
from moorage.compute import server_state, servers
from moorage.compute.model import Server
from moorage.compute.service import ComputeService
from moorage.core.errors import NotFound
from moorage.network.listing import ListQuery
from moorage.network.model import Port, SecurityGroup
from moorage.store.database import Tx


async def groups_of(tx: Tx, app: ComputeService, server: Server) -> list[SecurityGroup]:
    """Every group that a port of the server is in."""
    ports = await app.networks.ports_of(tx, server.id)
    ids = sorted({g for p in ports for g in p.security_groups})
    if not ids:
        return []
    return await app.networks.security_groups.page(tx, ListQuery(filters={"id": ids}), project_id=None)


async def add_group(tx: Tx, app: ComputeService, context: RequestContext, server_id: str, name: str) -> None:
    """Put every port that may have groups into it; raises NotFound (also for the group), Conflict (ambiguous)."""
    server, group_id, ports = await _prepared(tx, app, context, server_id, name)
    for port in ports:
        if group_id not in port.security_groups and port.port_security_enabled and port.fixed_ips:
            groups = [*port.security_groups, group_id]
            await app.networks.ports.update(tx, port, {"security_groups": groups}, seen_by=server.project_id)


async def remove_group(
    tx: Tx, app: ComputeService, context: RequestContext, server_id: str, name: str
) -> None:
    """Take every port out of it; raises NotFound where none is in."""
    server, group_id, ports = await _prepared(tx, app, context, server_id, name)
    members = [p for p in ports if group_id in p.security_groups]
    if not members:
        raise NotFound(f"Security group {name} not associated with the instance {server.id}")
    for port in members:
        groups = [g for g in port.security_groups if g != group_id]
        await app.networks.ports.update(tx, port, {"security_groups": groups}, seen_by=server.project_id)


async def _prepared(
    tx: Tx, app: ComputeService, context: RequestContext, server_id: str, name: str
) -> tuple[Server, str, list[Port]]:
    server = await servers.get(tx, context, server_id)
    server_state.check_lock(server, by_admin=context.is_admin)
    (group_id,) = await app.networks.security_groups.resolve(tx, [name], project_id=server.project_id)
    return server, group_id, await app.networks.ports_of(tx, server.id)
