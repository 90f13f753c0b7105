"""Rows and values of placement."""

from __future__ import annotations

from datetime import datetime

import msgspec

from moorage.placement.tables import MAX_UNIT

Amounts = dict[str, int]
"""Resource class -> amount."""

Allocations = dict[str, Amounts]
"""Provider id -> what is allocated on it."""


class Provider(msgspec.Struct, frozen=True):
    """A resource provider; `root_id` is its own id for a root."""

    id: str
    name: str
    generation: int
    parent_id: str | None
    root_id: str
    created_at: datetime
    updated_at: datetime | None = None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider offers of one resource class.

    Usable is `(total - reserved) * allocation_ratio`; one allocation takes between `min_unit` and
    `max_unit`, in multiples of `step_size`.
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_UNIT
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> float:
        """What can be allocated in all; not rounded, as claims compare it."""
        return (self.total - self.reserved) * self.allocation_ratio


class InventoryRow(msgspec.Struct, frozen=True):
    """An inventory as stored: with what is used, and the version of the row."""

    provider_id: str
    resource_class: str
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int
    version: int

    @property
    def inventory(self) -> Inventory:
        """The row without its usage."""
        return Inventory(
            total=self.total,
            reserved=self.reserved,
            min_unit=self.min_unit,
            max_unit=self.max_unit,
            step_size=self.step_size,
            allocation_ratio=self.allocation_ratio,
        )

    @property
    def capacity(self) -> float:
        """What can be allocated in all; not rounded."""
        return (self.total - self.reserved) * self.allocation_ratio


class UsedRow(msgspec.Struct, frozen=True, array_like=True):
    """What is used of one inventory after a write; the payload of a `used` change."""

    provider_id: str
    resource_class: str
    used: int
    version: int


class Consumer(msgspec.Struct, frozen=True):
    """Who holds allocations; exists while it holds at least one."""

    id: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


class AllocationRow(msgspec.Struct, frozen=True):
    """An amount of one resource class of one provider, held by one consumer."""

    consumer_id: str
    provider_id: str
    resource_class: str
    used: int
    generation: int = 0
    """The provider's generation."""


class ConsumerWrite(msgspec.Struct, frozen=True, kw_only=True):
    """All allocations that a consumer shall hold from now on; none removes the consumer.

    `generation` is what the writer knows of the consumer, None meaning that it does not exist; it is
    compared only with `check_generation`.
    """

    consumer_id: str
    allocations: Allocations
    project_id: str
    user_id: str
    consumer_type: str | None = None
    generation: int | None = None
    check_generation: bool = False

    @property
    def is_new(self) -> bool:
        """Whether this is a claim for a consumer that does not exist, as far as the writer knows."""
        return bool(self.allocations) and self.check_generation and self.generation is None
