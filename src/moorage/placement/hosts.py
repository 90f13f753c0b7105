"""The scheduler's host table, made from the index and what the caller knows of its hosts.

A host is the root provider of the same name. For each resource class a host offers what the best provider
of its tree has left (or a sharing provider that serves the tree): enough to refuse a host with figures; the
exact combination is then searched in the chosen tree alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from moorage.placement.columns import Columns, Mask
from moorage.placement.explain import Failure, GroupFailures, words
from moorage.placement.figures import DEAD, ClassColumn
from moorage.placement.matching import Shape
from moorage.placement.names import normalised
from moorage.placement.query import RequestGroup
from moorage.scheduling.findings import Finding, Positions, Reasons
from moorage.scheduling.hosts import (
    NO_LIMIT,
    GroupColumn,
    HostTable,
    ResourceColumn,
    zone_masks,
)
from moorage.scheduling.ranking import DEFAULT_WEIGHERS
from moorage.scheduling.request import Request

PHYSNET_PREFIX = "CUSTOM_PHYSNET_"


@dataclass(frozen=True, slots=True, eq=False)
class HostStates:
    """What is known of hosts outside placement, in columns. Make one, keep it until something changes.

    The work of matching hosts with providers is remembered by the identity of this value.
    """

    names: tuple[str, ...]
    up: Mask
    enabled: Mask
    disabled_reasons: tuple[str | None, ...]
    zones: tuple[str, ...]
    zone_masks: dict[str, Mask]

    @classmethod
    def of(cls, hosts: Iterable[tuple[str, bool, bool, str | None, str]]) -> HostStates:
        """Build from rows of (name, up, enabled, disabled reason, availability zone)."""
        rows = list(hosts)
        zones = tuple(row[4] for row in rows)
        return cls(
            names=tuple(row[0] for row in rows),
            up=np.array([row[1] for row in rows], dtype=np.bool_),
            enabled=np.array([row[2] for row in rows], dtype=np.bool_),
            disabled_reasons=tuple(row[3] for row in rows),
            zones=zones,
            zone_masks=zone_masks(zones),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Which tree each host is; -1 for a host without a provider. Right for one layout of the columns."""

    columns: Columns
    layout: int
    states: HostStates
    trees: NDArray[np.int64]
    offers: dict[str, Offers] = field(default_factory=dict)
    """Per resource class, where no tree has a choice of providers."""

    @classmethod
    def of(cls, columns: Columns, states: HostStates) -> Alignment:
        """Match hosts with root providers by name."""
        trees = [columns.tree_of_name.get(name, -1) for name in states.names]
        return cls(columns, columns.layout, states, np.array(trees, dtype=np.int64))

    def holds(self, columns: Columns) -> bool:
        """Tell whether it is still right."""
        return self.columns is columns and self.layout == columns.layout


def host_table(alignment: Alignment, request: Request, shape: Shape | None = None) -> HostTable:
    """Return the table for one request: what its checks and the ranking read.

    `shape` is that of the query for the request, where it has granular groups: what these lack is then known of every
    host.
    """
    columns, states, trees = alignment.columns, alignment.states, alignment.trees
    wanted = {*request.resources, *(weigher.resource_class for weigher in DEFAULT_WEIGHERS)}
    resources = {name: _gather(alignment, name) for name in wanted if name in columns.classes}
    return HostTable(
        names=states.names,
        up=states.up,
        enabled=states.enabled,
        disabled_reasons=states.disabled_reasons,
        zones=states.zones,
        zone_masks=states.zone_masks,
        resources=resources,
        physical_networks={
            name: _in_trees(columns, normalised(name, PHYSNET_PREFIX), trees)
            for name in request.physical_networks
        },
        traits={
            name: _in_trees(columns, name, trees)
            for name in (*request.required_traits, *request.forbidden_traits)
        },
        groups=() if shape is None else tuple(_groups(shape, trees)),
    )


def _groups(shape: Shape, trees: NDArray[np.int64]) -> Iterator[GroupColumn]:
    columns = shape.columns
    for group, matcher in zip(shape.query.groups, shape.matchers, strict=True):
        if group.suffix:
            rows = next(iter(matcher.rows().values()))
            yield GroupColumn(
                group.suffix, _of_hosts(columns.trees_with(rows), trees), _why(columns, group, trees)
            )

    def apart(failing: Positions) -> Reasons:
        short = "without a combination of providers for all groups"
        yield Finding(reason="no_combination", short=short), len(failing)

    yield GroupColumn("", _of_hosts(shape.trees, trees), apart)


