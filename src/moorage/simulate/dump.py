"""A picture of a live cloud, to be placed in again: one snapshot of the ledger, and the hosts as the scheduler sees them."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from moorage.core.clock import iso, utcnow
from moorage.placement.hosts import HostStates
from moorage.placement.model import Allocations
from moorage.placement.reads import EVERYTHING, Held
from moorage.placement.tables import allocations, consumers
from moorage.simulate.model import ConsumerSpec, HostSpec, ProviderSpec, Stock, World
from moorage.store.database import Database
from moorage.store.statement import Statement


class _Holding(msgspec.Struct, frozen=True):
    id: str
    consumer_type: str | None
    allocations: Allocations


# consumer -> {provider: {class: amount}}
_by_provider = (
    sa.select(
        allocations.c.consumer_id,
        allocations.c.provider_id,
        sa.func.jsonb_object_agg(allocations.c.resource_class, allocations.c.used).label("amounts"),
    )
    .group_by(allocations.c.consumer_id, allocations.c.provider_id)
    .subquery()
)
_HOLDINGS: Statement[_Holding] = Statement(
    sa.select(
        consumers.c.id,
        consumers.c.consumer_type,
        sa.func.jsonb_object_agg(_by_provider.c.provider_id, _by_provider.c.amounts).label("allocations"),
    )
    .join(_by_provider, _by_provider.c.consumer_id == consumers.c.id)
    .group_by(consumers.c.id)
    .order_by(consumers.c.created_at, consumers.c.id),
    row=_Holding,
)


async def taken(database: Database, states: HostStates) -> World:
    """The cloud now. Of consumers there is what they hold and of which type they are, not whose they are."""
    async with database.transaction() as tx:
        await tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", ())
        providers = await EVERYTHING.all(tx)
        held = await _HOLDINGS.all(tx)
    return World(
        taken_at=iso(utcnow()),
        hosts=_hosts(states),
        providers=_parents_first(providers),
        consumers=[ConsumerSpec(uuid=h.id, type=h.consumer_type, allocations=h.allocations) for h in held],
    )


def _hosts(states: HostStates) -> list[HostSpec]:
    rows = zip(
        states.names,
        states.zones,
        states.up.tolist(),
        states.enabled.tolist(),
        states.disabled_reasons,
        strict=True,
    )
    return [
        HostSpec(name=name, zone=zone, up=up, enabled=enabled, disabled_reason=reason)
        for name, zone, up, enabled, reason in rows
    ]


def _parents_first(providers: list[Held]) -> list[ProviderSpec]:
    """In the order of creation, but none before its parent (a provider may get an older one later)."""
    children: dict[str | None, list[Held]] = {}
    for held in providers:
        children.setdefault(held.parent_id, []).append(held)
    found: list[ProviderSpec] = []
    waiting = list(reversed(children.get(None, ())))
    while waiting:
        held = waiting.pop()
        found.append(_spec(held))
        waiting += reversed(children.get(held.id, ()))
    return found


def _spec(held: Held) -> ProviderSpec:
    names = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio", "used")
    return ProviderSpec(
        uuid=held.id,
        name=held.name,
        parent_provider_uuid=held.parent_id,
        inventories={
            cell[0]: Stock(**dict(zip(names, cell[1:8], strict=True))) for cell in held.inventories or ()
        },
        traits=sorted(held.traits or ()),
        aggregates=sorted(held.aggregates or ()),
    )
