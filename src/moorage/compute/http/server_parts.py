"""What belongs to a server and has a path of its own: metadata, tags, addresses, interfaces, security groups."""

from collections.abc import Mapping
from typing import Any

from moorage.api.call import Reply
from moorage.compute import server_edits, server_networks, servers
from moorage.compute.errors import InvalidField
from moorage.compute.http import server_views, values
from moorage.compute.http.values import Body, ComputeCall
from moorage.core.errors import NotFound
from moorage.network.model import Port, SecurityGroup


class Metadata(Body, frozen=True):
    metadata: dict[str, Any]


class Item(Body, frozen=True):
    meta: dict[str, Any]


class Tags(Body, frozen=True):
    tags: list[str]


class GroupName(Body, frozen=True):
    name: str


# --- metadata -------------------------------------------------------------------------------------------------------


async def metadata(call: ComputeCall) -> dict[str, Any]:
    """GET …/metadata."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
    return {"metadata": server.metadata}


async def add_metadata(call: ComputeCall) -> dict[str, Any]:
    """POST …/metadata: merges."""
    return await _set_metadata(call, replace=False)


async def replace_metadata(call: ComputeCall) -> dict[str, Any]:
    """PUT …/metadata."""
    return await _set_metadata(call, replace=True)


async def _set_metadata(call: ComputeCall, *, replace: bool) -> dict[str, Any]:
    items = values.metadata(call.body.metadata, "metadata")
    async with call.app.database.transaction() as tx:
        server = await server_edits.set_metadata(
            tx, call.app, call.context, call.path["server_id"], items, replace=replace
        )
    return {"metadata": server.metadata}


async def metadata_item(call: ComputeCall) -> dict[str, Any]:
    """GET …/metadata/{key}."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
    key = call.path["key"]
    if key not in server.metadata:
        raise NotFound("Metadata item was not found", code="compute.metadata_not_found")
    return {"meta": {key: server.metadata[key]}}


async def set_metadata_item(call: ComputeCall) -> dict[str, Any]:
    """PUT …/metadata/{key}."""
    items = values.metadata(call.body.meta, "meta")
    key = call.path["key"]
    if list(items) != [key]:
        raise InvalidField(
            "Request body and URI mismatch: meta holds exactly the key of the path.", field="meta"
        )
    async with call.app.database.transaction() as tx:
        await server_edits.set_metadata(tx, call.app, call.context, call.path["server_id"], items)
    return {"meta": items}


async def delete_metadata_item(call: ComputeCall) -> None:
    """DELETE …/metadata/{key}."""
    async with call.app.database.transaction() as tx:
        await server_edits.drop_metadata(tx, call.context, call.path["server_id"], call.path["key"])


# --- tags -----------------------------------------------------------------------------------------------------------


async def tags(call: ComputeCall) -> dict[str, Any]:
    """GET …/tags."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
    return {"tags": server.tags}


async def replace_tags(call: ComputeCall) -> dict[str, Any]:
    """PUT …/tags."""
    wanted = [values.tag(t, "tags") for t in call.body.tags]
    async with call.app.database.transaction() as tx:
        return {"tags": await server_edits.set_tags(tx, call.context, call.path["server_id"], wanted)}


async def delete_tags(call: ComputeCall) -> None:
    """DELETE …/tags."""
    async with call.app.database.transaction() as tx:
        await server_edits.set_tags(tx, call.context, call.path["server_id"], [])


async def has_tag(call: ComputeCall) -> None:
    """GET …/tags/{tag}: 204 where it has the tag."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
    if call.path["tag"] not in server.tags:
        raise NotFound(f"Server {server.id} has no tag '{call.path['tag']}'", code="compute.tag_not_found")


async def add_tag(call: ComputeCall) -> Reply:
    """PUT …/tags/{tag}: 201 where it is new."""
    tag = values.tag(call.path["tag"], "tag")
    async with call.app.database.transaction() as tx:
        new = await server_edits.add_tag(tx, call.context, call.path["server_id"], tag)
    location = call.url(f"/servers/{call.path['server_id']}/tags/{tag}")
    return Reply(status=201, headers={"Location": location}) if new else Reply(status=204)


