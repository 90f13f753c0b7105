"""/v2.0/networks."""

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
    project_of,
    revision_of,
    seen_by,
    shown,
    target_of,
)
from moorage.network.model import Network
from moorage.network.networks import NetworkSpec
from moorage.network.segmentation import SegmentSpec
from moorage.store.database import Tx

FACE = Face(
    "network",
    "networks",
    views.network,
    hidden=("provider:network_type", "provider:physical_network", "provider:segmentation_id"),
)
_PROVIDER = ("network_type", "physical_network", "segmentation_id")


def _spec(item: bodies.NewNetwork) -> NetworkSpec:
    values = fields_of(item, "project_id", "tenant_id", "availability_zone_hints", *_PROVIDER)
    segment = {name: value for name in _PROVIDER if (value := getattr(item, name)) is not msgspec.UNSET}
    return NetworkSpec(segment=SegmentSpec(**segment), **values)


async def index(call: NetworkCall) -> Reply:
    return await listed(call, FACE, call.app.service.networks.page)


async def _make(call: NetworkCall, tx: Tx, item: bodies.NewNetwork) -> Network:
    project_id = await project_of(call, item, "create_network")
    await check_attributes(call, "create_network", item, {"project_id": project_id})
    return await call.app.service.networks.create(tx, project_id=project_id, spec=_spec(item))


async def create(call: NetworkCall) -> Reply:
    return await created(call, FACE, _make)


async def show(call: NetworkCall) -> Reply:
    return await shown(call, FACE, call.app.service.networks.show)


async def update(call: NetworkCall) -> Reply:
    values: dict[str, Any] = {
        k: v for k, v in fields_of(call.body.network).items() if k != "mtu" or v is not None
    }
    async with call.app.database.transaction() as tx:
        row = await call.app.service.networks.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("update_network", target_of(row))
        await check_attributes(call, "update_network", call.body.network, target_of(row))
        row = await call.app.service.networks.update(tx, row, values, revision_of(call))
    return FACE.show(call, row)


async def delete(call: NetworkCall) -> None:
    async with call.app.database.transaction() as tx:
        row = await call.app.service.networks.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("delete_network", target_of(row))
        await match_revision(call, tx, tables.networks, row)
        await call.app.service.networks.delete(tx, row)
