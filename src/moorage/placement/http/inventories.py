"""`/resource_providers/{uuid}/inventories`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moorage.api import Reply, Version
from moorage.core.errors import BadRequest, Duplicate
from moorage.placement import providers
from moorage.placement.errors import InvalidInventory, InventoryNotFound
from moorage.placement.http.common import ClassName, PlacementCall, reply
from moorage.placement.model import Inventory
from moorage.placement.names import RESOURCE_CLASSES
from moorage.placement.tables import MAX_UNIT
from moorage.store.database import Tx

Positive = Annotated[int, Meta(ge=1, le=MAX_UNIT)]
Natural = Annotated[int, Meta(ge=0, le=MAX_UNIT)]
Ratio = Annotated[float, Meta(gt=0, le=3.40282e38)]


class InventoryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    total: Positive
    reserved: Natural = 0
    min_unit: Positive = 1
    max_unit: Positive = MAX_UNIT
    step_size: Positive = 1
    allocation_ratio: Ratio = 1.0


class NewInventory(InventoryBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    resource_class: ClassName
    resource_provider_generation: int | None = None


class ChangedInventory(InventoryBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    resource_provider_generation: int


class Inventories(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource_provider_generation: int
    inventories: dict[ClassName, InventoryBody]


def to_inventory(
    body: InventoryBody, provider: str, resource_class: str, version: Version, attempt: str = "update"
) -> Inventory:
    """Return the value; raises InvalidInventory where nothing would be left (from 1.26: less than nothing)."""
    inventory = Inventory(**{name: getattr(body, name) for name in Inventory.__struct_fields__})
    if inventory.capacity < 0 or (version < (1, 26) and inventory.capacity <= 0):
        raise InvalidInventory(
            f"Unable to {attempt} inventory for resource provider {provider}: invalid inventory for"
            f" '{resource_class}'. The reserved value is greater than"
            f"{'' if version >= (1, 26) else ' or equal to'} total.",
            field="reserved",
        )
    return inventory


async def check_classes(tx: Tx, provider: str, names: Iterable[str]) -> None:
    """Raise BadRequest for resource classes that do not exist."""
    await RESOURCE_CLASSES.require(
        tx, names, f"Unknown resource class in inventory for resource provider {provider}"
    )


def _render(inventory: Inventory) -> dict[str, Any]:
    return msgspec.structs.asdict(inventory)


async def _show_all(call: PlacementCall, tx: Any) -> Reply:
    provider = await providers.show_provider(tx, call.path["uuid"])
    rows = await providers.inventories_of(tx, provider.id)
    return reply(
        call,
        {
            "resource_provider_generation": provider.generation,
            "inventories": {name: _render(row.inventory) for name, row in rows.items()},
        },
    )


async def list_inventories(call: PlacementCall) -> Reply:
    """Answer a provider's inventories."""
    async with call.app.database.read() as tx:
        return await _show_all(call, tx)


async def set_inventories(call: PlacementCall) -> Reply:
    """Replace a provider's inventories."""
    uuid, body = call.path["uuid"], call.body
    wanted = {name: to_inventory(given, uuid, name, call.version) for name, given in body.inventories.items()}
    async with call.app.database.transaction() as tx:
        await providers.lock_provider(tx, uuid, body.resource_provider_generation)
        await check_classes(tx, uuid, wanted)
        await providers.set_inventory(tx, uuid, wanted)
        return await _show_all(call, tx)


async def delete_inventories(call: PlacementCall) -> None:
    """Remove all of a provider's inventories."""
    async with call.app.database.transaction() as tx:
        await providers.set_inventory(tx, call.path["uuid"], {})


async def create_inventory(call: PlacementCall) -> Reply:
    """Add one inventory; 409 when the provider has one of that class."""
    uuid, name = call.path["uuid"], call.body.resource_class
    wanted = to_inventory(call.body, uuid, name, call.version, "create")
    async with call.app.database.transaction() as tx:
        await providers.lock_provider(tx, uuid, call.body.resource_provider_generation)
        await check_classes(tx, uuid, [name])
        if name in await providers.inventories_of(tx, uuid):
            raise Duplicate(f"Update conflict: resource provider {uuid} has an inventory of {name} already.")
        await providers.put_inventories(tx, uuid, {name: wanted})
        generation = await providers.bump(tx, uuid)
    body = {"resource_provider_generation": generation, **_render(wanted)}
    return reply(call, body, status=201, location=f"/resource_providers/{uuid}/inventories/{name}")


async def show_inventory(call: PlacementCall) -> Reply:
    """Answer one inventory."""
    name = call.path["resource_class"]
    async with call.app.database.read() as tx:
        provider = await providers.show_provider(tx, call.path["uuid"])
        row = (await providers.inventories_of(tx, provider.id)).get(name)
    if row is None:
        raise InventoryNotFound(f"No inventory of class {name} for {provider.id}")
    return reply(call, {"resource_provider_generation": provider.generation, **_render(row.inventory)})


async def update_inventory(call: PlacementCall) -> Reply:
    """Change one inventory that exists."""
    uuid, name = call.path["uuid"], call.path["resource_class"]
    wanted = to_inventory(call.body, uuid, name, call.version)
    async with call.app.database.transaction() as tx:
        await providers.lock_provider(tx, uuid, call.body.resource_provider_generation)
        if name not in await providers.inventories_of(tx, uuid):
            raise BadRequest(f"No inventory record with resource class {name} for resource provider {uuid}.")
        await providers.put_inventories(tx, uuid, {name: wanted})
        generation = await providers.bump(tx, uuid)
    return reply(call, {"resource_provider_generation": generation, **_render(wanted)})


async def delete_inventory(call: PlacementCall) -> None:
    """Remove one inventory."""
    async with call.app.database.transaction() as tx:
        await providers.remove_inventory(tx, call.path["uuid"], call.path["resource_class"])
