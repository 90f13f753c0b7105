"""A frozen picture of all hosts, in columns.

Every array has one element a host, in the order of `HostTable.names`. The checks read columns only, so
a decision costs a few array operations whatever the number of hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from moorage.scheduling.findings import Positions, Reasons

Mask = NDArray[np.bool_]
Figures = NDArray[np.int64]

NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ResourceColumn:
    """What the hosts offer of one resource class.

    `free` is capacity minus what is allocated, and may be negative on an over-committed host. A host
    without the resource has capacity 0 and free 0. `expected` is what claims under way will take: it
    counts in the ranking, never in a check, because they may still fail.
    """

    capacity: Figures
    free: Figures
    min_unit: Figures
    max_unit: Figures
    step_size: Figures
    expected: Figures

    @classmethod
    def absent(cls, hosts: int) -> ResourceColumn:
        """A resource class that no host has."""
        zeros = np.zeros(hosts, dtype=np.int64)
        ones = np.ones(hosts, dtype=np.int64)
        return cls(zeros, zeros, ones, np.full(hosts, NO_LIMIT, dtype=np.int64), ones, zeros)


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """One granular group of a request (what a port or a NUMA node needs from one provider of a host).

    `fits` tells which hosts have such a provider; `why` says of those that have not what they lack.
    """

    name: str
    fits: Mask
    why: Callable[[Positions], Reasons]


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one host has of one resource class, for tables built row by row."""

    total: int
    used: int = 0
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = NO_LIMIT
    step_size: int = 1

    @property
    def capacity(self) -> int:
        """The amount that can be allocated, rounded down to whole units."""
        return int((self.total - self.reserved) * self.allocation_ratio)


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """One host, for tables built row by row (tests, simulation)."""

    name: str
    resources: dict[str, Amounts] = {}
    up: bool = True
    enabled: bool = True
    disabled_reason: str | None = None
    zone: str = ""
    physical_networks: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HostTable:
    """All hosts a request may land on.

    `physical_networks` and `traits` hold a mask per name; a name that is missing is one that no host
    has. The arrays must not change after the table is made: a plan derives its reasons from them later.
    """

    names: tuple[str, ...]
    up: Mask
    enabled: Mask
    disabled_reasons: tuple[str | None, ...]
    zones: tuple[str, ...]
    zone_masks: Mapping[str, Mask] = field(default_factory=dict)
    resources: Mapping[str, ResourceColumn] = field(default_factory=dict)
    physical_networks: Mapping[str, Mask] = field(default_factory=dict)
    traits: Mapping[str, Mask] = field(default_factory=dict)
    groups: tuple[GroupColumn, ...] = ()

    def __len__(self) -> int:
        """How many hosts there are."""
        return len(self.names)

    def resource(self, resource_class: str) -> ResourceColumn:
        """Return the column of a resource class, all zero when no host has it."""
        column = self.resources.get(resource_class)
        return column if column is not None else ResourceColumn.absent(len(self.names))

    def among(self, names: Iterable[str]) -> Mask:
        """Return which hosts have one of these names; names that no host has are passed over."""
        wanted = frozenset(names)
        if not wanted:
            return np.zeros(len(self.names), dtype=np.bool_)
        return _flags(name in wanted for name in self.names)

    def mask(self, masks: Mapping[str, Mask], name: str) -> Mask:
        """Return the mask of a name, all false when no host has it."""
        mask = masks.get(name)
        return mask if mask is not None else np.zeros(len(self.names), dtype=np.bool_)

    @classmethod
    def of(cls, rows: Sequence[HostRow]) -> HostTable:
        """Build a table from rows."""
        classes = sorted({name for row in rows for name in row.resources})
        zones = tuple(row.zone for row in rows)
        return cls(
            names=tuple(row.name for row in rows),
            up=_flags(row.up for row in rows),
            enabled=_flags(row.enabled for row in rows),
            disabled_reasons=tuple(row.disabled_reason for row in rows),
            zones=zones,
            zone_masks=zone_masks(zones),
            resources={name: _column([row.resources.get(name) for row in rows]) for name in classes},
            physical_networks=_masks([row.physical_networks for row in rows]),
            traits=_masks([row.traits for row in rows]),
        )


def zone_masks(zones: Sequence[str]) -> dict[str, Mask]:
    """Return which hosts are in each zone."""
    return {zone: _flags(other == zone for other in zones) for zone in dict.fromkeys(zones)}


def _flags(values: object) -> Mask:
    return np.fromiter(values, dtype=np.bool_)  # type: ignore[call-overload,no-any-return]


def _masks(sets: Sequence[frozenset[str]]) -> dict[str, Mask]:
    names = sorted({name for members in sets for name in members})
    return {name: _flags(name in members for members in sets) for name in names}


def _column(cells: Sequence[Amounts | None]) -> ResourceColumn:
    empty = Amounts(total=0)
    rows = [cell if cell is not None else empty for cell in cells]

    def figures(values: list[int]) -> Figures:
        return np.array(values, dtype=np.int64)

    return ResourceColumn(
        capacity=figures([row.capacity for row in rows]),
        free=figures([row.capacity - row.used for row in rows]),
        min_unit=figures([row.min_unit for row in rows]),
        max_unit=figures([row.max_unit for row in rows]),
        step_size=figures([row.step_size for row in rows]),
        expected=figures([0] * len(rows)),
    )
