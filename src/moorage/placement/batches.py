"""Claims that arrive together share a transaction.

While a batch is being written, claims of new consumers gather; the next batch takes them all. One statement decides
for each of them. It counts what the claims before it in the batch ask for as taken (where they would fit alone), so a
claim is granted only if it fits whatever becomes of the others; one that is not granted is not refused yet, and goes its own way, where
a refusal has its reasons. A claim that comes alone costs what it did before.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.placement import claims
from moorage.placement.model import ConsumerWrite, UsedRow
from moorage.placement.tables import (
    allocations,
    consumers,
    inventories,
    inventory_version,
    placement_changes,
    resource_providers,
)
from moorage.store.database import Database, Tx
from moorage.store.statement import Statement

log = get_logger(__name__)

MOST = 64
"""Claims in one batch."""


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


def _batch() -> sa.Select[Any]:
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
    logged = (
        insert(placement_changes)
        .from_select(
            ["kind", "payload"],
            sa.select(
                sa.literal_column("'used'"),
                sa.func.jsonb_agg(
                    sa.func.jsonb_build_array(t.provider_id, t.resource_class, t.used, t.version)
                ),
            )
            .select_from(taken)
            .having(sa.func.count() > sa.literal_column("0")),
        )
        .cte("logged")
    )
    everyone = sa.select(sa.func.array_agg(holder.c.id)).scalar_subquery().label("granted")
    return sa.select(t.provider_id, t.resource_class, t.used, t.version, everyone).add_cte(
        allocated, bumped, logged
    )


def _capacity(of: sa.CTE) -> sa.ColumnElement[Any]:
    return (of.c.total - of.c.reserved) * of.c.allocation_ratio


_BATCH: Statement[_Taken] = Statement(_batch(), row=_Taken)


async def claim_all(tx: Tx, writes: Sequence[ConsumerWrite]) -> tuple[list[UsedRow], frozenset[str]]:
    """Claim for new consumers, each once; return the new usage and whose claims were granted. One statement."""
    wanted = [
        (write.consumer_id, place, provider, name, amount)
        for place, write in enumerate(writes)
        for provider, amounts in write.allocations.items()
        for name, amount in amounts.items()
    ]
    found = await _BATCH.all(
        tx,
        **dict(
            zip(
                ("wanted_by", "places", "providers", "classes", "amounts"),
                zip(*wanted, strict=True),
                strict=True,
            )
        ),
        consumers=[write.consumer_id for write in writes],
        projects=[write.project_id for write in writes],
        users=[write.user_id for write in writes],
        types=[write.consumer_type for write in writes],
        counts=[sum(map(len, write.allocations.values())) for write in writes],
    )
    used = [UsedRow(row.provider_id, row.resource_class, row.used, row.version) for row in found]
    return used, frozenset(found[0].granted if found else ())


class ClaimQueue:
    """Gathers the claims of a process. `taken` is told new usage once it is committed."""

    def __init__(self, database: Database, taken: Callable[[Sequence[UsedRow]], None]) -> None:
        self._database = database
        self._taken = taken
        self._waiting: deque[tuple[ConsumerWrite, asyncio.Future[bool]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def claim(self, write: ConsumerWrite) -> bool:
        """Claim for a new consumer; True when it was committed. False is no refusal: ask the ledger alone.

        Raises Unavailable when the database does not answer; the claim may then have been committed or not.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if self._worker is None:
            # In a context of its own: it works for many requests, not for the one that happens to start it.
            self._worker = asyncio.create_task(
                self._work(), name="placement-claims", context=contextvars.Context()
            )
        return await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                try:
                    granted = await self._write([write for write, _ in batch])
                except Unavailable as error:
                    for _, done in batch:
                        if not done.done():
                            done.set_exception(error)
                    continue
                for write, done in batch:
                    # Whoever asked may have gone.
                    if not done.done():
                        done.set_result(write.consumer_id in granted)
        finally:
            self._worker = None
            for _, done in self._waiting:
                done.cancel()
            self._waiting.clear()

    def _next(self) -> list[tuple[ConsumerWrite, asyncio.Future[bool]]]:
        """Take waiting claims in their order, no consumer twice."""
        batch: dict[str, tuple[ConsumerWrite, asyncio.Future[bool]]] = {}
        while self._waiting and len(batch) < MOST and self._waiting[0][0].consumer_id not in batch:
            claim = self._waiting.popleft()
            batch[claim[0].consumer_id] = claim
        return list(batch.values())

    async def _write(self, writes: Sequence[ConsumerWrite]) -> frozenset[str]:
        try:
            async with self._database.transaction() as tx:
                if len(writes) == 1:
                    used = await claims.claim_new(tx, writes[0])
                    granted = frozenset((writes[0].consumer_id,) if used else ())
                else:
                    used, granted = await claim_all(tx, writes)
                tx.on_commit(lambda: self._taken(used))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001  one of them spoilt it for all: each alone will say what is wrong
            log.debug("placement.batch_spoilt", claims=len(writes), error=str(error))
            return frozenset()
        return granted
