"""Claims and releases: conditional updates, no generation race.

Claims, one or many of different consumers, are one statement. It locks the rows it needs in one order (so that claims
cannot deadlock), decides for each consumer whether all it asks for has room, and only then creates the consumer, takes
the amounts, writes the allocations, bumps the generations and logs the change. For a consumer it changes everything or
nothing, so a caller can go on to the next host in the same transaction.

The statement counts what the claims before one ask for as taken (where they would fit alone), so a claim is granted
only if it fits whatever becomes of the others. One that is not granted beside others may still fit alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from moorage.placement.errors import CapacityExceeded, ConsumerExists, NoInventory
from moorage.placement.model import Allocations, ConsumerWrite, UsedRow
from moorage.placement.tables import (
    allocations,
    consumers,
    inventories,
    inventory_version,
    placement_changes,
    resource_providers,
)
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param


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


class _Taken(msgspec.Struct, frozen=True):
    """A changed inventory, and (in every row) the consumers whose claims were granted."""

    provider_id: str
    resource_class: str
    used: int
    version: int
    granted: list[str]


def _unnested(name: str, **parameters: tuple[str, Any]) -> sa.CTE:
    """Arrays of one length as rows: column name -> parameter and type."""
    rows = (
        sa.func.unnest(*(sa.bindparam(p, type_=ARRAY(kind)) for p, kind in parameters.values()))
        .table_valued(*(sa.column(column, kind) for column, (_, kind) in parameters.items()))
        .render_derived()
    )
    return sa.select(*(rows.c[column] for column in parameters)).cte(name)


def _claims() -> sa.Select[Any]:
    # wanted, asking -> locked (inventories and providers, in order)
    #   -> able (consumers whose every amount would fit alone)
    #   -> running (what these ask for up to and with each claim) -> fits (those that have room behind the others)
    #   -> holder (those that are new) -> granted -> taken (used += sums) -> allocated, bumped, logged.
    inv, prov = inventories, resource_providers
    want = _unnested(
        "wanted",
        consumer=("wanted_by", sa.Text),
        place=("places", sa.BigInteger),
        provider_id=("providers", sa.Text),
        resource_class=("classes", sa.Text),
        amount=("amounts", sa.BigInteger),
    )
    ask = _unnested(
        "asking",
        consumer=("consumers", sa.Text),
        project_id=("projects", sa.Text),
        user_id=("users", sa.Text),
        consumer_type=("types", sa.Text),
        count=("counts", sa.BigInteger),
    )
    locked = (
        sa.select(
            want.c.consumer, want.c.place, want.c.amount, inv.c.provider_id, inv.c.resource_class, inv.c.total,
            inv.c.reserved, inv.c.min_unit, inv.c.max_unit, inv.c.step_size, inv.c.allocation_ratio, inv.c.used,
        )
        .join(inv, sa.and_(inv.c.provider_id == want.c.provider_id, inv.c.resource_class == want.c.resource_class))
        .join(prov, prov.c.id == inv.c.provider_id)
        .order_by(prov.c.id, inv.c.resource_class, want.c.place)
        .with_for_update(key_share=True, of=[prov, inv])
        .cte("locked")
    )  # fmt: skip
    fitting = (
        locked.c.used + locked.c.amount <= _capacity(locked),
        locked.c.amount.between(locked.c.min_unit, locked.c.max_unit),
        locked.c.amount % locked.c.step_size == 0,
    )
    able = (
        sa.select(ask.c.consumer)
        .join(locked, locked.c.consumer == ask.c.consumer)
        .where(*fitting)
        .group_by(ask.c.consumer, ask.c.count)
        .having(sa.func.count() == ask.c.count)
        .cte("able")
    )
    running = (
        sa.select(
            locked,
            sa.func.sum(locked.c.amount)
            .over(partition_by=(locked.c.provider_id, locked.c.resource_class), order_by=locked.c.place)
            .label("upto"),
        )
        .join(able, able.c.consumer == locked.c.consumer)
        .cte("running")
    )
    fits = (
        sa.select(running.c.consumer, sa.func.count().label("n"))
        .where(running.c.used + running.c.upto <= _capacity(running))
        .group_by(running.c.consumer)
        .cte("fits")
    )
    holder = (
        insert(consumers)
        .from_select(
            ["id", "generation", "project_id", "user_id", "consumer_type"],
            sa.select(
                ask.c.consumer, sa.literal_column("1"), ask.c.project_id, ask.c.user_id, ask.c.consumer_type
            ).join(fits, sa.and_(fits.c.consumer == ask.c.consumer, fits.c.n == ask.c.count)),
        )
        .on_conflict_do_nothing()
        .returning(consumers.c.id)
        .cte("holder")
    )
    granted = (
        sa.select(locked.c.consumer, locked.c.provider_id, locked.c.resource_class, locked.c.amount)
        .join(holder, holder.c.id == locked.c.consumer)
        .cte("granted")
    )
    sums = (
        sa.select(
            granted.c.provider_id,
            granted.c.resource_class,
            sa.cast(sa.func.sum(granted.c.amount), sa.BigInteger).label("amount"),
        )
        .group_by(granted.c.provider_id, granted.c.resource_class)
        .cte("sums")
    )
    taken = (
        sa.update(inv)
        .where(inv.c.provider_id == sums.c.provider_id, inv.c.resource_class == sums.c.resource_class)
        .values(used=inv.c.used + sums.c.amount, version=inventory_version.next_value())
        .returning(inv.c.provider_id, inv.c.resource_class, inv.c.used, inv.c.version)
        .cte("taken")
    )
    allocated = (
        insert(allocations)
        .from_select(["consumer_id", "provider_id", "resource_class", "used"], sa.select(granted))
        .cte("allocated")
    )
    writes = (
        sa.select(granted.c.provider_id, sa.func.count(granted.c.consumer.distinct()).label("n"))
        .group_by(granted.c.provider_id)
        .cte("writes")
    )
    bumped = (
        sa.update(prov)
        .where(prov.c.id == writes.c.provider_id)
        .values(generation=prov.c.generation + writes.c.n)
        .cte("bumped")
    )
    t = taken.c
    everyone = sa.select(sa.func.array_agg(holder.c.id)).scalar_subquery().label("granted")
    return sa.select(t.provider_id, t.resource_class, t.used, t.version, everyone).add_cte(
        allocated, bumped, _logged(taken)
    )


def _capacity(of: sa.CTE) -> sa.ColumnElement[Any]:
    return (of.c.total - of.c.reserved) * of.c.allocation_ratio


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
    t = taken.c
    return sa.select(t.provider_id, t.resource_class, t.used, t.version).add_cte(freed, gone, _logged(taken))


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
    want = _unnested(
        "wanted",
        provider_id=("providers", sa.Text),
        resource_class=("classes", sa.Text),
        amount=("amounts", sa.BigInteger),
    )
    inv = inventories
    return (
        sa.select(
            want.c.provider_id, want.c.resource_class, want.c.amount, inv.c.total, inv.c.reserved, inv.c.min_unit,
            inv.c.max_unit, inv.c.step_size, inv.c.allocation_ratio, inv.c.used,
        )
        .outerjoin(inv, sa.and_(inv.c.provider_id == want.c.provider_id, inv.c.resource_class == want.c.resource_class))
        .order_by(want.c.provider_id, want.c.resource_class)
    )  # fmt: skip


_CLAIM: Statement[_Taken] = Statement(_claims(), row=_Taken)
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


async def claim(tx: Tx, write: ConsumerWrite) -> list[UsedRow]:
    """Take all the amounts for a new consumer, or nothing; return the new usage.

    Repeating a claim that holds already changes nothing and returns []. Raises CapacityExceeded, NoInventory,
    or ConsumerExists when the consumer holds something else; the transaction stays usable after each.
    """
    if not any(write.allocations.values()):
        return []
    for _ in range(_ATTEMPTS):
        taken, _granted = await claim_all(tx, [write])
        if taken:
            return taken
        held = await allocations_of(tx, write.consumer_id)
        if held == write.allocations:
            return []
        if held:
            raise ConsumerExists(
                f"Consumer {write.consumer_id} has other allocations already; release them first."
            )
        wanted = _wanted([write])
        refuse(await _ROOM.all(tx, **{name: wanted[name] for name in ("providers", "classes", "amounts")}))
        # All fit now: somebody gave something back since the claim was refused.
    raise ConsumerExists(f"Consumer {write.consumer_id} is being claimed by another request.")


async def claim_all(tx: Tx, writes: Sequence[ConsumerWrite]) -> tuple[list[UsedRow], frozenset[str]]:
    """Claim for new consumers, each once; return the new usage and whose claims were granted. One statement."""
    found = await _CLAIM.all(
        tx,
        **_wanted(writes),
        consumers=[write.consumer_id for write in writes],
        projects=[write.project_id for write in writes],
        users=[write.user_id for write in writes],
        types=[write.consumer_type for write in writes],
        counts=[sum(map(len, write.allocations.values())) for write in writes],
    )
    used = [UsedRow(row.provider_id, row.resource_class, row.used, row.version) for row in found]
    return used, frozenset(found[0].granted if found else ())


def _wanted(writes: Sequence[ConsumerWrite]) -> dict[str, list[Any]]:
    """Return the amounts that are asked for in columns."""
    rows = [
        (write.consumer_id, place, provider, name, amount)
        for place, write in enumerate(writes)
        for provider, amounts in write.allocations.items()
        for name, amount in amounts.items()
    ]
    names = ("wanted_by", "places", "providers", "classes", "amounts")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


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