def _why(columns: Columns, group: RequestGroup, trees: NDArray[np.int64]) -> Callable[[Positions], Reasons]:
    failures = GroupFailures(columns, group)

    def why(failing: Positions) -> Reasons:
        of = trees[failing]
        if bare := int((of < 0).sum()):
            yield Finding(reason="absent", short="without a resource provider"), bare
        for failure, hosts in failures.first(of[of >= 0]):
            yield _finding(failure), hosts

    return why


def _finding(failure: Failure) -> Finding:
    return Finding(
        reason=failure.reason,
        short=words(failure.condition, failure.subject, failure.group),
        subject=failure.subject or None,
        needed=failure.needed,
        available=failure.available,
    )


def _of_hosts(mask: Mask, trees: NDArray[np.int64]) -> Mask:
    # One place more than there are trees: index -1 is the host without a provider.
    found: Mask = np.append(mask, False)[trees]
    return found


def _in_trees(columns: Columns, trait: str, trees: NDArray[np.int64]) -> Mask:
    having = np.zeros(columns.trees, dtype=np.bool_)
    having[columns.tree[np.flatnonzero(columns.trait(trait))]] = True
    return _of_hosts(having, trees)


@dataclass(frozen=True, slots=True)
class Offers:
    """Where each host's best provider of one class stands in its column, and the figures that do not move."""

    best: NDArray[np.int64]
    missing: Mask | None
    capacity: NDArray[np.int64]
    min_unit: NDArray[np.int64]
    max_unit: NDArray[np.int64]
    step_size: NDArray[np.int64]

    @classmethod
    def of(cls, column: ClassColumn, best: NDArray[np.int64]) -> Offers:
        """Gather the figures of the best providers; a host without one has none to give."""
        missing = best < 0
        absent = missing if bool(missing.any()) else None
        return cls(
            best,
            absent,
            _pick(column.capacity, best, absent, 0),
            _pick(column.min_unit, best, absent, 1),
            _pick(column.max_unit, best, absent, NO_LIMIT),
            _pick(column.step_size, best, absent, 1),
        )


def _pick(
    figures: NDArray[np.int64], best: NDArray[np.int64], missing: Mask | None, otherwise: int
) -> NDArray[np.int64]:
    picked: NDArray[np.int64] = figures[best]
    if missing is not None:
        picked[missing] = otherwise
    return picked


def _gather(alignment: Alignment, name: str) -> ResourceColumn:
    columns = alignment.columns
    column = columns.classes[name]
    free = column.capacity - column.used
    offers = alignment.offers.get(name)
    if offers is None:
        best, lasting = _best(columns, column, free)
        offers = Offers.of(column, best[alignment.trees])
        if lasting:
            alignment.offers[name] = offers
    return ResourceColumn(
        capacity=offers.capacity,
        free=_pick(free, offers.best, offers.missing, 0),
        min_unit=offers.min_unit,
        max_unit=offers.max_unit,
        step_size=offers.step_size,
        expected=_pick(column.expected, offers.best, offers.missing, 0),
    )


def _best(columns: Columns, column: ClassColumn, free: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """Return for each tree (and for index -1) the place in the column of its best provider, or -1.

    The second value tells whether usage cannot change the answer: no tree has a choice.
    """
    best = np.full(columns.trees + 1, -1, dtype=np.int64)
    order = np.flatnonzero(column.capacity != DEAD)
    tree = columns.tree[column.rows[order]]
    # The rows of a tree are a run.
    choice = bool((tree[1:] == tree[:-1]).any())
    if choice:
        # Ascending by what is free: the last write for a tree is its best.
        order = order[np.argsort(free[order], kind="stable")]
        tree = columns.tree[column.rows[order]]
    best[tree] = order
    for row in sorted(columns.sharing):
        entry = int(column.at[row])
        if entry >= 0:
            choice = True
            served = np.flatnonzero(columns.trees_with(np.array([row])))
            best[served[(best[served] < 0) | (free[best[served]] < free[entry])]] = entry
    return best, not choice
