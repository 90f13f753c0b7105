"""All providers in columns that change in place.

Rows are laid out by tree: a tree is a run of rows, its root first and each parent before its children. A
change of figures, traits, aggregates or names is written where it is. A change of shape (a provider comes,
goes or moves; a class is added or removed) lays the whole tree out again at the end and leaves its old rows
dead (`forest`); when half of the rows are dead, all live ones move together. A tree keeps its number meanwhile.

One `ClassColumn` a resource class holds only the rows that have it. Traits and aggregates of a row are the
number of a distinct set (`NameSets`): conditions on names are decided once a set and looked up for all rows.

Everything here runs in the thread of the event loop, and nothing awaits: who reads columns between two
awaits sees one state. `changes`, `epoch` and `layout` tell readers that keep something what has moved since.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from moorage.placement.figures import ClassColumn, Figures, Rows, longer
from moorage.placement.names import SHARING_TRAIT

Mask = NDArray[np.bool_]

JOURNAL = 65_536
"""How many changes of trees are remembered for readers; who is further behind looks at all trees again."""
TOUCHED = 1_024
"""Trees of one sharing provider up to which each of them is looked at again when its figures change, and no other."""
NONE: Rows = np.empty(0, dtype=np.int64)


class NameSets:
    """Distinct sets of names, numbered from 0 (the empty one)."""

    def __init__(self) -> None:
        self.sets: list[frozenset[str]] = []
        self._number: dict[frozenset[str], int] = {}
        self._having: dict[str, list[int]] = {}
        self.number(())

    def __len__(self) -> int:
        """How many sets there are."""
        return len(self.sets)

    def number(self, names: Iterable[str]) -> int:
        """Return the number of a set, a new one where it is not known."""
        wanted = frozenset(names)
        found = self._number.get(wanted)
        if found is None:
            found = self._number[wanted] = len(self.sets)
            self.sets.append(wanted)
            for name in wanted:
                self._having.setdefault(name, []).append(found)
        return found

    def any_of(self, names: Iterable[str]) -> Mask:
        """Return which sets hold at least one of these names."""
        found = np.zeros(len(self.sets), dtype=np.bool_)
        for name in names:
            found[self._having.get(name, [])] = True
        return found


class Columns:
    """The forest. `tree[row]` is the number of a row's tree, `first[tree]` the row of its root.

    `first` is -1 for the number of a tree that is gone. `changes[tree]` counts what has changed in a tree;
    `journal` names the trees that did, in order, and `position` is its end. `epoch` moves when what was found out
    about trees before is worth nothing; `layout` with everything but usage.
    """

    def __init__(self) -> None:
        self.size = 0
        self.dead = 0
        self.trees = 0
        self.ids: list[str] = []
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        self.tree_of_name: dict[str, int] = {}
        self.parent: Rows = np.empty(16, dtype=np.int32)
        self.tree: Rows = np.empty(16, dtype=np.int32)
        self.trait_set: Rows = np.empty(16, dtype=np.int32)
        self.aggregate_set: Rows = np.empty(16, dtype=np.int32)
        self.first: Rows = np.empty(16, dtype=np.int32)
        self.count: Rows = np.empty(16, dtype=np.int32)
        self.changes = np.empty(16, dtype=np.int64)
        self.classes: dict[str, ClassColumn] = {}
        self.traits = NameSets()
        self.aggregates = NameSets()
        self.sharing: set[int] = set()
        self.orphans: dict[str, str] = {}
        """Provider -> its parent, where that one is not known yet."""
        self.epoch = 0
        self.layout = 0
        self.position = 0
        self._journal: list[int] = []
        self._shared: dict[str, list[int]] | None = None
        # Sharing provider -> the trees that it serves.
        self._served: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """How many rows there are, dead ones included."""
        return self.size

    # -- trees and rows ---------------------------------------------------------------------------------------

    def tree_rows(self, tree: int) -> range:
        """Return the rows of one tree."""
        start = int(self.first[tree])
        return range(start, start + int(self.count[tree])) if start >= 0 else range(0)

    def rows_of(self, trees: Rows) -> Rows:
        """Return the rows of these trees, tree by tree."""
        first, count = self.first[trees], self.count[trees]
        ends = np.cumsum(count)
        total = int(ends[-1]) if len(ends) else 0
        rows: Rows = np.arange(total) + np.repeat(first - (ends - count), count)
        return rows

    @property
    def alive(self) -> Mask:
        """Which rows are live."""
        return self.tree[: self.size] >= 0

    @property
    def living_trees(self) -> Mask:
        """Which numbers of trees are in use."""
        return self.first[: self.trees] >= 0

    def root(self, row: int) -> int:
        """Return the row of a row's root."""
        return int(self.first[self.tree[row]])

    # -- names ------------------------------------------------------------------------------------------------

    def traits_of(self, row: int) -> frozenset[str]:
        """Return the traits of a row."""
        return self.traits.sets[int(self.trait_set[row])]

    def aggregates_of(self, row: int) -> frozenset[str]:
        """Return the aggregates of a row."""
        return self.aggregates.sets[int(self.aggregate_set[row])]

    def trait(self, name: str) -> Mask:
        """Return which rows have a trait."""
        return self.with_traits((name,))

    def with_traits(self, names: Iterable[str]) -> Mask:
        """Return which rows have at least one of these traits."""
        found: Mask = self.traits.any_of(names)[self.trait_set[: self.size]] & self.alive
        return found

    def with_aggregates(self, names: Iterable[str]) -> Mask:
        """Return which rows are in at least one of these aggregates."""
        found: Mask = self.aggregates.any_of(names)[self.aggregate_set[: self.size]] & self.alive
        return found

    # -- sharing ----------------------------------------------------------------------------------------------

    @property
    def shared(self) -> dict[str, list[int]]:
        """Aggregate -> the rows of the sharing providers in it."""
        if self._shared is None:
            self._shared = {}
            for row in sorted(self.sharing):
                for aggregate in self.aggregates_of(row):
                    self._shared.setdefault(aggregate, []).append(row)
        return self._shared

    def shared_with(self, tree: int) -> list[int]:
        """Return the rows of the sharing providers of other trees that serve a tree."""
        if not self.sharing:
            return []
        rows = self.tree_rows(tree)
        names = set().union(*(self.aggregates_of(row) for row in rows))
        found = {row for name in names for row in self.shared.get(name, ())}
        return sorted(row for row in found if row not in rows)

    def trees_with(self, rows: Rows) -> Mask:
        """Return which trees these rows serve: their own, and through aggregates those they share with."""
        found = np.zeros(self.trees, dtype=np.bool_)
        found[self.tree[rows]] = True
        if self.sharing:
            sharing = self.sharing.intersection(rows.tolist())
            names = set().union(*(self.aggregates_of(row) for row in sharing))
            if names:
                found[self.tree[: self.size][self.with_aggregates(names)]] = True
        return found

    # -- what has changed -------------------------------------------------------------------------------------

    def touch(self, tree: int) -> None:
        """Note that something in a tree has changed."""
        self.changes[tree] += 1
        self._journal.append(tree)
        self.position += 1
        if len(self._journal) > JOURNAL:
            del self._journal[: JOURNAL // 2]

    def touch_served(self, row: int) -> None:
        """Note that figures of a row have changed: its tree's, and those of all trees that it shares with."""
        self.touch(int(self.tree[row]))
        if row not in self.sharing:
            return
        trees = self._served.get(row)
        if trees is None:
            rows = np.flatnonzero(self.with_aggregates(self.aggregates_of(row)))
            trees = self._served[row] = np.unique(self.tree[rows]).tolist()
        if len(trees) > TOUCHED:
            self.epoch += 1
            return
        for tree in trees:
            self.touch(tree)

    def changed_since(self, position: int) -> set[int] | None:
        """Return the trees that changed after a position of the journal; None where it is forgotten."""
        behind = self.position - position
        if behind > len(self._journal):
            return None
        return set(self._journal[len(self._journal) - behind :]) if behind else set()

    def forget(self) -> None:
        """Make worthless what readers have found out about trees."""
        self.epoch += 1
        self.layout += 1
        self._shared = None
        self._served.clear()

    # -- usage ------------------------------------------------------------------------------------------------

    def set_used(self, provider: str, resource_class: str, used: int, version: int) -> None:
        """Take over a figure of usage, when it is newer than the one known."""
        row = self.row_of.get(provider)
        column = self.classes.get(resource_class)
        if row is None or column is None:
            return
        entry = column.at[row]
        if entry < 0 or column.version[entry] >= version:
            return
        column.used[entry] = used
        column.version[entry] = version
        self.touch_served(row)

    def set_expected(self, provider: str, resource_class: str, amount: int) -> None:
        """Note what claims under way will take of an inventory."""
        row = self.row_of.get(provider)
        column = self.classes.get(resource_class)
        if row is not None and column is not None and column.at[row] >= 0:
            column.expected[column.at[row]] = amount

    def free(self, resource_class: str, rows: Rows) -> Figures:
        """Return what is free of a class on each of these rows; nothing where nobody has it."""
        column = self.classes.get(resource_class)
        return column.free(rows) if column is not None else np.zeros(len(rows), dtype=np.int64)

    # -- rows, written by `forest` ------------------------------------------------------------------------------

    def column(self, resource_class: str) -> ClassColumn:
        """Return the column of a class, made where there is none."""
        found = self.classes.get(resource_class)
        if found is None:
            found = self.classes[resource_class] = ClassColumn(len(self.tree))
        return found

    def set_names(self, row: int, traits: int, aggregates: int) -> None:
        """Write the sets of a row's traits and aggregates."""
        self._served.clear()
        shares = SHARING_TRAIT in self.traits.sets[traits]
        if shares or row in self.sharing:
            self.sharing.discard(row)
            if shares:
                self.sharing.add(row)
            self.forget()
        self.trait_set[row], self.aggregate_set[row] = traits, aggregates

    def grow_rows(self, needed: int) -> None:
        """Make place for so many rows."""
        if needed <= len(self.tree):
            return
        size = max(needed, 2 * len(self.tree))
        for name in ("parent", "tree", "trait_set", "aggregate_set"):
            setattr(self, name, longer(getattr(self, name), size))
        for column in self.classes.values():
            column.grow(size)

    def grow_trees(self, needed: int) -> None:
        """Make place for so many trees."""
        if needed > len(self.first):
            size = max(needed, 2 * len(self.first))
            for name in ("first", "count", "changes"):
                setattr(self, name, longer(getattr(self, name), size))
