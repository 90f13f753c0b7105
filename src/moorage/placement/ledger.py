"""The ledger: placement's truth, as services use it.

Everything takes the caller's transaction. This process's index learns of a claim twice: when it starts, so
that rankings made meanwhile go elsewhere, and when it has committed, with the new usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from moorage.placement import changes, claims, providers, writes
from moorage.placement.index import Index
from moorage.placement.model import Allocations, ConsumerWrite, Inventory, InventoryRow, Provider, UsedRow
from moorage.placement.names import RESOURCE_CLASSES, TRAITS
from moorage.placement.reads import PROVIDER
from moorage.store.database import Tx


class Ledger:
    """Writes of providers and allocations."""

    def __init__(self, index: Index | None = None) -> None:
        self._index = index

    async def ensure_provider(self, tx: Tx, *, uuid: str, name: str, parent: str | None = None) -> Provider:
        """Return the provider, made if it is missing. Name and parent of an existing one are left alone."""
        found = await PROVIDER.first(tx, id=uuid)
        return found or await providers.create_provider(tx, provider=uuid, name=name, parent=parent)

    async def rename_provider(self, tx: Tx, uuid: str, name: str) -> Provider:
        """Give a provider another name, in its place. Raises ProviderNotFound, DuplicateProvider."""
        return await providers.update_provider(
            tx, provider=uuid, name=name, parent=None, keep_parent=True, reparent=False
        )

    async def set_inventory(
        self, tx: Tx, provider_uuid: str, inventory: Mapping[str, Inventory], generation: int | None = None
    ) -> int:
        """Make the inventories what is given; return the generation, not raised when nothing differs.

        Raises ProviderNotFound, InventoryInUse, ConcurrentUpdate, UnknownNames.
        """
        found = await PROVIDER.first(tx, id=provider_uuid)
        have = await providers.inventories_of(tx, provider_uuid)
        if found is not None and generation is None and _same(inventory, have):
            return found.generation
        await RESOURCE_CLASSES.require(tx, inventory)
        return await providers.set_inventory(tx, provider_uuid, inventory, generation)

    async def set_traits(
        self, tx: Tx, provider_uuid: str, traits: Iterable[str], generation: int | None = None
    ) -> int:
        """Make the traits what is given, creating custom ones; return the generation."""
        wanted = sorted(set(traits))
        if generation is None and await providers.traits_of(tx, provider_uuid) == wanted:
            return (await PROVIDER.one(tx, id=provider_uuid)).generation
        for name in wanted:
            if name not in TRAITS.standard:
                await TRAITS.create(tx, name)
        # Those that were there are kept from being deleted until the provider has them.
        await TRAITS.require(tx, wanted)
        return await providers.set_traits(tx, provider_uuid, wanted, generation)

    async def set_aggregates(
        self, tx: Tx, provider_uuid: str, aggregates: Iterable[str], generation: int | None = None
    ) -> int:
        """Make the aggregates what is given; return the generation."""
        wanted = sorted(set(aggregates))
        if generation is None and await providers.aggregates_of(tx, provider_uuid) == wanted:
            return (await PROVIDER.one(tx, id=provider_uuid)).generation
        return await providers.set_aggregates(tx, provider_uuid, wanted, generation)

    async def claim(
        self,
        tx: Tx,
        *,
        consumer: str,
        project_id: str,
        user_id: str,
        allocations: Allocations,
        consumer_type: str | None = "INSTANCE",
    ) -> None:
        """Take all amounts for a new consumer, or none of them; one statement.

        Repeating a claim that holds already changes nothing. Raises CapacityExceeded, NoInventory or
        ConsumerExists, after each of which the transaction can go on (with the next host, say).
        """
        token = self._index.expect(allocations) if self._index is not None else None
        taken: list[UsedRow] = []
        try:
            write = ConsumerWrite(
                consumer_id=consumer,
                allocations=allocations,
                project_id=project_id,
                user_id=user_id,
                consumer_type=consumer_type,
            )
            taken = await claims.claim(tx, write)
        finally:
            if not taken:
                self._settle(token)
        tx.on_commit(lambda: self._settle(token))
        self._report(tx, taken)

    async def release(self, tx: Tx, consumer: str) -> bool:
        """Give back all that a consumer holds; False when it held nothing. Two statements."""
        given = await claims.release(tx, consumer)
        self._report(tx, given)
        return bool(given)

    async def allocations_of(self, tx: Tx, consumer: str) -> Allocations:
        """Return what a consumer holds."""
        return await claims.allocations_of(tx, consumer)

    async def write(self, tx: Tx, consumers: Sequence[ConsumerWrite]) -> writes.WriteResult:
        """Replace the allocations of several consumers; the transaction is spoilt when this raises."""
        result = await writes.write_allocations(tx, consumers)
        self._report(tx, result.used)
        return result

    async def trim_changes(self, tx: Tx, keep: timedelta = timedelta(hours=1)) -> int:
        """Delete old rows of the change log; return how many."""
        return await changes.trim(tx, keep)

    def _report(self, tx: Tx, rows: Sequence[UsedRow]) -> None:
        index = self._index
        if index is not None and rows:
            tx.on_commit(lambda: index.apply_used(rows))

    def _settle(self, token: int | None) -> None:
        if self._index is not None and token is not None:
            self._index.settle(token)


def _same(wanted: Mapping[str, Inventory], have: Mapping[str, InventoryRow]) -> bool:
    return wanted.keys() == have.keys() and all(row.inventory == wanted[rc] for rc, row in have.items())
