"""Providers and what describes them: inventories, traits, aggregates. The write side.

Each write locks the provider's row first, compares the generation when one is given, bumps it by the
rules of the Placement API, and logs the provider for the indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from moorage.core.errors import BadRequest
from moorage.placement.changes import log_providers
from moorage.placement.errors import (
    ConcurrentUpdate,
    DuplicateProvider,
    InventoryInUse,
    InventoryNotFound,
    ProviderHasChildren,
    ProviderInUse,
    ProviderNotFound,
)
from moorage.placement.model import Inventory, InventoryRow, Provider
from moorage.placement.names import RESOURCE_CLASSES
from moorage.placement.reads import LOCK_PROVIDERS, PROVIDER
from moorage.placement.tables import (
    allocations,
    inventories,
    inventory_version,
    provider_aggregates,
    provider_traits,
    resource_providers,
)
from moorage.store.database import Tx
from moorage.store.errors import UniqueViolation
from moorage.store.statement import Statement, text_param, texts_param

_LOCK: Statement[Provider] = Statement(
    sa.select(resource_providers)
    .where(resource_providers.c.id == text_param("id"))
    .with_for_update(key_share=True),
    row=Provider,
)
_CREATE: Statement[Provider] = Statement(
    insert(resource_providers)
    .values(
        id=text_param("id"),
        name=text_param("name"),
        parent_id=text_param("parent"),
        root_id=text_param("root"),
    )
    .returning(resource_providers),
    row=Provider,
)
_RENAME: Statement[Provider] = Statement(
    sa.update(resource_providers)
    .where(resource_providers.c.id == text_param("provider"))
    .values(name=text_param("name"), parent_id=text_param("parent"), updated_at=sa.func.now())
    .returning(resource_providers),
    row=Provider,
)
_tree = (
    sa.select(resource_providers.c.id)
    .where(resource_providers.c.id == text_param("provider"))
    .cte("tree", recursive=True)
)
_subtree = _tree.union(sa.select(resource_providers.c.id).where(resource_providers.c.parent_id == _tree.c.id))
_SUBTREE: Statement[Any] = Statement(sa.select(_subtree.c.id))
_SET_ROOT: Statement[Any] = Statement(
    sa.update(resource_providers)
    .where(resource_providers.c.id == sa.any_(texts_param("ids")))
    .values(root_id=text_param("root"))
)
_DELETE: Statement[Any] = Statement(
    sa.delete(resource_providers).where(resource_providers.c.id == text_param("id"))
)
_HAS_CHILDREN: Statement[Any] = Statement(
    sa.select(sa.exists().where(resource_providers.c.parent_id == text_param("id")))
)
_HAS_ALLOCATIONS: Statement[Any] = Statement(
    sa.select(sa.exists().where(allocations.c.provider_id == text_param("id")))
)
_BUMP: Statement[Any] = Statement(
    sa.update(resource_providers)
    .where(resource_providers.c.id == text_param("provider"))
    .values(generation=resource_providers.c.generation + 1, updated_at=sa.func.now())
    .returning(resource_providers.c.generation)
)
_INVENTORIES: Statement[InventoryRow] = Statement(
    sa.select(inventories)
    .where(inventories.c.provider_id == text_param("id"))
    .order_by(inventories.c.resource_class),
    row=InventoryRow,
)
_put = insert(inventories).values(
    provider_id=text_param("provider_id"),
    resource_class=text_param("resource_class"),
    **{
        name: sa.bindparam(name, type_=sa.BigInteger)
        for name in ("total", "reserved", "min_unit", "max_unit", "step_size")
    },
    allocation_ratio=sa.bindparam("allocation_ratio", type_=sa.Double),
)
_PUT_INVENTORY: Statement[Any] = Statement(
    _put.on_conflict_do_update(
        index_elements=[inventories.c.provider_id, inventories.c.resource_class],
        set_={
            **{
                name: _put.excluded[name]
                for name in ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
            },
            "version": inventory_version.next_value(),
            "updated_at": sa.func.now(),
        },
    )
)
_DROP_INVENTORIES: Statement[Any] = Statement(
    sa.delete(inventories).where(
        inventories.c.provider_id == text_param("provider"),
        inventories.c.resource_class == sa.any_(texts_param("classes")),
    )
)
_TRAITS: Statement[Any] = Statement(
    sa.select(provider_traits.c.trait)
    .where(provider_traits.c.provider_id == text_param("id"))
    .order_by(provider_traits.c.trait)
)
_ADD_TRAITS: Statement[Any] = Statement(
    insert(provider_traits)
    .from_select(
        ["provider_id", "trait"], sa.select(text_param("provider"), sa.func.unnest(texts_param("names")))
    )
    .on_conflict_do_nothing()
)
_DROP_TRAITS: Statement[Any] = Statement(
    sa.delete(provider_traits).where(
        provider_traits.c.provider_id == text_param("provider"),
        provider_traits.c.trait == sa.any_(texts_param("names")),
    )
)
_AGGREGATES: Statement[Any] = Statement(
    sa.select(provider_aggregates.c.aggregate_id)
    .where(provider_aggregates.c.provider_id == text_param("id"))
    .order_by(provider_aggregates.c.aggregate_id)
)
_ADD_AGGREGATES: Statement[Any] = Statement(
    insert(provider_aggregates)
    .from_select(
        ["provider_id", "aggregate_id"],
        sa.select(text_param("provider"), sa.func.unnest(texts_param("names"))),
    )
    .on_conflict_do_nothing()
)
_DROP_AGGREGATES: Statement[Any] = Statement(
    sa.delete(provider_aggregates).where(
        provider_aggregates.c.provider_id == text_param("provider"),
        provider_aggregates.c.aggregate_id == sa.any_(texts_param("names")),
    )
)


async def lock_provider(tx: Tx, provider: str, generation: int | None = None) -> Provider:
    """Lock a provider until the transaction ends, for any write to it.

    Raises ProviderNotFound, and ConcurrentUpdate when `generation` is given and not its own.
    """
    found = await _LOCK.first(tx, id=provider)
    if found is None:
        raise ProviderNotFound(provider)
    if generation is not None and generation != found.generation:
        raise ConcurrentUpdate(
            f"resource provider generation conflict: provider {provider} has changed (actual: {found.generation},"
            f" given: {generation}). Resource provider's generation already changed. Please update the generation and try again.",
            provider=provider,
        )
    return found


async def create_provider(tx: Tx, *, provider: str, name: str, parent: str | None = None) -> Provider:
    """Create a provider, as a root or below a parent. Raises DuplicateProvider, UnknownProvider."""
    root = provider
    if parent == provider:
        raise BadRequest(
            f'Unable to create resource provider "{name}", {provider}: parent provider UUID cannot be same as UUID.'
            " Give the id of another provider.",
            field="parent_provider_uuid",
        )
    if parent is not None:
        above = await _LOCK.first(tx, id=parent)
        if above is None:
            raise BadRequest(f"parent provider UUID does not exist: {parent}", field="parent_provider_uuid")
        root = above.root_id
    try:
        async with tx.savepoint():
            made = await _CREATE.one(tx, id=provider, name=name, parent=parent, root=root)
    except UniqueViolation as error:
        which = f"name: {name}" if "name" in error.constraint else f"uuid: {provider}"
        raise DuplicateProvider(f"Conflicting resource provider {which} already exists.") from error
    await log_providers(tx, [provider])
    return made


async def update_provider(
    tx: Tx, *, provider: str, name: str, parent: str | None, keep_parent: bool, reparent: bool
) -> Provider:
    """Rename a provider and, unless `keep_parent`, put it below `parent`, with all that is below it.

    Without `reparent` only a root may be given a parent, as before microversion 1.37.
    Raises ProviderNotFound, DuplicateProvider, BadRequest.
    """
    below = {provider} if keep_parent else await _lock_subtree(tx, provider, parent)
    found = await lock_provider(tx, provider)
    parent = found.parent_id if keep_parent else parent
    stays = parent == found.parent_id
    moved = None if stays else await _moved_root(tx, found, parent, below, reparent=reparent)
    try:
        async with tx.savepoint():
            changed = await _RENAME.one(tx, provider=provider, name=name, parent=parent)
    except UniqueViolation as error:
        raise DuplicateProvider(f"Conflicting resource provider name: {name} already exists.") from error
    if moved is not None:
        await _SET_ROOT.run(tx, ids=sorted(below), root=moved)
        changed = msgspec.structs.replace(changed, root_id=moved)
    await log_providers(tx, sorted(below))
    return changed


async def _lock_subtree(tx: Tx, provider: str, parent: str | None) -> set[str]:
    """Lock a provider, all that is below it and its parent to be; return who is in the subtree.

    Whoever makes or moves a provider locks the parent, and reads its root after that: nothing comes below what is locked.
    """
    locked: set[str] = set()
    while True:
        below = {row[0] for row in await _SUBTREE.all(tx, provider=provider)}
        if not below:
            raise ProviderNotFound(provider)
        wanted = below if parent is None else below | {parent}
        # What came or went while the locks were waited for is seen by reading again.
        if wanted <= locked:
            return below
        await LOCK_PROVIDERS.all(tx, ids=sorted(wanted))
        locked |= wanted


async def _moved_root(tx: Tx, found: Provider, parent: str | None, below: set[str], *, reparent: bool) -> str:
    if found.parent_id is not None and not reparent:
        what = "un-parenting" if parent is None else "re-parenting"
        raise BadRequest(f"{what} a provider is not currently allowed.", field="parent_provider_uuid")
    if parent is None:
        return found.id
    above = await _LOCK.first(tx, id=parent)
    if above is None:
        raise BadRequest(f"parent provider UUID does not exist: {parent}", field="parent_provider_uuid")
    if parent in below:
        raise BadRequest(
            f"creating loop in the provider tree is not allowed. {parent} is below {found.id} or the provider itself.",
            field="parent_provider_uuid",
        )
    return above.root_id


async def delete_provider(tx: Tx, provider: str) -> None:
    """Delete a provider with its inventories. Raises ProviderHasChildren, ProviderInUse."""
    if await _LOCK.first(tx, id=provider) is None:
        raise ProviderNotFound(provider, "for delete")
    if await _HAS_CHILDREN.scalar(tx, id=provider):
        raise ProviderHasChildren(
            f"Unable to delete parent resource provider {provider}: It has child resource providers."
        )
    if await _HAS_ALLOCATIONS.scalar(tx, id=provider):
        raise ProviderInUse(
            f"Unable to delete resource provider {provider}: Resource provider has allocations."
        )
    await _DELETE.run(tx, id=provider)
    await log_providers(tx, [provider])


async def inventories_of(tx: Tx, provider: str) -> dict[str, InventoryRow]:
    """Return the provider's inventories by resource class."""
    return {row.resource_class: row for row in await _INVENTORIES.all(tx, id=provider)}


