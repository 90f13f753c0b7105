"""/os-aggregates."""

import re
from typing import Any

from msgspec import UNSET, UnsetType

from moorage.compute import aggregates
from moorage.compute.errors import AggregateNotFound, InvalidField
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall
from moorage.compute.model import Aggregate
from moorage.core.errors import BadRequest


class NewAggregate(Body, frozen=True):
    name: str
    availability_zone: str | UnsetType | None = UNSET


class Changes(Body, frozen=True):
    name: str | UnsetType = UNSET
    availability_zone: str | UnsetType | None = UNSET


class CreateAggregate(Body, frozen=True):
    aggregate: NewAggregate


class UpdateAggregate(Body, frozen=True):
    aggregate: Changes


class HostName(Body, frozen=True):
    host: str


class SetMetadata(Body, frozen=True):
    metadata: dict[str, str | None]


async def index(call: ComputeCall) -> dict[str, Any]:
    """GET /os-aggregates."""
    async with call.app.database.read() as tx:
        return {"aggregates": [_view(call, a) for a in await aggregates.list_(tx)]}


def _id(call: ComputeCall) -> int:
    text = call.path["aggregate_id"]
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise AggregateNotFound(f"Aggregate {text[:64]} could not be found.")
    return int(text)


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET /os-aggregates/{aggregate_id}."""
    async with call.app.database.read() as tx:
        return {"aggregate": _view(call, await aggregates.get(tx, _id(call)))}


async def create(call: ComputeCall) -> dict[str, Any]:
    """POST /os-aggregates; the answer has no hosts and metadata, as upstream's has none."""
    given: NewAggregate = call.body.aggregate
    name = values.name(given.name, "aggregate.name")
    zone = values.given(given.availability_zone)
    if zone is not None:
        values.name(zone, "aggregate.availability_zone")
    async with call.app.database.transaction() as tx:
        view = _view(call, await aggregates.create(tx, name, zone))
    return {"aggregate": {k: v for k, v in view.items() if k not in ("hosts", "metadata")}}


async def update(call: ComputeCall) -> dict[str, Any]:
    """PUT /os-aggregates/{aggregate_id}."""
    given: Changes = call.body.aggregate
    if given.name is UNSET and given.availability_zone is UNSET:
        raise InvalidField("aggregate needs a name or an availability_zone.", field="aggregate")
    name = None if given.name is UNSET else values.name(given.name, "aggregate.name")
    zone = given.availability_zone
    if isinstance(zone, str):
        values.name(zone, "aggregate.availability_zone")
    metadata = {} if zone is UNSET else {aggregates.ZONE: zone}
    async with call.app.database.transaction() as tx:
        return {
            "aggregate": _view(call, await aggregates.update(tx, _id(call), name=name, metadata=metadata))
        }


async def delete(call: ComputeCall) -> None:
    """DELETE /os-aggregates/{aggregate_id}."""
    async with call.app.database.transaction() as tx:
        await aggregates.delete(tx, _id(call))


async def add_host(call: ComputeCall) -> dict[str, Any]:
    """The action add_host."""
    host = _host(call, "add_host")
    async with call.app.database.transaction() as tx:
        await call.app.registry.host(tx, host)
        return {"aggregate": _view(call, await aggregates.add_host(tx, _id(call), host))}


async def remove_host(call: ComputeCall) -> dict[str, Any]:
    """The action remove_host."""
    host = _host(call, "remove_host")
    async with call.app.database.transaction() as tx:
        return {"aggregate": _view(call, await aggregates.remove_host(tx, _id(call), host))}


def _host(call: ComputeCall, action: str) -> str:
    if not values.HOST_NAME.match(call.body.host):
        raise InvalidField(f"{action}.host is not the name of a host.", field=f"{action}.host")
    return str(call.body.host)


async def set_metadata(call: ComputeCall) -> dict[str, Any]:
    """The action set_metadata: null removes a key."""
    given = call.body.metadata
    values.metadata({k: "" if v is None else v for k, v in given.items()}, "set_metadata.metadata")
    if given.get(aggregates.ZONE) == "":
        raise BadRequest("The name of an availability zone is not empty.", field="set_metadata.metadata")
    async with call.app.database.transaction() as tx:
        return {"aggregate": _view(call, await aggregates.update(tx, _id(call), name=None, metadata=given))}


def _view(call: ComputeCall, aggregate: Aggregate) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.zone,
        "hosts": aggregate.hosts,
        "metadata": aggregate.metadata,
        "created_at": values.time_without_zone(aggregate.created_at),
        "updated_at": values.time_without_zone(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    return {**view, "uuid": aggregate.uuid} if call.version >= (2, 41) else view
