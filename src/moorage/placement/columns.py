"""All providers in columns.

Rows are sorted by tree: a tree is a run of rows, its root first and each parent before its children. One
`ClassColumn` a resource class holds only the rows that have it. Traits and aggregates are sets of rows,
turned into masks when first asked for. A `Columns` value is rebuilt when the shape of the forest changes;
usage figures change in place, which is all that most changes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from moorage.placement.names import SHARING_TRAIT
from moorage.placement.reads import Held

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Figures = NDArray[np.int64]

_CLASS, _TOTAL, _RESERVED, _MIN, _MAX, _STEP, _RATIO, USED, VERSION = range(9)


@dataclass(slots=True)
class ClassColumn:
    """One resource class: the rows that have it, ascending, and their figures in the same order.

    `capacity` is rounded down to whole units. `expected` is what claims under way will take.
    """

    rows: Rows
    capacity: Figures
    used: Figures
    expected: Figures
    min_unit: Figures
    max_unit: Figures
    step_size: Figures

    def fitting(self, amount: int) -> Rows:
        """Return the rows that can give this amount now."""
        fits = self.used + amount <= self.capacity
        fits &= (self.min_unit <= amount) & (self.max_unit >= amount)
        fits &= amount % self.step_size == 0
        return self.rows[fits]


@dataclass(slots=True)
class Columns:
    """The forest. `tree[row]` numbers the trees from 0; `first[t]` is the row of the root of tree t."""

    ids: list[str]
    names: list[str]
    generations: list[int]
    row_of: dict[str, int]
    parent: Rows
    tree: Rows
    first: Rows
    classes: dict[str, ClassColumn]
    position: dict[tuple[str, str], int]
    trait_rows: dict[str, Rows]
    aggregate_rows: dict[str, Rows]
    traits: list[Sequence[str]]
    sharing: dict[int, Rows]
    """Row of a sharing provider -> the trees that it serves, its own included."""
    shared_by_tree: dict[int, list[int]]
    tree_of_name: dict[str, int]
    _masks: dict[tuple[str, str], Mask] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many providers there are."""
        return len(self.ids)

    @property
    def trees(self) -> int:
        """How many trees there are."""
        return len(self.first)

    def tree_rows(self, tree: int) -> range:
        """Return the rows of one tree."""
        end = int(self.first[tree + 1]) if tree + 1 < len(self.first) else len(self.ids)
        return range(int(self.first[tree]), end)

    def trait(self, name: str) -> Mask:
        """Return which rows have a trait."""
        return self._mask("trait", name, self.trait_rows)

    def aggregate(self, name: str) -> Mask:
        """Return which rows are in an aggregate."""
        return self._mask("aggregate", name, self.aggregate_rows)

    def any_of(self, names: Iterable[str], kind: str) -> Mask:
        """Return which rows have at least one of these traits or aggregates."""
        found = np.zeros(len(self.ids), dtype=np.bool_)
        for name in names:
            found |= self.trait(name) if kind == "trait" else self.aggregate(name)
        return found

    def of_root(self, mask: Mask) -> Mask:
        """Return for each row what the mask says of its root."""
        return mask[self.first[self.tree]]

    def trees_with(self, rows: Rows) -> Mask:
        """Return which trees these rows serve: their own, and through aggregates those they share with."""
        found = np.zeros(len(self.first), dtype=np.bool_)
        found[self.tree[rows]] = True
        if self.sharing:
            for row in rows[np.isin(rows, list(self.sharing))].tolist():
                found[self.sharing[row]] = True
        return found

    def _mask(self, kind: str, name: str, rows: Mapping[str, Rows]) -> Mask:
        mask = self._masks.get((kind, name))
        if mask is None:
            mask = np.zeros(len(self.ids), dtype=np.bool_)
            if name in rows:
                mask[rows[name]] = True
            self._masks[kind, name] = mask
        return mask