async def traits_of(tx: Tx, provider: str) -> list[str]:
    """Return the provider's traits, sorted."""
    return [row[0] for row in await _TRAITS.all(tx, id=provider)]


async def aggregates_of(tx: Tx, provider: str) -> list[str]:
    """Return the provider's aggregates, sorted."""
    return [row[0] for row in await _AGGREGATES.all(tx, id=provider)]


async def bump(tx: Tx, provider: str) -> int:
    """Raise the generation and log the provider; return the new generation."""
    generation: int = await _BUMP.scalar(tx, provider=provider)
    await log_providers(tx, [provider])
    return generation


async def put_inventories(tx: Tx, provider: str, wanted: Mapping[str, Inventory]) -> None:
    """Add or change inventories of a locked provider; the caller bumps."""
    await _PUT_INVENTORY.many(
        tx,
        [
            {"provider_id": provider, "resource_class": rc, **msgspec.structs.asdict(inventory)}
            for rc, inventory in sorted(wanted.items())
        ],
    )


async def drop_inventories(tx: Tx, provider: str, rows: Iterable[InventoryRow]) -> None:
    """Remove inventories of a locked provider; the caller bumps. Raises InventoryInUse."""
    names = sorted((row.resource_class for row in rows), key=RESOURCE_CLASSES.place)
    used = sorted((row.resource_class for row in rows if row.used), key=RESOURCE_CLASSES.place)
    if used:
        raise InventoryInUse(
            f"Inventory for '{', '.join(used)}' on resource provider '{provider}' in use.",
            provider=provider,
            resource_classes=used,
        )
    if names:
        await _DROP_INVENTORIES.run(tx, provider=provider, classes=names)