async def delete_tag(call: ComputeCall) -> None:
    """DELETE …/tags/{tag}."""
    async with call.app.database.transaction() as tx:
        await server_edits.drop_tag(tx, call.context, call.path["server_id"], call.path["tag"])


# --- addresses and interfaces ---------------------------------------------------------------------------------------


async def _addresses(call: ComputeCall) -> dict[str, list[dict[str, Any]]]:
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        ports = await call.app.networks.attachments(tx, [server.id])
    return server_views.addresses(ports[server.id], long=False)


async def addresses(call: ComputeCall) -> dict[str, Any]:
    """GET …/ips."""
    return {"addresses": await _addresses(call)}


async def addresses_on(call: ComputeCall) -> dict[str, Any]:
    """GET …/ips/{network}: by the network's name."""
    found = await _addresses(call)
    network = call.path["network"]
    if network not in found:
        raise NotFound("Instance is not a member of specified network")
    return {network: found[network]}


async def interfaces(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-interface."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        ports = await call.app.networks.ports_of(tx, server.id)
    return {"interfaceAttachments": [_interface(call, p) for p in ports]}


async def interface(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-interface/{port_id}."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        ports = await call.app.networks.ports_of(tx, server.id)
    for port in ports:
        if port.id == call.path["port_id"]:
            return {"interfaceAttachment": _interface(call, port)}
    raise NotFound(f"Instance {server.id} does not have a port with id {call.path['port_id']}")


def _interface(call: ComputeCall, port: Port) -> dict[str, Any]:
    view: dict[str, Any] = {
        "net_id": port.network_id,
        "port_id": port.id,
        "mac_addr": port.mac_address,
        "port_state": port.status,
        "fixed_ips": [{"subnet_id": f["subnet_id"], "ip_address": f["ip_address"]} for f in port.fixed_ips],
    }
    return {**view, "tag": port.device_tag} if call.version >= (2, 70) else view


async def volume_attachments(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-volume_attachments: servers here have no volumes."""
    async with call.app.database.read() as tx:
        await servers.get(tx, call.context, call.path["server_id"])
    return {"volumeAttachments": []}


# --- security groups ------------------------------------------------------------------------------------------------


async def security_groups(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-security-groups."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        groups = await server_networks.groups_of(tx, call.app, server)
    names = {g.id: g.name for g in groups}
    return {"security_groups": [_group(g, names) for g in groups]}


def _group(group: SecurityGroup, names: Mapping[str, str]) -> dict[str, Any]:
    rules = [r for r in group.rules if r["direction"] == "ingress"]
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "tenant_id": group.project_id,
        "rules": [_rule(group, r, names) for r in rules],
    }


def _rule(group: SecurityGroup, rule: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    everything = "::/0" if rule["ethertype"] == "IPv6" else "0.0.0.0/0"
    other = rule.get("remote_group_id")
    return {
        "id": rule["id"],
        "parent_group_id": group.id,
        "ip_protocol": rule["protocol"],
        "from_port": rule["port_range_min"],
        "to_port": rule["port_range_max"],
        "ip_range": {} if other else {"cidr": rule["remote_ip_prefix"] or everything},
        "group": {"name": names.get(other, other), "tenant_id": group.project_id} if other else {},
    }


async def add_security_group(call: ComputeCall) -> None:
    """The action addSecurityGroup."""
    async with call.app.database.transaction() as tx:
        await server_networks.add_group(tx, call.app, call.context, call.path["server_id"], call.body.name)


async def remove_security_group(call: ComputeCall) -> None:
    """The action removeSecurityGroup."""
    async with call.app.database.transaction() as tx:
        await server_networks.remove_group(tx, call.app, call.context, call.path["server_id"], call.body.name)
