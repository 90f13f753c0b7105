"""The figures of one resource class, of all rows that have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]
Figures = NDArray[np.int64]

DEAD = -1
"""The capacity of an entry whose row is dead: nothing fits."""


class ClassColumn:
    """One resource class: entries of the rows that have it. `at[row]` is a row's entry, or -1.

    `capacity` is rounded down to whole units. `expected` is what claims under way will take; `version` that of
    the ledger's row whose usage is shown.
    """

    __slots__ = ("_figures", "_rows", "_simple", "at", "size")

    def __init__(self, rows: int) -> None:
        self.size = 0
        self.at = np.full(rows, -1, dtype=np.int32)
        self._rows = np.empty(16, dtype=np.int32)
        self._figures = np.zeros((7, 16), dtype=np.int64)
        # The bounds within which no entry asks for a closer look: greatest min_unit, least max_unit, greatest step.
        self._simple = [1, np.iinfo(np.int64).max, 1]

    @property
    def rows(self) -> Rows:
        """The row of each entry, dead ones included."""
        return self._rows[: self.size]

    @property
    def capacity(self) -> Figures:
        """What can be used in all; DEAD for dead entries."""
        return self._figures[0, : self.size]

    @property
    def used(self) -> Figures:
        """What is used."""
        return self._figures[1, : self.size]

    @property
    def min_unit(self) -> Figures:
        """The least that one allocation takes."""
        return self._figures[2, : self.size]

    @property
    def max_unit(self) -> Figures:
        """The most that one allocation takes."""
        return self._figures[3, : self.size]

    @property
    def step_size(self) -> Figures:
        """What every amount is a multiple of."""
        return self._figures[4, : self.size]

    @property
    def version(self) -> Figures:
        """The version of the ledger's row."""
        return self._figures[5, : self.size]

    @property
    def expected(self) -> Figures:
        """What claims under way will take."""
        return self._figures[6, : self.size]

    def fitting(self, amount: int, rows: Rows | None = None) -> Rows:
        """Return the rows (of all, or of these) that can give this amount now, in their order."""
        figures = self._figures
        if rows is None:
            entries: Any = slice(0, self.size)
        else:
            entries = self.at[rows]
            entries = entries[entries >= 0]
        fits = figures[0, entries] - figures[1, entries] >= amount
        low, high, step = self._simple
        if not (low <= amount <= high and step == 1):
            fits &= (figures[2, entries] <= amount) & (figures[3, entries] >= amount)
            fits &= amount % figures[4, entries] == 0
        found: Rows = self._rows[entries][fits]
        return found

    def free(self, rows: Rows) -> Figures:
        """Return what is free on each of these rows; nothing where a row has no entry."""
        entries = self.at[rows]
        free = np.maximum(self._figures[0, entries] - self._figures[1, entries], 0)
        found: Figures = np.where(entries >= 0, free, 0)
        return found

    def times(self, amount: int, rows: Rows) -> Figures:
        """Return how often each of these rows can give this amount in one claim."""
        entries = self.at[rows]
        most = np.minimum(self._figures[0, entries] - self._figures[1, entries], self._figures[3, entries])
        found: Figures = most // amount
        return found

    def room(self, row: int) -> tuple[int, int]:
        """Return what is free on a row, and the most that one allocation takes of it."""
        entry = self.at[row]
        free, used, most = self._figures[0, entry], self._figures[1, entry], self._figures[3, entry]
        return int(free - used), int(most)

    def add(self, row: int, figures: Sequence[int]) -> None:
        """Append an entry: (capacity, used, min_unit, max_unit, step_size, version, expected)."""
        if self.size == len(self._rows):
            size = max(16, 2 * self.size)
            self._rows, self._figures = longer(self._rows, size), longer(self._figures, size)
        self._rows[self.size] = row
        self.at[row] = self.size
        self.size += 1
        self.set(row, figures)

    def extend(self, rows: Rows, figures: Figures) -> None:
        """Append many entries at once; `figures` has a row for each kind of figure."""
        have = self.size
        self.size += len(rows)
        self._rows = np.concatenate((self._rows[:have], rows.astype(np.int32)))
        self._figures = np.concatenate((self._figures[:, :have], figures), axis=1)
        self.at[rows] = np.arange(have, self.size)
        if len(rows):
            self._widen(int(figures[2].max()), int(figures[3].min()), int(figures[4].max()))

    def set(self, row: int, figures: Sequence[int]) -> None:
        """Write the figures of a row that has an entry."""
        self._figures[:, self.at[row]] = figures
        self._widen(figures[2], figures[3], figures[4])

    def get(self, row: int) -> list[int]:
        """Return the figures of a row that has an entry."""
        found: list[int] = self._figures[:, self.at[row]].tolist()
        return found

    def kill(self, row: int) -> None:
        """Make the entry of a row dead."""
        self._figures[:, self.at[row]] = (DEAD, 0, 1, 1, 1, 0, 0)
        self.at[row] = -1

    def grow(self, rows: int) -> None:
        """Make place for so many rows."""
        at = np.full(rows, -1, dtype=np.int32)
        at[: len(self.at)] = self.at
        self.at = at

    def moved(self, place: Rows, rows: int) -> ClassColumn:
        """Return the live entries for rows that have moved: `place[row]` is where, or -1."""
        live = np.flatnonzero(self.capacity != DEAD)
        where = place[self.rows[live]]
        order = np.argsort(where, kind="stable")
        made = ClassColumn(rows)
        made.extend(where[order], self._figures[:, live[order]])
        return made

    def _widen(self, low: int, high: int, step: int) -> None:
        simple = self._simple
        if low > simple[0] or high < simple[1] or step > simple[2]:
            self._simple = [max(low, simple[0]), min(high, simple[1]), max(step, simple[2])]


def longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array with more places along its last axis."""
    found = np.zeros((*array.shape[:-1], size), dtype=array.dtype)
    found[..., : array.shape[-1]] = array
    return found
