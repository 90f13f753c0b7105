"""Reshaping: inventories and allocations moved together, so that usage never hangs in the air."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moorage.placement import providers
from moorage.placement.errors import ProviderNotFound, UnknownProvider
from moorage.placement.ledger import Ledger
from moorage.placement.model import ConsumerWrite, Inventory
from moorage.placement.names import RESOURCE_CLASSES
from moorage.store.database import Tx


class NewInventories(msgspec.Struct, frozen=True):
    """All inventories that a provider shall have, and the generation the caller knows."""

    generation: int
    inventories: dict[str, Inventory]


async def reshape(
    tx: Tx, ledger: Ledger, wanted: Mapping[str, NewInventories], writes: Sequence[ConsumerWrite]
) -> None:
    """Replace inventories and allocations at once.

    In between, a provider has the union of its old and new inventories. Raises UnknownProvider, ConcurrentUpdate,
    InventoryInUse and what a write of allocations raises; the transaction must then be rolled back.
    """
    for provider in sorted(wanted):
        try:
            await providers.lock_provider(tx, provider, wanted[provider].generation)
        except ProviderNotFound as error:
            raise UnknownProvider(provider, "placement.resource_provider.not_found") from error
        await RESOURCE_CLASSES.require(tx, wanted[provider].inventories)
        if wanted[provider].inventories:
            await providers.put_inventories(tx, provider, wanted[provider].inventories)
            await providers.bump(tx, provider)
    if writes:
        await ledger.write(tx, writes)
    for provider in sorted(wanted):
        await providers.set_inventory(tx, provider, wanted[provider].inventories)