async def set_inventory(
    tx: Tx, provider: str, wanted: Mapping[str, Inventory], generation: int | None = None
) -> int:
    """Replace all inventories; return the new generation. Raises InventoryInUse, ConcurrentUpdate."""
    await lock_provider(tx, provider, generation)
    have = await inventories_of(tx, provider)
    await drop_inventories(tx, provider, [row for rc, row in have.items() if rc not in wanted])
    await put_inventories(tx, provider, wanted)
    return await bump(tx, provider)


async def remove_inventory(tx: Tx, provider: str, resource_class: str) -> int:
    """Remove one inventory. Raises InventoryNotFound, InventoryInUse."""
    await lock_provider(tx, provider)
    row = (await inventories_of(tx, provider)).get(resource_class)
    if row is None:
        raise InventoryNotFound(
            f"No inventory of class {resource_class} found for delete on resource provider {provider}."
        )
    await drop_inventories(tx, provider, [row])
    return await bump(tx, provider)


async def set_traits(tx: Tx, provider: str, wanted: Iterable[str], generation: int | None = None) -> int:
    """Replace the traits; the generation is bumped only when they differ. Names must exist already."""
    found = await lock_provider(tx, provider, generation)
    names, have = set(wanted), set(await traits_of(tx, provider))
    if names == have:
        return found.generation
    await _DROP_TRAITS.run(tx, provider=provider, names=sorted(have - names))
    await _ADD_TRAITS.run(tx, provider=provider, names=sorted(names - have))
    return await bump(tx, provider)


