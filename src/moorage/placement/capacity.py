"""How many more of one shape fit now: counted in columns, without trying.

Each group is counted by itself: how often its providers can give it. A tree takes as many of the whole shape as its
scarcest group allows. That is exact while groups do not compete; where they do (they may want the same class of
the same provider, different providers, one subtree, or a provider that serves several trees), the count
is an upper bound, and says so.

Groups that are alike (ports of one kind) compete in a known way and are counted exactly: with `k` of them in a shape, a
provider that can give the group `c` times takes part in at most `m` groups of one shape (one, where they are
isolated; else as often as its max_unit allows), so `s` shapes fit exactly when the sum of min(c, s * m) over the
providers is at least k * s.
"""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import numpy as np

from moorage.placement.candidates import Search
from moorage.placement.columns import NONE, Columns, Mask
from moorage.placement.figures import Figures, Rows
from moorage.placement.matching import Matcher
from moorage.placement.query import Query, RequestGroup


class Count(msgspec.Struct, frozen=True):
    """So many fit; at most so many where it is not exact. `roots`: in how many trees any does."""

    total: int
    exact: bool
    roots: int


class Capacity(msgspec.Struct, frozen=True):
    """In all, and for each aggregate that a root is in."""

    everywhere: Count
    aggregates: dict[str, Count]


def capacity(search: Search) -> Capacity:
    """Count. A tree that gives no candidate counts for nothing, one that was left undecided as it may. Raises ValueError where no resources are asked for."""
    if not any(group.resources for group in search.query.groups):
        raise ValueError("a shape without resources fits without end")
    columns = search.columns
    times, exact = _by_tree(columns, search.query)
    serving = search.serving()
    undecided = sorted(search.undecided)
    exact[undecided] = False
    serving[undecided] = True
    times[~serving] = 0
    return Capacity(_count(times, exact), _by_aggregate(columns, times, exact))


def _count(times: Figures, exact: Mask) -> Count:
    taking = times > 0
    return Count(int(times.sum()), bool(exact[taking].all()), int(taking.sum()))


def _by_aggregate(columns: Columns, times: Figures, exact: Mask) -> dict[str, Count]:
    living = np.flatnonzero(columns.living_trees)
    sets = columns.aggregate_set[columns.first[living]]
    members: dict[str, list[Rows]] = {}
    for number in np.unique(sets).tolist():
        trees = living[sets == number]
        for name in columns.aggregates.sets[number]:
            members.setdefault(name, []).append(trees)
    return {
        name: _count(times[trees], exact[trees])
        for name, parts in sorted(members.items())
        for trees in (np.concatenate(parts),)
    }


class _Kind(msgspec.Struct, frozen=True):
    """Groups of a shape that are alike, and the rows that can serve each of their classes."""

    group: RequestGroup
    alike: int
    rows: dict[str, Rows]


def _by_tree(columns: Columns, query: Query) -> tuple[Figures, Mask]:
    """Return how often the shape fits in each tree, and for which trees that is exact."""
    groups = [group for group in query.groups if group.resources]
    alike = Counter(group.key for group in groups)
    kinds = [
        _Kind(group, alike[group.key], Matcher(columns, group).rows())
        for group in {group.key: group for group in groups}.values()
    ]
    times = np.full(columns.trees, np.iinfo(np.int64).max)
    exact = np.full(columns.trees, not query.same_subtree and len(groups) == len(query.groups))
    for kind in kinds:
        if kind.group.suffix:
            times = np.minimum(times, _suffixed(columns, query, kind))
            continue
        times = np.minimum(times, _plain(columns, kind))
        if kind.group.required:
            # Which providers cover the traits together is open where there is a choice.
            for rows in kind.rows.values():
                exact &= np.bincount(columns.tree[rows], minlength=columns.trees) <= 1
    _note_competition(columns, query, kinds, exact)
    return np.minimum(times, _by_sums(columns, kinds)), exact


def _plain(columns: Columns, kind: _Kind) -> Figures:
    """The un-suffixed group: each class from any provider."""
    found: Figures = np.minimum.reduce(
        [
            _sum(columns, kind.rows[name], columns.free(name, kind.rows[name]) // amount)
            for name, amount in kind.group.resources.items()
        ]
    )
    return found


def _suffixed(columns: Columns, query: Query, kind: _Kind) -> Figures:
    rows = next(iter(kind.rows.values()))
    amounts = kind.group.resources.items()
    can = np.minimum.reduce([columns.free(name, rows) // amount for name, amount in amounts])
    shapes = _sum(columns, rows, can) // kind.alike
    if kind.alike == 1 or not len(rows):
        return shapes
    most = np.ones_like(can)
    if not query.isolate:
        most = np.minimum.reduce([_max_unit(columns, name, rows) // amount for name, amount in amounts])
    most = np.minimum(most, kind.alike)
    tree = columns.tree[rows]
    while True:
        # From above: each round is a bound, and the first that repeats is reached.
        fewer = _sum(columns, rows, np.minimum(can, shapes[tree] * most)) // kind.alike
        if (fewer == shapes).all():
            return shapes
        shapes = fewer


def _max_unit(columns: Columns, name: str, rows: Rows) -> Figures:
    column = columns.classes[name]
    found: Figures = column.max_unit[column.at[rows]]
    return found


def _sum(columns: Columns, rows: Rows, figures: Figures) -> Figures:
    """Sum over each tree's rows; a sharing provider's figure counts in every tree that it serves."""
    found = np.zeros(columns.trees, dtype=np.int64)
    np.add.at(found, columns.tree[rows], figures)
    shared = np.flatnonzero(np.isin(rows, list(columns.sharing))) if columns.sharing else NONE
    for at in shared.tolist():
        served = columns.trees_with(rows[at : at + 1])
        served[columns.tree[rows[at]]] = False
        found[served] += figures[at]
    return found


def _note_competition(columns: Columns, query: Query, kinds: list[_Kind], exact: Mask) -> None:
    """Clear the trees where different groups may want the same, or where a provider serves several trees."""
    contested = [np.intersect1d(rows, list(columns.sharing)) for kind in kinds for rows in kind.rows.values()]
    for one, other in itertools.combinations(kinds, 2):
        same = one.rows.keys() & other.rows.keys()
        contested += [np.intersect1d(one.rows[name], other.rows[name]) for name in same]
        if query.isolate and one.group.suffix and other.group.suffix:
            contested.append(np.intersect1d(next(iter(one.rows.values())), next(iter(other.rows.values()))))
    rows = np.unique(np.concatenate([*contested, NONE])).astype(np.int64)
    if len(rows):
        exact &= ~columns.trees_with(rows)


def _by_sums(columns: Columns, kinds: list[_Kind]) -> Figures:
    """What is free of each class, over what a whole shape takes of it: a bound also where groups compete."""
    bound = np.full(columns.trees, np.iinfo(np.int64).max)
    for name in {name for kind in kinds for name in kind.rows}:
        asking = [kind for kind in kinds if name in kind.rows]
        rows = np.unique(np.concatenate([kind.rows[name] for kind in asking]))
        total = sum(kind.group.resources[name] * kind.alike for kind in asking)
        bound = np.minimum(bound, _sum(columns, rows, columns.free(name, rows)) // total)
    return bound
