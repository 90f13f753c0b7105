"""/v2.0/subnets."""

from typing import Any

import msgspec

from moorage.api import Reply
from moorage.network import tables
from moorage.network.http import bodies, views
from moorage.network.http.common import (
    Face,
    NetworkCall,
    check_attributes,
    created,
    fields_of,
    listed,
    match_revision,
    revision_of,
    seen_by,
    shown,
    target_of,
)
from moorage.network.model import Subnet
from moorage.network.subnets import SubnetSpec
from moorage.store.database import Tx

FACE = Face("subnet", "subnets", views.subnet, hidden=("segment_id",))
_LISTS = ("allocation_pools", "host_routes", "dns_nameservers")


def _values(item: bodies.SubnetAttributes, *leave_out: str) -> dict[str, Any]:
    values = fields_of(item, *leave_out)
    for name in _LISTS:
        given = values.get(name)
        if given is None:
            values.pop(name, None)
        elif name != "dns_nameservers":
            values[name] = [msgspec.structs.asdict(part) for part in given]
    return values


async def index(call: NetworkCall) -> Reply:
    return await listed(call, FACE, call.app.service.subnets.page)


async def _make(call: NetworkCall, tx: Tx, item: bodies.NewSubnet) -> Subnet:
    network = await call.app.service.networks.show(tx, item.network_id, project_id=seen_by(call))
    await call.authorize("create_subnet", target_of(network))
    await check_attributes(call, "create_subnet", item, target_of(network))
    spec = SubnetSpec(**_values(item, "project_id", "tenant_id", "network_id"))
    # A subnet belongs to the project of its network, whoever made it.
    owner = network.project_id
    return await call.app.service.subnets.create(tx, project_id=owner, network=network, spec=spec)


async def create(call: NetworkCall) -> Reply:
    return await created(call, FACE, _make)


async def show(call: NetworkCall) -> Reply:
    return await shown(call, FACE, call.app.service.subnets.show)


async def update(call: NetworkCall) -> Reply:
    async with call.app.database.transaction() as tx:
        row = await call.app.service.subnets.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("update_subnet", target_of(row))
        await check_attributes(call, "update_subnet", call.body.subnet, target_of(row))
        row = await call.app.service.subnets.update(tx, row, _values(call.body.subnet), revision_of(call))
    return FACE.show(call, row)


async def delete(call: NetworkCall) -> None:
    async with call.app.database.transaction() as tx:
        row = await call.app.service.subnets.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("delete_subnet", target_of(row))
        await match_revision(call, tx, tables.subnets, row)
        await call.app.service.subnets.delete(tx, row)