async def set_aggregates(
    tx: Tx, provider: str, wanted: Iterable[str], generation: int | None = None, *, bumps: bool = True
) -> int:
    """Replace the aggregates. Before microversion 1.19 this does not bump the generation."""
    found = await lock_provider(tx, provider, generation)
    names, have = set(wanted), set(await aggregates_of(tx, provider))
    await _DROP_AGGREGATES.run(tx, provider=provider, names=sorted(have - names))
    await _ADD_AGGREGATES.run(tx, provider=provider, names=sorted(names - have))
    if bumps:
        return await bump(tx, provider)
    await log_providers(tx, [provider])
    return found.generation


async def show_provider(tx: Tx, provider: str) -> Provider:
    """Return a provider; raises ProviderNotFound."""
    found = await PROVIDER.first(tx, id=provider)
    if found is None:
        raise ProviderNotFound(provider)
    return found


_RENAME_CLASS: Statement[Any] = Statement(
    sa.update(inventories)
    .where(inventories.c.resource_class == text_param("old"))
    .values(resource_class=text_param("new"), version=inventory_version.next_value())
    .returning(inventories.c.provider_id)
)


async def rename_class(tx: Tx, old: str, new: str) -> None:
    """Let every inventory (and its allocations) of a custom class have its new name."""
    await log_providers(tx, sorted({row[0] for row in await _RENAME_CLASS.all(tx, old=old, new=new)}))
