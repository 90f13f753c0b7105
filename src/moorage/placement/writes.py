"""The general write of allocations: several consumers at once, replaced in one transaction.

Locks are taken in one order everywhere: consumers, then providers (whose lock also guards their
inventories), each sorted by id. With the rows locked, the rules are checked here in plain code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from moorage.placement.changes import log_used
from moorage.placement.claims import check_units
from moorage.placement.errors import CapacityExceeded, ConcurrentUpdate, NoInventory, UnknownProvider
from moorage.placement.model import AllocationRow, Consumer, ConsumerWrite, InventoryRow, UsedRow
from moorage.placement.names import RESOURCE_CLASSES
from moorage.placement.reads import LOCK_PROVIDERS
from moorage.placement.tables import (
    allocations,
    consumers,
    inventories,
    inventory_version,
    resource_providers,
)
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param

Pair = tuple[str, str]
"""Provider id and resource class."""

_NEW_CONSUMER: Statement[Any] = Statement(
    insert(consumers)
    .values(
        id=text_param("id"),
        generation=0,
        project_id=text_param("project_id"),
        user_id=text_param("user_id"),
        consumer_type=text_param("consumer_type"),
    )
    .on_conflict_do_nothing()
    .returning(consumers.c.id)
)
_LOCK_CONSUMERS: Statement[Consumer] = Statement(
    sa.select(consumers)
    .where(consumers.c.id == sa.any_(texts_param("ids")))
    .order_by(consumers.c.id)
    .with_for_update(),
    row=Consumer,
)
_HELD: Statement[AllocationRow] = Statement(
    sa.select(
        allocations.c.consumer_id, allocations.c.provider_id, allocations.c.resource_class, allocations.c.used
    ).where(allocations.c.consumer_id == sa.any_(texts_param("ids"))),
    row=AllocationRow,
)
_INVENTORIES: Statement[InventoryRow] = Statement(
    sa.select(inventories).where(inventories.c.provider_id == sa.any_(texts_param("ids"))), row=InventoryRow
)
_DROP: Statement[Any] = Statement(
    sa.delete(allocations).where(allocations.c.consumer_id == sa.any_(texts_param("ids")))
)
_ADD: Statement[Any] = Statement(
    insert(allocations).from_select(
        ["consumer_id", "provider_id", "resource_class", "used"],
        sa.select(
            sa.func.unnest(texts_param("consumers")),
            sa.func.unnest(texts_param("providers")),
            sa.func.unnest(texts_param("classes")),
            sa.func.unnest(sa.bindparam("amounts", type_=ARRAY(sa.BigInteger))),
        ),
    )
)
_delta = (
    sa.func.unnest(
        texts_param("providers"), texts_param("classes"), sa.bindparam("deltas", type_=ARRAY(sa.BigInteger))
    )
    .table_valued(
        sa.column("provider_id", sa.Text), sa.column("resource_class", sa.Text), sa.column("n", sa.BigInteger)
    )
    .render_derived()
)
_MOVE: Statement[UsedRow] = Statement(
    sa.update(inventories)
    .where(
        inventories.c.provider_id == _delta.c.provider_id,
        inventories.c.resource_class == _delta.c.resource_class,
    )
    .values(used=inventories.c.used + _delta.c.n, version=inventory_version.next_value())
    .returning(
        inventories.c.provider_id, inventories.c.resource_class, inventories.c.used, inventories.c.version
    ),
    row=UsedRow,
)
_BUMP: Statement[Any] = Statement(
    sa.update(resource_providers)
    .where(resource_providers.c.id == sa.any_(texts_param("ids")))
    .values(generation=resource_providers.c.generation + 1)
)
_UPDATE_CONSUMER: Statement[Any] = Statement(
    sa.update(consumers)
    .where(consumers.c.id == text_param("consumer"))
    .values(
        generation=consumers.c.generation + 1,
        project_id=text_param("project_id"),
        user_id=text_param("user_id"),
        consumer_type=sa.func.coalesce(text_param("consumer_type"), consumers.c.consumer_type),
        updated_at=sa.func.now(),
    )
)
_REMOVE_CONSUMERS: Statement[Any] = Statement(
    sa.delete(consumers).where(consumers.c.id == sa.any_(texts_param("ids")))
)


async def require_classes(tx: Tx, writes: Iterable[ConsumerWrite]) -> None:
    """Raise UnknownNames for resource classes that do not exist."""
    for write in writes:
        names = {name for amounts in write.allocations.values() for name in amounts}
        what = f"Unable to allocate inventory for consumer {write.consumer_id}"
        await RESOURCE_CLASSES.require(tx, names, what)


class WriteResult(msgspec.Struct, frozen=True):
    """What a write changed; `created` names consumers that did not exist before."""

    used: list[UsedRow]
    created: frozenset[str]


async def write_allocations(tx: Tx, writes: Sequence[ConsumerWrite]) -> WriteResult:
    """Make every consumer hold exactly what its write says.

    Raises ConcurrentUpdate (consumer generation), UnknownProvider, NoInventory, CapacityExceeded; the
    transaction must then be rolled back.
    """
    ids = sorted({write.consumer_id for write in writes})
    created = await _lock_consumers(tx, ids, writes)
    old = await _HELD.all(tx, ids=ids)
    new = [
        AllocationRow(consumer_id=w.consumer_id, provider_id=p, resource_class=rc, used=n)
        for w in writes
        for p, amounts in w.allocations.items()
        for rc, n in amounts.items()
    ]
    touched = sorted({row.provider_id for row in (*old, *new)})
    stock = await _lock_providers(tx, touched)
    deltas = _check(stock, old, new)
    await _DROP.run(tx, ids=ids)
    if new:
        await _ADD.run(
            tx,
            consumers=[row.consumer_id for row in new],
            providers=[row.provider_id for row in new],
            classes=[row.resource_class for row in new],
            amounts=[row.used for row in new],
        )
    used = await _move(tx, deltas)
    await _BUMP.run(tx, ids=touched)
    await _settle_consumers(tx, writes)
    await log_used(tx, used)
    return WriteResult(used, created)


async def _lock_consumers(tx: Tx, ids: Sequence[str], writes: Sequence[ConsumerWrite]) -> frozenset[str]:
    by_id = {write.consumer_id: write for write in writes}
    created = set()
    known = {row.id: row for row in await _LOCK_CONSUMERS.all(tx, ids=list(ids))}
    for consumer in ids:
        write = by_id[consumer]
        if consumer not in known and write.allocations:
            made = await _NEW_CONSUMER.scalar(
                tx, id=consumer, project_id=write.project_id, user_id=write.user_id,
                consumer_type=write.consumer_type,
            )  # fmt: skip
            if made is not None:
                created.add(consumer)
                continue
            # Somebody else made it since the look above, and has committed.
            known.update({row.id: row for row in await _LOCK_CONSUMERS.all(tx, ids=[consumer])})
            if consumer not in known:
                raise _consumer_conflict(consumer, "an unknown generation", write.generation)
    for write in writes:
        if not write.check_generation:
            continue
        row = known.get(write.consumer_id)
        if (row.generation if row else None) != write.generation:
            raise _consumer_conflict(write.consumer_id, row.generation if row else None, write.generation)
    return frozenset(created)


def _consumer_conflict(consumer: str, expected: object, got: object) -> ConcurrentUpdate:
    return ConcurrentUpdate(
        f"consumer generation conflict - expected {_null(expected)} but got {_null(got)} for consumer {consumer}",
        consumer=consumer,
    )


def _null(value: object) -> object:
    return "null" if value is None else value


async def _lock_providers(tx: Tx, ids: Sequence[str]) -> dict[Pair, InventoryRow]:
    found = {row[0] for row in await LOCK_PROVIDERS.all(tx, ids=list(ids))}
    for provider in ids:
        if provider not in found:
            raise UnknownProvider(provider)
    rows = await _INVENTORIES.all(tx, ids=list(ids))
    return {(row.provider_id, row.resource_class): row for row in rows}


def _check(
    stock: dict[Pair, InventoryRow], old: Iterable[AllocationRow], new: Iterable[AllocationRow]
) -> dict[Pair, int]:
    """Apply the rules and return how much each inventory's usage changes.

    A provider may be over-committed already (its ratio was lowered): a write that does not raise its
    usage is accepted all the same, so that servers can leave it.
    """
    deltas: dict[Pair, int] = defaultdict(int)
    wanted: dict[Pair, int] = defaultdict(int)
    for row in old:
        deltas[row.provider_id, row.resource_class] -= row.used
    for row in new:
        pair = (row.provider_id, row.resource_class)
        inventory = stock.get(pair)
        if inventory is None:
            raise NoInventory(*pair)
        check_units(*pair, row.used, inventory.min_unit, inventory.max_unit, inventory.step_size)
        deltas[pair] += row.used
        wanted[pair] += row.used
    for pair, amount in wanted.items():
        inventory = stock[pair]
        after = inventory.used + deltas[pair]
        if after > inventory.capacity and deltas[pair] > 0:
            raise CapacityExceeded(*pair, amount, int(inventory.capacity) - (after - amount))
    return deltas


async def _move(tx: Tx, deltas: dict[Pair, int]) -> list[UsedRow]:
    changed = [(pair, delta) for pair, delta in sorted(deltas.items()) if delta]
    if not changed:
        return []
    return await _MOVE.all(
        tx,
        providers=[pair[0] for pair, _ in changed],
        classes=[pair[1] for pair, _ in changed],
        deltas=[delta for _, delta in changed],
    )


async def _settle_consumers(tx: Tx, writes: Sequence[ConsumerWrite]) -> None:
    await _UPDATE_CONSUMER.many(
        tx,
        [
            {
                "consumer": write.consumer_id,
                "project_id": write.project_id,
                "user_id": write.user_id,
                "consumer_type": write.consumer_type,
            }
            for write in writes
            if write.allocations
        ],
    )
    empty = [write.consumer_id for write in writes if not write.allocations]
    if empty:
        await _REMOVE_CONSUMERS.run(tx, ids=empty)
