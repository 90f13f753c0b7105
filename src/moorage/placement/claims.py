"""Claims and releases: conditional updates, no generation race.

A claim is one statement. It locks the rows it needs in one order (so that claims cannot deadlock), counts
whether all of them have room, and only then creates the consumer, takes the amounts, writes the
allocations, bumps the generations and logs the change. It changes everything or nothing, so a caller
can go on to the next host in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from moorage.placement.errors import CapacityExceeded, ConsumerExists, NoInventory
from moorage.placement.model import Allocations, ConsumerWrite, UsedRow
from moorage.placement.tables import (
    MAX_UNIT,
    allocations,
    consumers,
    inventories,
    inventory_version,
    placement_changes,
    resource_providers,
)
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param


class _Room(msgspec.Struct, frozen=True):
    """A wanted amount beside the inventory it would come from (None: there is no such inventory)."""

    provider_id: str
    resource_class: str
    amount: int
    total: int | None
    reserved: int | None
    min_unit: int | None
    max_unit: int | None
    step_size: int | None
    allocation_ratio: float | None
    used: int | None


def _wanted(name: str) -> sa.CTE:
    rows = (
        sa.func.unnest(
            texts_param("providers"),
            texts_param("classes"),
            sa.bindparam("amounts", type_=ARRAY(sa.BigInteger)),
        )
        .table_valued(
            sa.column("provider_id", sa.Text),
            sa.column("resource_class", sa.Text),
            sa.column("amount", sa.BigInteger),
        )
        .render_derived()
    )
    return sa.select(rows.c.provider_id, rows.c.resource_class, rows.c.amount).cte(name)


def _claim() -> sa.Select[Any]:
    # wanted -> locked (providers and inventories, in order) -> fits (one row when all have room)
    #   -> holder (the new consumer) -> taken (used += amount) -> allocated, bumped, logged; answers taken.
    want = _wanted("wanted")
    inv, prov = inventories, resource_providers
    locked = (
        sa.select(
            inv.c.provider_id, inv.c.resource_class, inv.c.total, inv.c.reserved, inv.c.min_unit, inv.c.max_unit,
            inv.c.step_size, inv.c.allocation_ratio, inv.c.used, want.c.amount,
        )
        .join(inv, sa.and_(inv.c.provider_id == want.c.provider_id, inv.c.resource_class == want.c.resource_class))
        .join(prov, prov.c.id == inv.c.provider_id)
        .order_by(prov.c.id, inv.c.resource_class)
        .with_for_update(key_share=True, of=[prov, inv])
        .cte("locked")
    )  # fmt: skip
    fits = (
        sa.select(sa.func.count().label("n"))
        .select_from(locked)
        .where(
            locked.c.used + locked.c.amount
            <= (locked.c.total - locked.c.reserved) * locked.c.allocation_ratio,
            locked.c.amount.between(locked.c.min_unit, locked.c.max_unit),
            locked.c.amount % locked.c.step_size == 0,
        )
        .having(sa.func.count() == sa.bindparam("count", type_=sa.BigInteger))
        .cte("fits")
    )
    holder = (
        insert(consumers)
        .from_select(
            ["id", "generation", "project_id", "user_id", "consumer_type"],
            sa.select(
                text_param("consumer"), sa.literal_column("1"), text_param("project_id"), text_param("user_id"),
                text_param("consumer_type"),
            ).select_from(fits),
        )
        .on_conflict_do_nothing()
        .returning(consumers.c.id)
        .cte("holder")
    )  # fmt: skip
    taken = (
        sa.update(inv)
        .where(
            inv.c.provider_id == locked.c.provider_id,
            inv.c.resource_class == locked.c.resource_class,
            sa.exists(sa.select(holder.c.id)),
        )
        .values(used=inv.c.used + locked.c.amount, version=inventory_version.next_value())
        .returning(inv.c.provider_id, inv.c.resource_class, inv.c.used, inv.c.version, locked.c.amount)
        .cte("taken")
    )
    allocated = (
        insert(allocations)
        .from_select(
            ["consumer_id", "provider_id", "resource_class", "used"],
            sa.select(text_param("consumer"), taken.c.provider_id, taken.c.resource_class, taken.c.amount),
        )
        .cte("allocated")
    )
    return _answer(taken).add_cte(allocated, _bumped(taken), _logged(taken))


def _release() -> sa.Select[Any]:
    # The consumer is locked by an earlier statement, so its allocations are final here.
    # held (providers and inventories locked, in order) -> freed (deleted) -> taken (used -= amount)
    # Removing allocations does not change a provider's generation, by the rules of the Placement API.
    inv, prov, held_by = inventories, resource_providers, allocations
    held = (
        sa.select(held_by.c.provider_id, held_by.c.resource_class, held_by.c.used.label("amount"))
        .join(
            inv,
            sa.and_(
                inv.c.provider_id == held_by.c.provider_id, inv.c.resource_class == held_by.c.resource_class
            ),
        )
        .join(prov, prov.c.id == held_by.c.provider_id)
        .where(held_by.c.consumer_id == text_param("consumer"))
        .order_by(prov.c.id, inv.c.resource_class)
        .with_for_update(key_share=True, of=[prov, inv])
        .cte("held")
    )
    freed = sa.delete(held_by).where(held_by.c.consumer_id == text_param("consumer")).cte("freed")
    gone = sa.delete(consumers).where(consumers.c.id == text_param("consumer")).cte("gone")
    taken = (
        sa.update(inv)
        .where(inv.c.provider_id == held.c.provider_id, inv.c.resource_class == held.c.resource_class)
        .values(used=inv.c.used - held.c.amount, version=inventory_version.next_value())
        .returning(inv.c.provider_id, inv.c.resource_class, inv.c.used, inv.c.version)
        .cte("taken")
    )
    return _answer(taken).add_cte(freed, gone, _logged(taken))


def _answer(taken: sa.CTE) -> sa.Select[Any]:
    return sa.select(taken.c.provider_id, taken.c.resource_class, taken.c.used, taken.c.version)


def _bumped(taken: sa.CTE) -> sa.CTE:
    prov = resource_providers
    return (
        sa.update(prov)
        .where(prov.c.id.in_(sa.select(taken.c.provider_id)))
        .values(generation=prov.c.generation + 1)
        .cte("bumped")
    )


def _logged(taken: sa.CTE) -> sa.CTE:
    row = sa.func.jsonb_build_array(
        taken.c.provider_id, taken.c.resource_class, taken.c.used, taken.c.version
    )
    return (
        insert(placement_changes)
        .from_select(
            ["kind", "payload"],
            sa.select(sa.literal_column("'used'"), sa.func.jsonb_agg(row))
            .select_from(taken)
            .having(sa.func.count() > sa.literal_column("0")),
        )
        .cte("logged")
    )


def _room() -> sa.Select[Any]:
    want = _wanted("wanted")
    inv = inventories
    return (
        sa.select(
            want.c.provider_id, want.c.resource_class, want.c.amount, inv.c.total, inv.c.reserved, inv.c.min_unit,
            inv.c.max_unit, inv.c.step_size, inv.c.allocation_ratio, inv.c.used,
        )
        .outerjoin(inv, sa.and_(inv.c.provider_id == want.c.provider_id, inv.c.resource_class == want.c.resource_class))
        .order_by(want.c.provider_id, want.c.resource_class)
    )  # fmt: skip


_CLAIM: Statement[UsedRow] = Statement(_claim(), row=UsedRow)
_RELEASE: Statement[UsedRow] = Statement(_release(), row=UsedRow)
_ROOM: Statement[_Room] = Statement(_room(), row=_Room)
_LOCK_CONSUMER: Statement[Any] = Statement(
    sa.select(consumers.c.id).where(consumers.c.id == text_param("consumer")).with_for_update()
)
_HELD: Statement[Any] = Statement(
    sa.select(allocations.c.provider_id, allocations.c.resource_class, allocations.c.used).where(
        allocations.c.consumer_id == text_param("consumer")
    )
)

_ATTEMPTS = 3


async def claim(
    tx: Tx,
    *,
    consumer: str,
    project_id: str,
    user_id: str,
    consumer_type: str | None,
    allocations: Allocations,
) -> list[UsedRow]:
    """Take all the amounts for a new consumer, or nothing.

    Repeating a claim that holds already changes nothing and returns []. Raises CapacityExceeded, NoInventory,
    or ConsumerExists when the consumer holds something else; the transaction stays usable after each.
    """
    holder = {
        "consumer": consumer,
        "project_id": project_id,
        "user_id": user_id,
        "consumer_type": consumer_type,
    }
    columns = _columns(allocations)
    for _ in range(_ATTEMPTS):
        taken = await _CLAIM.all(tx, **columns, **holder, count=len(columns["amounts"]))
        if taken or not columns["amounts"]:
            return taken
        held = await allocations_of(tx, consumer)
        if held == allocations:
            return []
        if held:
            raise ConsumerExists(f"Consumer {consumer} has other allocations already; release them first.")
        refuse(await _ROOM.all(tx, **columns))
        # All fit now: somebody gave something back since the claim was refused.
    raise ConsumerExists(f"Consumer {consumer} is being claimed by another request.")


async def claim_new(tx: Tx, write: ConsumerWrite) -> list[UsedRow]:
    """Try a claim without asking why it fails: [] when the consumer exists or anything does not fit."""
    columns = _columns(write.allocations)
    if max(columns["amounts"]) > MAX_UNIT:
        return []
    return await _CLAIM.all(
        tx,
        **columns,
        count=len(columns["amounts"]),
        consumer=write.consumer_id,
        project_id=write.project_id,
        user_id=write.user_id,
        consumer_type=write.consumer_type,
    )


def _columns(allocations: Allocations) -> dict[str, list[Any]]:
    wanted = [(p, rc, n) for p, amounts in allocations.items() for rc, n in amounts.items()]
    return {
        "providers": [p for p, _, _ in wanted],
        "classes": [rc for _, rc, _ in wanted],
        "amounts": [n for _, _, n in wanted],
    }


async def release(tx: Tx, consumer: str) -> list[UsedRow]:
    """Give back all that a consumer holds, and forget it. An unknown consumer holds nothing: returns []."""
    if await _LOCK_CONSUMER.scalar(tx, consumer=consumer) is None:
        return []
    return await _RELEASE.all(tx, consumer=consumer)


async def allocations_of(tx: Tx, consumer: str) -> Allocations:
    """Return what a consumer holds, by provider."""
    found: Allocations = {}
    for provider, resource_class, used in await _HELD.all(tx, consumer=consumer):
        found.setdefault(provider, {})[resource_class] = used
    return found


def refuse(rooms: Iterable[_Room]) -> None:
    """Raise for the first amount that does not fit; return when all fit."""
    for room in rooms:
        if room.total is None:
            raise NoInventory(room.provider_id, room.resource_class)
        # The columns of an outer join: with a total, there is a whole row.
        assert room.reserved is not None
        assert room.allocation_ratio is not None
        assert room.used is not None
        assert room.min_unit is not None
        assert room.max_unit is not None
        assert room.step_size is not None
        check_units(
            room.provider_id, room.resource_class, room.amount, room.min_unit, room.max_unit, room.step_size
        )
        capacity = (room.total - room.reserved) * room.allocation_ratio
        if room.used + room.amount > capacity:
            left = int(capacity) - room.used
            raise CapacityExceeded(room.provider_id, room.resource_class, room.amount, left)


def check_units(provider: str, resource_class: str, amount: int, low: int, high: int, step: int) -> None:
    """Raise CapacityExceeded when an amount is not one that the inventory hands out."""
    for limit, broken, value in (
        ("min_unit", amount < low, low),
        ("max_unit", amount > high, high),
        ("step_size", amount % step != 0, step),
    ):
        if broken:
            raise CapacityExceeded(provider, resource_class, amount, value, limit)
