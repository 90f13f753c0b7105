"""Rows of one tree that can be exchanged for one another: what holds of a choice holds of its image.

Two rows are alike when the same groups may use them, they have the same room for all that is asked, and they are leaves
below one parent. A walk that has failed with one of them need not try the other in its place: eight groups over
sixty-four equal providers have as many states as there are ways to cut eight into parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from moorage.placement.columns import Columns
from moorage.placement.query import Query


class Likeness:
    """Numbers the kinds of rows of one tree; rows of other trees, and any before nesting, are each of their own kind.

    `room` gives what is free on a row of a class, and the most that one allocation takes of it.
    """

    def __init__(
        self,
        columns: Columns,
        query: Query,
        tree: int,
        local: Sequence[Mapping[str, Sequence[int]]],
        room: Callable[[int, str], tuple[int, int]],
    ) -> None:
        self._columns = columns
        self._query = query
        self._tree = tree
        self._local = local
        self._room = room
        self._numbers: dict[object, int] = {}
        self._of: dict[int, int] = {}

    def of(self, row: int) -> int:
        """Return the number of a row's kind."""
        found = self._of.get(row)
        if found is None:
            found = self._of[row] = self._numbers.setdefault(self._key(row), len(self._numbers))
        return found

    def _key(self, row: int) -> object:
        columns = self._columns
        if not self._query.nested or columns.tree[row] != self._tree or row in self._parents:
            return row
        rooms = tuple(self._room(row, name) for name in self._classes if columns.classes[name].at[row] >= 0)
        traits = int(columns.trait_set[row]) if self._by_traits else 0
        return int(columns.parent[row]), tuple(self._uses.get(row, ())), rooms, traits

    @cached_property
    def _parents(self) -> frozenset[int]:
        rows = self._columns.tree_rows(self._tree)
        return frozenset(self._columns.parent[rows.start : rows.stop].tolist())

    @cached_property
    def _classes(self) -> list[str]:
        asked = {name for group in self._query.groups for name in group.resources}
        return sorted(asked & self._columns.classes.keys())

    @cached_property
    def _by_traits(self) -> bool:
        # The providers of the un-suffixed group have its traits together.
        return any(group.required and not group.suffix for group in self._query.groups)

    @cached_property
    def _uses(self) -> dict[int, list[tuple[int, str]]]:
        found: dict[int, list[tuple[int, str]]] = {}
        for at, by_class in enumerate(self._local):
            for name, rows in by_class.items():
                for row in rows:
                    found.setdefault(row, []).append((at, name))
        return found
