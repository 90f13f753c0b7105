"""What the Placement API answers."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from moorage.api import since
from moorage.api.answers import Link, many
from moorage.api.fields import only


class Version(msgspec.Struct):
    id: str
    status: str
    min_version: str
    max_version: str
    links: list[Link]


class ResourceClass(msgspec.Struct):
    name: str
    links: list[Link]


class TraitNames(msgspec.Struct):
    traits: list[str]


class ResourceProvider(msgspec.Struct):
    uuid: str
    name: str
    generation: int
    links: list[Link]
    parent_provider_uuid: Annotated[str | None, only(since("1.14"))]
    root_provider_uuid: Annotated[str, only(since("1.14"))]


class Inventory(msgspec.Struct, kw_only=True):
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float


class OneInventory(Inventory, kw_only=True):
    resource_provider_generation: int


class ProviderInventories(msgspec.Struct):
    """By resource class."""

    resource_provider_generation: int
    inventories: dict[str, Inventory]


class ProviderUsages(msgspec.Struct):
    """By resource class."""

    resource_provider_generation: int
    usages: dict[str, int]


class ProviderAggregates(msgspec.Struct):
    aggregates: list[str]
    resource_provider_generation: Annotated[int, only(since("1.19"))]


class TraitsOfProvider(msgspec.Struct):
    traits: list[str]
    resource_provider_generation: int


class ConsumerOnProvider(msgspec.Struct):
    resources: dict[str, int]
    consumer_generation: Annotated[int, only(since("1.28"))]


class ProviderAllocations(msgspec.Struct):
    """By consumer."""

    allocations: dict[str, ConsumerOnProvider]
    resource_provider_generation: int


class HeldOnProvider(msgspec.Struct):
    generation: int
    resources: dict[str, int]


class ConsumerAllocations(msgspec.Struct):
    """By provider; who holds them is told where there are any."""

    allocations: dict[str, HeldOnProvider]
    project_id: Annotated[str | UnsetType, only(since("1.12"))] = UNSET
    user_id: Annotated[str | UnsetType, only(since("1.12"))] = UNSET
    consumer_generation: Annotated[int | UnsetType, only(since("1.28"))] = UNSET
    consumer_type: Annotated[str | UnsetType, only(since("1.38"))] = UNSET


class ProjectUsages(msgspec.Struct):
    """By resource class."""

    usages: dict[str, int]


class UsagesByType(msgspec.Struct):
    """By consumer type, then by resource class; ``consumer_count`` is among the classes."""

    usages: dict[str, dict[str, int]]


class NamedProvider(msgspec.Struct):
    uuid: str


class AllocationItem(msgspec.Struct):
    resource_provider: NamedProvider
    resources: dict[str, int]


class Resources(msgspec.Struct):
    resources: dict[str, int]


class ListedRequest(msgspec.Struct):
    allocations: list[AllocationItem]


class AllocationRequest(msgspec.Struct):
    """A claim as ``PUT /allocations`` takes it. ``mappings``: the providers of each group of the request."""

    allocations: dict[str, Resources]
    mappings: Annotated[dict[str, list[str]], only(since("1.34"))]


class Room(msgspec.Struct):
    capacity: int
    used: int


class ProviderSummary(msgspec.Struct):
    resources: dict[str, Room]
    traits: Annotated[list[str], only(since("1.17"))]
    parent_provider_uuid: Annotated[str | None, only(since("1.29"))]
    root_provider_uuid: Annotated[str, only(since("1.29"))]


class ListedCandidates(msgspec.Struct):
    allocation_requests: list[ListedRequest]
    provider_summaries: dict[str, ProviderSummary]


class Candidates(msgspec.Struct):
    """Summaries by provider."""

    allocation_requests: list[AllocationRequest]
    provider_summaries: dict[str, ProviderSummary]


VERSIONS = many("versions", Version)
RESOURCE_CLASSES = many("resource_classes", ResourceClass)
RESOURCE_PROVIDERS = many("resource_providers", ResourceProvider)
