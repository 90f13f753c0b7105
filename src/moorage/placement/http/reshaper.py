"""`POST /reshaper`."""

from __future__ import annotations

import msgspec

from moorage.api import Reply
from moorage.placement.http.allocations import Write128, Write134, Write138, to_writes
from moorage.placement.http.common import ClassName, PlacementCall, Uuid
from moorage.placement.http.inventories import InventoryBody, to_inventory
from moorage.placement.reshape import NewInventories, reshape
from moorage.placement.writes import require_classes


class ReshapedInventories(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource_provider_generation: int
    inventories: dict[ClassName, InventoryBody]


class Reshape130(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inventories: dict[Uuid, ReshapedInventories]
    allocations: dict[Uuid, Write128]


class Reshape134(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inventories: dict[Uuid, ReshapedInventories]
    allocations: dict[Uuid, Write134]


class Reshape138(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inventories: dict[Uuid, ReshapedInventories]
    allocations: dict[Uuid, Write138]


async def reshape_providers(call: PlacementCall) -> Reply:
    """Replace inventories and allocations together."""
    wanted = {
        provider: NewInventories(
            given.resource_provider_generation,
            {
                name: to_inventory(item, provider, name, call.version)
                for name, item in given.inventories.items()
            },
        )
        for provider, given in call.body.inventories.items()
    }
    writes = to_writes(call.body.allocations)
    async with call.app.database.transaction() as tx:
        await require_classes(tx, writes)
        await reshape(tx, call.app.ledger, wanted, writes)
    return Reply(status=204)
