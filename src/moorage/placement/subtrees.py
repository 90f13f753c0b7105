"""`same_subtree` in one tree: of the providers of these groups, one stands above all the others, or is all of them.

Such a provider is an anchor. Which rows can be one, and which rows have one above them, is found before the walk
begins; the walk leaves a branch as soon as what is chosen has no anchor in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moorage.placement.columns import Columns
from moorage.placement.query import Query

Local = Mapping[str, Sequence[int]]
"""Class -> the rows in reach of the tree that can give what the group asks of it."""
Line = tuple[int, ...]
"""A row and all above it."""


class Subtrees:
    """The demands of a query, for the rows in reach of one tree.

    `local` holds for each group what is left of its rows: nothing where a demand cannot be met.
    """

    def __init__(self, columns: Columns, query: Query, local: Sequence[Local]) -> None:
        self._columns = columns
        self._lines: dict[int, Line] = {}
        self._demands = [
            frozenset(
                at for at, group in enumerate(query.groups) if group.suffix and group.suffix in suffixes
            )
            for suffixes in query.same_subtree
        ]
        self._anchors: list[set[int]] = []
        self.local = list(local)
        self._rows = [rows if query.groups[at].suffix else () for at, rows in enumerate(map(_any, local))]
        for demand in self._demands:
            self._anchors.append(self._anchors_of(demand, isolate=query.isolate))
            self._narrow(demand, self._anchors[-1])
        self._options = [frozenset(rows) for rows in self._rows]

    def _anchors_of(self, demand: frozenset[int], *, isolate: bool) -> set[int]:
        """The rows of these groups below which, themselves included, each of them has a row."""
        below: dict[int, set[int]] = {}
        serves: dict[int, set[int]] = {}
        # Groups that are alike have one list.
        alike: dict[int, list[int]] = {}
        for at in demand:
            alike.setdefault(id(self._rows[at]), []).append(at)
        for groups in alike.values():
            for row in self._rows[groups[0]]:
                for above in self.line(row):
                    below.setdefault(above, set()).add(row)
                    serves.setdefault(above, set()).update(groups)
        own = set().union(*(self._rows[at] for at in demand))
        least = len(demand) if isolate else 1
        return {row for row in own if len(serves[row]) == len(demand) and len(below[row]) >= least}

    def _narrow(self, demand: frozenset[int], anchors: set[int]) -> None:
        narrowed: dict[int, list[int]] = {}
        for at in demand:
            rows = self._rows[at]
            if id(rows) not in narrowed:
                narrowed[id(rows)] = [row for row in rows if not anchors.isdisjoint(self.line(row))]
        # The old lists live until all are replaced: no two share an identity.
        kept = [self._rows[at] for at in demand]
        for at, old in zip(demand, kept, strict=True):
            rows = narrowed[id(old)]
            self._rows[at] = rows
            self.local[at] = dict.fromkeys(self.local[at], rows)

    def line(self, row: int) -> Line:
        """Return a row and all above it."""
        found = self._lines.get(row)
        if found is None:
            rows, parent = [row], int(self._columns.parent[row])
            while parent >= 0:
                rows.append(parent)
                parent = int(self._columns.parent[parent])
            found = self._lines[row] = tuple(rows)
        return found

    def allow(self, group: int, rows: Mapping[int, int]) -> bool:
        """Whether a choice can still be completed. `rows`: of each group that has one, the row; of `group` too."""
        for number, demand in enumerate(self._demands):
            if group in demand and not any(self._open(number, rows)):
                return False
        return True

    def state(self, rows: Mapping[int, int]) -> Iterator[tuple[int, tuple[int, bool]]]:
        """What of a choice the rest depends on: rows that may be the anchor of a demand, and whether they are chosen."""
        for number, demand in enumerate(self._demands):
            have = [at for at in demand if at in rows]
            if 0 < len(have) < len(demand):
                chosen = {rows[at] for at in have}
                for row in self._common(number, chosen):
                    yield row, (number, row in chosen)

    def _open(self, number: int, rows: Mapping[int, int]) -> Iterator[bool]:
        """For each anchor in common: whether it is chosen, or may be by a group that has no row yet."""
        demand = self._demands[number]
        chosen = {rows[at] for at in demand if at in rows}
        for row in self._common(number, chosen):
            yield row in chosen or any(at not in rows and row in self._options[at] for at in demand)

    def _common(self, number: int, chosen: set[int]) -> list[int]:
        first, *others = chosen
        anchors = self._anchors[number]
        lines = [self.line(row) for row in others]
        return [row for row in self.line(first) if row in anchors and all(row in line for line in lines)]


def _any(local: Local) -> Sequence[int]:
    return next(iter(local.values()), ())
