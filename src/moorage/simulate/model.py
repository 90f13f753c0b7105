"""A cloud to place in, and what is asked of it.

A `World` is placement's providers (in the terms of its API) and what the scheduler knows of hosts besides; a host is
the root provider of the same name. An `Arrival` is one server that somebody asks for.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from moorage.placement.model import Inventory
from moorage.placement.reads import Held

FORMAT = 1
Policy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity", "fault-domain"]


class Stock(Inventory, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An inventory as the Placement API writes it, and what is used of it."""

    used: int = 0

    @property
    def capacity(self) -> int:
        """What can be allocated, in whole units."""
        return int(super().capacity)


class ProviderSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One resource provider. Parents stand before their children."""

    uuid: str
    name: str
    parent_provider_uuid: str | None = None
    inventories: dict[str, Stock] = {}
    traits: list[str] = []
    aggregates: list[str] = []


class HostSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the scheduler knows of a host besides its providers.

    `rack` serves the policy fault-domain alone; a host without one is a fault domain of its own.
    """

    name: str
    zone: str = "nova"
    rack: str | None = None
    up: bool = True
    enabled: bool = True
    disabled_reason: str | None = None


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who held something when the dump was taken: amounts by provider. The order is that of their creation."""

    uuid: str
    type: str | None = None
    allocations: dict[str, dict[str, int]]


class World(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole cloud; what `moorage placement dump` writes."""

    format: int = FORMAT
    taken_at: str | None = None
    hosts: list[HostSpec]
    providers: list[ProviderSpec]
    consumers: list[ConsumerSpec] = []

    def emptied(self) -> World:
        """The same cloud with nothing in it."""
        replace = msgspec.structs.replace
        providers = [
            replace(p, inventories={rc: replace(stock, used=0) for rc, stock in p.inventories.items()})
            for p in self.providers
        ]
        return replace(self, providers=providers, consumers=[])

    def held(self) -> list[Held]:
        """The providers as the index loads them."""
        roots: dict[str, str] = {}
        found = []
        for p in self.providers:
            parent = p.parent_provider_uuid
            roots[p.uuid] = p.uuid if parent is None else roots[parent]
            cells = [
                [rc, s.total, s.reserved, s.min_unit, s.max_unit, s.step_size, s.allocation_ratio, s.used, 0]
                for rc, s in p.inventories.items()
            ]
            found.append(Held(p.uuid, p.name, 0, parent, roots[p.uuid], p.traits, p.aggregates, cells))
        return found


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A granular group: resources that come from one provider, which has these traits."""

    resources: dict[str, int]
    required: list[str] = []
    forbidden: list[str] = []


class Arrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One server. `at` and `lifetime` are in seconds; without a lifetime it stays.

    `resources` may come from the whole tree of a host, each of `parts` from one provider of it; `isolate` asks for
    different providers for the parts. `group` and `policy` are those of a server group; for the policy
    fault-domain, servers of different `domain` never share a rack.
    """

    id: str
    at: float = 0.0
    lifetime: float | None = None
    resources: dict[str, int] = {}
    parts: list[Part] = []
    isolate: bool = False
    zone: str | None = None
    required: list[str] = []
    forbidden: list[str] = []
    physical_networks: list[str] = []
    group: str | None = None
    policy: Policy | None = None
    domain: str | None = None

    def totals(self) -> dict[str, int]:
        """What it takes in all, by resource class."""
        found = dict(self.resources)
        for part in self.parts:
            for name, amount in part.resources.items():
                found[name] = found.get(name, 0) + amount
        return found


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an arrival: its host, or in a line why there is none. `seconds` is the time of the decision."""

    id: str
    at: float
    seconds: float
    host: str | None = None
    reason: str | None = None
    main: str | None = None
    """The reason that most hosts gave."""
    room: bool = False
    """Refused although the free amounts of all hosts together would have been enough."""
