"""What placement refuses.

Codes that begin with `placement.` are part of the Placement API and reach its clients; every other
failure shows there as `placement.undefined_code`, as the API wants it.
"""

from __future__ import annotations

from moorage.core.errors import BadRequest, Conflict, Duplicate, GenerationConflict, InUse, NotFound


class ProviderNotFound(NotFound):
    """No resource provider has this id."""

    code = "provider_not_found"

    def __init__(self, provider: str, what_for: str = "") -> None:
        super().__init__(
            f"No resource provider with uuid {provider} found {what_for}".rstrip() + ".", provider=provider
        )


class UnknownProvider(BadRequest):
    """A body names a resource provider that does not exist."""

    code = "unknown_provider"

    def __init__(self, provider: str, code: str | None = None) -> None:
        super().__init__(
            f"Allocation for resource provider '{provider}' that does not exist.",
            code=code,
            provider=provider,
        )


class DuplicateProvider(Duplicate):
    """A provider has this name or uuid already."""

    code = "placement.duplicate_name"


class ProviderInUse(InUse):
    """The provider has allocations."""

    code = "placement.resource_provider.inuse"


class ProviderHasChildren(InUse):
    """The provider has children."""

    code = "placement.resource_provider.cannot_delete_parent"


class InventoryInUse(InUse):
    """An inventory that would be removed has allocations."""

    code = "placement.inventory.inuse"


class InventoryNotFound(NotFound):
    """The provider has no inventory of this class."""

    code = "inventory_not_found"


class InvalidInventory(BadRequest):
    """The figures of an inventory contradict each other."""

    code = "invalid_inventory"


class ConcurrentUpdate(GenerationConflict):
    """A generation differs from what the caller knows: read again, then retry."""

    code = "placement.concurrent_update"


class ConsumerExists(Conflict):
    """The consumer has other allocations already."""

    code = "consumer_exists"


class CapacityExceeded(Conflict):
    """A provider has not enough of a resource class left; another candidate may have.

    `available` is what was left of the capacity when the claim was refused, or the unit that the
    amount breaks (`limit` says which: `capacity`, `min_unit`, `max_unit` or `step_size`).
    """

    code = "capacity_exceeded"

    def __init__(
        self, provider: str, resource_class: str, needed: int, available: int, limit: str = "capacity"
    ) -> None:
        super().__init__(
            f"Unable to allocate inventory, {needed} {resource_class} on resource provider {provider}:"
            f" {_WHY[limit].format(available)}.",
            provider=provider,
            resource_class=resource_class,
            needed=needed,
            available=available,
            limit=limit,
        )
        self.provider = provider
        self.resource_class = resource_class
        self.needed = needed
        self.available = available
        self.limit = limit


_WHY = {
    "capacity": "The requested amount would exceed the capacity, {} are left",
    "min_unit": "an amount must be at least {} (min_unit)",
    "max_unit": "an amount must be at most {} (max_unit)",
    "step_size": "an amount must be a multiple of {} (step_size)",
}


class NoInventory(Conflict):
    """An allocation names a resource class that the provider does not offer."""

    code = "no_inventory"

    def __init__(self, provider: str, resource_class: str) -> None:
        super().__init__(
            f"Inventory for '{resource_class}' on resource provider '{provider}' is missing.",
            provider=provider,
            resource_class=resource_class,
        )
        self.provider = provider
        self.resource_class = resource_class


class UnknownNames(BadRequest):
    """Traits or resource classes that do not exist are named."""

    code = "unknown_names"

    def __init__(self, kind: str, names: list[str], what: str | None = None) -> None:
        what = what or f"Unknown {kind} in the request"
        plural = "trait(s):" if kind == "trait" else kind
        super().__init__(f"{what}: No such {plural} {', '.join(names)}.", names=names)


class StandardName(BadRequest):
    """A standard trait or resource class cannot be changed or removed."""

    code = "standard_name"


class NameInUse(InUse):
    """A custom trait or resource class is still used."""

    code = "name_in_use"
