"""Queries of providers, usages and allocations."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from moorage.placement.model import AllocationRow, Consumer, Provider
from moorage.placement.tables import allocations, consumers, inventories, resource_providers
from moorage.placement.tables import provider_aggregates as pa
from moorage.placement.tables import provider_traits as pt
from moorage.store.statement import Statement, text_param, texts_param

PROVIDER: Statement[Provider] = Statement(
    sa.select(resource_providers).where(resource_providers.c.id == text_param("id")), row=Provider
)
PROVIDERS_BY_ID: Statement[Provider] = Statement(
    sa.select(resource_providers)
    .where(resource_providers.c.id == sa.any_(texts_param("ids")))
    .order_by(resource_providers.c.created_at, resource_providers.c.id),
    row=Provider,
)
LOCK_PROVIDERS: Statement[Any] = Statement(
    sa.select(resource_providers.c.id)
    .where(resource_providers.c.id == sa.any_(texts_param("ids")))
    .order_by(resource_providers.c.id)
    .with_for_update(key_share=True)
)
PROVIDERS: Statement[Provider] = Statement(
    sa.select(resource_providers)
    .where(
        sa.or_(text_param("name").is_(None), resource_providers.c.name == text_param("name")),
        sa.or_(text_param("id").is_(None), resource_providers.c.id == text_param("id")),
        sa.or_(
            text_param("tree").is_(None),
            resource_providers.c.root_id
            == sa.select(resource_providers.c.root_id)
            .where(resource_providers.c.id == text_param("tree"))
            .scalar_subquery(),
        ),
    )
    .order_by(resource_providers.c.created_at, resource_providers.c.id),
    row=Provider,
)


class Usage(msgspec.Struct, frozen=True):
    """What is used of one resource class, by one type of consumers (None: their type is unknown)."""

    consumer_type: str | None
    resource_class: str
    used: int
    consumers: int


class ProviderUsage(msgspec.Struct, frozen=True):
    """What is used of one inventory."""

    resource_class: str
    used: int


PROVIDER_USAGES: Statement[ProviderUsage] = Statement(
    sa.select(inventories.c.resource_class, inventories.c.used)
    .where(inventories.c.provider_id == text_param("id"))
    .order_by(inventories.c.resource_class),
    row=ProviderUsage,
)
PROJECT_USAGES: Statement[Usage] = Statement(
    sa.select(
        consumers.c.consumer_type,
        allocations.c.resource_class,
        sa.cast(sa.func.sum(allocations.c.used), sa.BigInteger).label("used"),
        sa.func.count(allocations.c.consumer_id.distinct()).label("consumers"),
    )
    .join(allocations, allocations.c.consumer_id == consumers.c.id)
    .where(
        consumers.c.project_id == text_param("project_id"),
        sa.or_(text_param("user_id").is_(None), consumers.c.user_id == text_param("user_id")),
    )
    .group_by(consumers.c.consumer_type, allocations.c.resource_class),
    row=Usage,
)


class TypeCount(msgspec.Struct, frozen=True):
    """How many consumers of a type a project has."""

    consumer_type: str | None
    consumers: int


CONSUMER_COUNTS: Statement[TypeCount] = Statement(
    sa.select(consumers.c.consumer_type, sa.func.count().label("consumers"))
    .where(
        consumers.c.project_id == text_param("project_id"),
        sa.or_(text_param("user_id").is_(None), consumers.c.user_id == text_param("user_id")),
    )
    .group_by(consumers.c.consumer_type),
    row=TypeCount,
)
CONSUMER: Statement[Consumer] = Statement(
    sa.select(consumers).where(consumers.c.id == text_param("id")), row=Consumer
)
CONSUMERS_BY_ID: Statement[Consumer] = Statement(
    sa.select(consumers).where(consumers.c.id == sa.any_(texts_param("ids"))), row=Consumer
)
_allocation = sa.select(
    allocations.c.consumer_id,
    allocations.c.provider_id,
    allocations.c.resource_class,
    allocations.c.used,
    resource_providers.c.generation,
).join(resource_providers, resource_providers.c.id == allocations.c.provider_id)
# In one order, whatever the plan: clients show them in the order of the answer.
ALLOCATIONS_OF_CONSUMER: Statement[AllocationRow] = Statement(
    _allocation.where(allocations.c.consumer_id == text_param("id")).order_by(
        resource_providers.c.created_at, resource_providers.c.id, allocations.c.resource_class
    ),
    row=AllocationRow,
)
ALLOCATIONS_OF_PROVIDER: Statement[AllocationRow] = Statement(
    _allocation.where(allocations.c.provider_id == text_param("id")).order_by(
        allocations.c.created_at, allocations.c.consumer_id, allocations.c.resource_class
    ),
    row=AllocationRow,
)


class Held(msgspec.Struct, frozen=True):
    """One provider and all that describes it, as the index loads it."""

    id: str
    name: str
    generation: int
    parent_id: str | None
    root_id: str
    traits: list[str] | None
    aggregates: list[str] | None
    inventories: list[list[Any]] | None
    """Rows of [class, total, reserved, min_unit, max_unit, step_size, ratio, used, version]."""


def _whole() -> sa.Select[Any]:
    p, i = resource_providers, inventories
    figures = sa.func.jsonb_build_array(
        i.c.resource_class, i.c.total, i.c.reserved, i.c.min_unit, i.c.max_unit, i.c.step_size,
        i.c.allocation_ratio, i.c.used, i.c.version,
    )  # fmt: skip
    return sa.select(
        p.c.id,
        p.c.name,
        p.c.generation,
        p.c.parent_id,
        p.c.root_id,
        sa.select(sa.func.array_agg(pt.c.trait))
        .where(pt.c.provider_id == p.c.id)
        .scalar_subquery()
        .label("traits"),
        sa.select(sa.func.array_agg(pa.c.aggregate_id))
        .where(pa.c.provider_id == p.c.id)
        .scalar_subquery()
        .label("aggregates"),
        sa.select(sa.func.jsonb_agg(figures))
        .where(i.c.provider_id == p.c.id)
        .scalar_subquery()
        .label("inventories"),
    )


EVERYTHING: Statement[Held] = Statement(
    _whole().order_by(resource_providers.c.created_at, resource_providers.c.id), row=Held
)
THESE: Statement[Held] = Statement(
    _whole()
    .where(resource_providers.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.Text))))
    .order_by(resource_providers.c.created_at, resource_providers.c.id),
    row=Held,
)
