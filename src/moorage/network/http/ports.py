"""/v2.0/ports."""

from typing import Any

from moorage.api import Reply
from moorage.network import networks, tables
from moorage.network.http import bodies, views
from moorage.network.http.common import (
    Face,
    NetworkCall,
    check_attributes,
    fields_of,
    given_of,
    items_of,
    listed,
    match_revision,
    project_of,
    revision_of,
    seen_by,
    shown,
    target_of,
)
from moorage.network.model import Network
from moorage.network.ports import PortSpec
from moorage.store.database import Tx

FACE = Face(
    "port",
    "ports",
    views.port,
    hidden=("binding:host_id", "binding:profile", "binding:vif_type", "binding:vif_details"),
)
# What a null means where it may stand for "the default".
_EMPTY: dict[str, Any] = {
    "device_id": "",
    "device_owner": "",
    "dns_name": "",
    "host": "",
    "profile": {},
    "allowed_address_pairs": [],
    "extra_dhcp_opts": [],
    "security_groups": [],
}


def _values(item: bodies.PortAttributes, *leave_out: str) -> dict[str, Any]:
    values = fields_of(item, *leave_out)
    for name, value in list(values.items()):
        if value is None and name in _EMPTY:
            values[name] = _EMPTY[name]
        elif value is None:
            del values[name]
        elif name in ("fixed_ips", "allowed_address_pairs", "extra_dhcp_opts"):
            values[name] = [given_of(part) for part in value]
    return values


def _target(project_id: str, network: Network | None, item: bodies.PortAttributes) -> dict[str, Any]:
    owner = item.device_owner if isinstance(item.device_owner, str) else ""
    return {
        "project_id": project_id,
        "tenant_id": project_id,
        "network:project_id": network.project_id if network else "",
        "network:shared": bool(network and network.shared),
        "network_device": owner.startswith("network:"),
    }


async def _networks(call: NetworkCall, tx: Tx, items: list[Any]) -> dict[str, Network]:
    """Networks of the items, only where an attribute with a rule is set: most creates need none."""
    ruled = {f"create_port:{name}" for item in items for name, value in given_of(item).items() if value}
    if not ruled & call.policies.names:
        return {}
    return await networks.named(tx, [item.network_id for item in items], project_id=seen_by(call))


async def index(call: NetworkCall) -> Reply:
    return await listed(call, FACE, call.app.service.ports.page)


async def create(call: NetworkCall) -> Reply:
    items, bulk = items_of(call.body.port, call.body.ports, "port")
    by_project: dict[str, list[int]] = {}
    made: dict[int, Any] = {}
    async with call.app.database.transaction() as tx:
        found = await _networks(call, tx, items)
        for place, item in enumerate(items):
            project_id = await project_of(call, item, "create_port")
            await check_attributes(
                call, "create_port", item, _target(project_id, found.get(item.network_id), item)
            )
            by_project.setdefault(project_id, []).append(place)
        for project_id, places in by_project.items():
            specs = [PortSpec(**_values(items[i], "project_id", "tenant_id")) for i in places]
            rows = await call.app.service.ports.create(
                tx, project_id=project_id, seen_by=seen_by(call), specs=specs
            )
            made.update(zip(places, rows, strict=True))
    return FACE.created(call, [made[i] for i in range(len(items))], bulk=bulk)


async def show(call: NetworkCall) -> Reply:
    return await shown(call, FACE, call.app.service.ports.show)


async def update(call: NetworkCall) -> Reply:
    item = call.body.port
    async with call.app.database.transaction() as tx:
        row = await call.app.service.ports.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("update_port", target_of(row))
        network = await call.app.service.networks.show(tx, row.network_id, project_id=None)
        await check_attributes(call, "update_port", item, _target(row.project_id, network, item))
        row = await call.app.service.ports.update(
            tx, row, _values(item), seen_by=seen_by(call), revision=revision_of(call)
        )
    return FACE.show(call, row)


async def delete(call: NetworkCall) -> None:
    async with call.app.database.transaction() as tx:
        row = await call.app.service.ports.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("delete_port", target_of(row))
        await match_revision(call, tx, tables.ports, row)
        await call.app.service.ports.delete(tx, row)