def build(records: Mapping[str, Held], expected: Mapping[tuple[str, str], int]) -> Columns:
    """Build the columns of a forest. Roots keep the order of `records`."""
    order, tree, first = _sorted_by_tree(records)
    row_of = {record.id: row for row, record in enumerate(order)}
    parent = np.array(
        [row_of.get(record.parent_id, -1) if record.parent_id else -1 for record in order], dtype=np.int64
    )
    trait_rows = _rows_by_name(record.traits or () for record in order)
    aggregate_rows = _rows_by_name(record.aggregates or () for record in order)
    classes, position = _classes(order, expected)
    sharing = _sharing(trait_rows, aggregate_rows, tree, order)
    shared: dict[int, list[int]] = {}
    for row, trees in sharing.items():
        for number in trees.tolist():
            if number != tree[row]:
                shared.setdefault(number, []).append(row)
    return Columns(
        ids=[record.id for record in order],
        names=[record.name for record in order],
        generations=[record.generation for record in order],
        row_of=row_of,
        parent=parent,
        tree=tree,
        first=first,
        classes=classes,
        position=position,
        trait_rows=trait_rows,
        aggregate_rows=aggregate_rows,
        # Standard traits first, as upstream lists them.
        traits=[sorted(record.traits or (), key=lambda t: (t.startswith("CUSTOM_"), t)) for record in order],
        sharing=sharing,
        shared_by_tree=shared,
        tree_of_name={order[row].name: number for number, row in enumerate(first.tolist())},
    )


def _sorted_by_tree(records: Mapping[str, Held]) -> tuple[list[Held], Rows, Rows]:
    children: dict[str, list[Held]] = {}
    roots = []
    for record in records.values():
        if record.parent_id is None or record.parent_id not in records:
            roots.append(record)
        else:
            children.setdefault(record.parent_id, []).append(record)
    order: list[Held] = []
    tree: list[int] = []
    first: list[int] = []
    for number, root in enumerate(roots):
        first.append(len(order))
        waiting = [root]
        while waiting:
            record = waiting.pop()
            order.append(record)
            tree.append(number)
            waiting.extend(reversed(children.get(record.id, ())))
    return order, np.array(tree, dtype=np.int64), np.array(first, dtype=np.int64)


def _rows_by_name(names: Iterable[Sequence[str]]) -> dict[str, Rows]:
    found: dict[str, list[int]] = {}
    for row, members in enumerate(names):
        for name in members:
            found.setdefault(name, []).append(row)
    return {name: np.array(rows, dtype=np.int64) for name, rows in found.items()}


def _classes(
    order: Sequence[Held], expected: Mapping[tuple[str, str], int]
) -> tuple[dict[str, ClassColumn], dict[tuple[str, str], int]]:
    collected: dict[str, list[tuple[int, ...]]] = {}
    position: dict[tuple[str, str], int] = {}
    for row, record in enumerate(order):
        for cell in record.inventories or ():
            name = cell[_CLASS]
            cells = collected.setdefault(name, [])
            position[record.id, name] = len(cells)
            cells.append(
                (
                    row,
                    int((cell[_TOTAL] - cell[_RESERVED]) * cell[_RATIO]),
                    cell[USED],
                    expected.get((record.id, name), 0),
                    cell[_MIN],
                    cell[_MAX],
                    cell[_STEP],
                )
            )
    classes = {}
    for name, cells in collected.items():
        figures = np.ascontiguousarray(np.array(cells, dtype=np.int64).T)
        classes[name] = ClassColumn(*figures)
    return classes, position


def _sharing(
    trait_rows: Mapping[str, Rows], aggregate_rows: Mapping[str, Rows], tree: Rows, order: Sequence[Held]
) -> dict[int, Rows]:
    found: dict[int, Rows] = {}
    for row in trait_rows.get(SHARING_TRAIT, np.empty(0, dtype=np.int64)).tolist():
        trees = {int(tree[row])}
        for aggregate in order[row].aggregates or ():
            trees.update(tree[aggregate_rows[aggregate]].tolist())
        found[row] = np.array(sorted(trees), dtype=np.int64)
    return found
