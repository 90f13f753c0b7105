"""Groups that compete: whether what they ask together is there at all, tree by tree, in columns.

Whoever serves whom in the end, the providers that some of the groups may use have at least what those groups ask in
sum; so it is for every choice of some of the groups (Hall's condition), and where no two may share a provider there are
at least as many providers as groups. These are necessary conditions: they end a search over many equal providers
before it begins. Which of them could be looked at depends on the query alone and is worked out once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from moorage.placement.columns import NONE, Columns, Mask
from moorage.placement.figures import Rows
from moorage.placement.query import Query

KINDS = 4
"""Every choice among so many kinds of groups is looked at; of more, each kind and all of them."""
_FEW = 4_096
"""Rows up to which sorting them costs less than a mark for every row there is."""


Known = dict[tuple[int, ...], Rows | None]
"""Rows that were put together, by the identity of the parts, while those are there."""


class _Kind(msgspec.Struct, frozen=True):
    """Groups that differ in amounts alone, by their places in the query. `spread` is true for the un-suffixed group."""

    groups: tuple[int, ...]
    classes: frozenset[str]
    spread: bool


class Crowds:
    """The competing groups of one query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        found: dict[object, list[int]] = {}
        for at, group in enumerate(query.groups):
            if group.resources:
                found.setdefault((group.conditions, frozenset(group.resources)), []).append(at)
        kinds = [
            _Kind(
                tuple(places),
                frozenset(query.groups[places[0]].resources),
                not query.groups[places[0]].suffix,
            )
            for places in found.values()
        ]
        by_class = {
            name: [kind for kind in kinds if name in kind.classes] for kind in kinds for name in kind.classes
        }
        self._sums = [(name, some) for name, asking in by_class.items() for some in _choices(asking)]
        alone = [kind for kind in kinds if not kind.spread]
        self._apart = list(_choices(alone)) if query.isolate else []
        self._equal = [
            kind
            for kind in alone
            if len(kind.groups) > 1 and len({query.groups[at].key for at in kind.groups}) == 1
        ]

    def clear(self, columns: Columns, rows_of: Sequence[Mapping[str, Rows]], found: Mask) -> None:
        """Clear the trees that cannot serve the groups together. `rows_of`: for each group the rows of each class."""
        # Classes of the same groups have the same rows: put together once.
        known: Known = {}
        for name, kinds in self._sums:
            rows = _rows(columns, kinds, name, rows_of, known)
            if rows is not None:
                free = columns.free(name, rows)
                total = sum(self._query.groups[at].resources[name] for kind in kinds for at in kind.groups)
                found &= np.bincount(columns.tree[rows], weights=free, minlength=columns.trees) >= total
        for kinds in self._apart:
            rows = _rows(columns, kinds, None, rows_of, known)
            if rows is not None:
                count = sum(len(kind.groups) for kind in kinds)
                found &= np.bincount(columns.tree[rows], minlength=columns.trees) >= count
        for kind in self._equal:
            self._each(columns, kind, rows_of, found, known)

    def _each(
        self,
        columns: Columns,
        kind: _Kind,
        rows_of: Sequence[Mapping[str, Rows]],
        found: Mask,
        known: Known,
    ) -> None:
        """Groups that are equal find a provider with room for each."""
        query = self._query
        rows = _rows(columns, [kind], None, rows_of, known)
        if rows is None:
            return
        times = np.full(len(rows), 1 if query.isolate else len(kind.groups))
        for name, amount in query.groups[kind.groups[0]].resources.items():
            column = columns.classes.get(name)
            times = np.minimum(times, column.times(amount, rows) if column is not None else 0)
        found &= np.bincount(columns.tree[rows], weights=times, minlength=columns.trees) >= len(kind.groups)


def _rows(
    columns: Columns,
    kinds: Sequence[_Kind],
    name: str | None,
    rows_of: Sequence[Mapping[str, Rows]],
    known: Known,
) -> Rows | None:
    """The rows that any of the kinds may use; None where that says nothing that their parts don't say."""
    parts = {}
    for kind in kinds:
        for at in kind.groups:
            rows = next(iter(rows_of[at].values())) if name is None else rows_of[at][name]
            parts[id(rows)] = rows
    if len(parts) == 1:
        rows = next(iter(parts.values()))
    else:
        key = tuple(parts)
        if key not in known:
            known[key] = _union(columns, list(parts.values()), apart=len(kinds) > 1)
        together = known[key]
        if together is None:
            return None
        rows = together
    # What a sharing provider has counts in every tree that it serves: not looked at here.
    return None if columns.sharing and columns.sharing.intersection(rows.tolist()) else rows


def _choices(kinds: Sequence[_Kind]) -> list[list[_Kind]]:
    """The choices of kinds that say more than what is asked of each group by itself."""
    sizes = range(1, len(kinds) + 1) if len(kinds) <= KINDS else (1, len(kinds))
    chosen = [list(some) for size in sizes for some in itertools.combinations(kinds, size)]
    return [some for some in chosen if sum(len(kind.groups) for kind in some) > 1]


def _union(columns: Columns, parts: Sequence[Rows], *, apart: bool) -> Rows | None:
    """All rows of the parts, once each; None where no row is in two of them and that is asked (`apart`)."""
    total = sum(len(rows) for rows in parts)
    if total <= _FEW:
        found: Rows = np.unique(np.concatenate([*parts, NONE]))
        return None if apart and len(found) == total else found
    marks = np.zeros(columns.size, dtype=np.bool_)
    overlap = False
    for rows in parts:
        overlap = overlap or bool(marks[rows].any())
        marks[rows] = True
    return None if apart and not overlap else np.flatnonzero(marks)
