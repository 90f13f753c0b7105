"""Exact combinations in one tree: which provider serves which group, so that all fits together.

A depth-first walk over the groups, those with few options first. A branch is left as soon as a provider would
be asked for more than it has, or nothing stands above what must be in one subtree. What cannot be completed from a state
(what is taken, and whatever else the rest of the walk can depend on) is remembered, for all states that are alike: groups
and providers that can be exchanged are not tried in every order. The walk is lazy, and pauses after so many steps, so
that its caller can go on elsewhere.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from moorage.placement.columns import Columns
from moorage.placement.likeness import Likeness
from moorage.placement.model import Allocations
from moorage.placement.query import Candidate, Query, RequestGroup
from moorage.placement.subtrees import Local, Subtrees

Option = tuple[tuple[int, str, int], ...]
"""One way to serve one group: (row, resource class, amount) each; for a group without resources one entry with
the class "" and the amount 0."""

PAUSE = 100
"""Steps between two pauses of a walk: one or two milliseconds."""


class _Options:
    """The options of one group, made when they are first asked for. None stands for a choice that is none."""

    def __init__(self, columns: Columns, group: RequestGroup, local: Local) -> None:
        self._made: list[Option | None] = []
        self._rest = self._make(columns, group, local)
        self.most = 1
        for rows in list(local.values())[: 1 if group.suffix else None]:
            self.most *= len(rows)

    def __iter__(self) -> Iterator[Option | None]:
        made = self._made
        at = 0
        while True:
            if at == len(made):
                if (option := next(self._rest, ())) == ():
                    return
                made.append(option)
            yield made[at]
            at += 1

    @staticmethod
    def _make(columns: Columns, group: RequestGroup, local: Local) -> Iterator[Option | None]:
        if group.suffix or not group.resources:
            amounts = (group.resources or {"": 0}).items()
            for row in next(iter(local.values())):
                yield tuple((row, name, amount) for name, amount in amounts)
            return
        names = list(group.resources)
        for choice in itertools.product(*(local[name] for name in names)):
            if group.required and not _covers(columns, choice, group.required):
                yield None
            else:
                yield tuple(
                    (row, name, group.resources[name]) for row, name in zip(choice, names, strict=True)
                )


def _covers(columns: Columns, rows: Sequence[int], required: Sequence[frozenset[str]]) -> bool:
    traits = frozenset().union(*(columns.traits_of(row) for row in set(rows)))
    return not any(traits.isdisjoint(alternatives) for alternatives in required)


class Walk:
    """All candidates of one tree. `local` says for each group which rows are in reach.

    Iterating yields candidates, and None for each pause.
    """

    def __init__(self, columns: Columns, query: Query, tree: int, local: Sequence[Local]) -> None:
        self._columns = columns
        self._query = query
        self._tree = tree
        self._subtrees = Subtrees(columns, query, local) if query.same_subtree else None
        local = self._subtrees.local if self._subtrees is not None else local
        self._options = [
            _Options(columns, group, rows) for group, rows in zip(query.groups, local, strict=True)
        ]
        self._order = sorted(range(len(local)), key=lambda at: self._options[at].most)
        self._chosen: dict[int, Option] = {}
        # The providers of the suffixed groups that are chosen, by group.
        self._single: dict[int, int] = {}
        self._taken: dict[tuple[int, str], int] = {}
        self._room: dict[tuple[int, str], tuple[int, int]] = {}
        self._likeness = Likeness(columns, query, tree, local, self._room_of)
        self._dead: set[Any] = set()
        self._steps = 0

    def __iter__(self) -> Iterator[Candidate | None]:
        for found in self._walk(0):
            yield self._candidate() if found else None

    def _walk(self, depth: int) -> Generator[bool, None, bool]:
        """Yield True when `_chosen` is a whole solution, False to pause; return whether there was any."""
        if depth == len(self._order):
            if not self._acceptable():
                return False
            yield True
            return True
        # With one group left or none chosen yet, remembering costs more than it saves; so does looking while nothing is known.
        remember = 0 < depth < len(self._order) - 1
        if remember and self._dead and self._state(depth) in self._dead:
            return False
        group = self._order[depth]
        any_found = False
        for option in self._options[group]:
            self._steps += 1
            if self._steps % PAUSE == 0:
                yield False
            if option is None or not self._choose(group, option):
                continue
            any_found |= yield from self._walk(depth + 1)
            self._drop(group, option)
        if remember and not any_found:
            self._dead.add(self._state(depth))
        return any_found

    def _state(self, depth: int) -> Any:
        """What the rest of the walk depends on: all that is noted of each row, and what kind of row it is."""
        query = self._query
        notes: dict[int, list[Any]] = {}
        for (row, name), amount in self._taken.items():
            notes.setdefault(row, []).append((name, amount))
        if query.isolate:
            for row in self._single.values():
                notes.setdefault(row, []).append("single")
        if self._subtrees is not None:
            for row, note in self._subtrees.state(self._single):
                notes.setdefault(row, []).append(note)
        if not query.nested:
            for row, _, _ in itertools.chain.from_iterable(self._chosen.values()):
                notes.setdefault(row, []).append("chosen")
        kinds = Counter((self._likeness.of(row), frozenset(found)) for row, found in notes.items())
        return depth, frozenset(kinds.items())

    def _choose(self, group: int, option: Option) -> bool:
        """Note a choice, where it goes with those before it."""
        query = self._query
        suffixed = bool(query.groups[group].suffix)
        row = option[0][0]
        if suffixed and query.isolate and row in self._single.values():
            return False
        if not self._take(option):
            return False
        if suffixed:
            self._single[group] = row
            if self._subtrees is not None and not self._subtrees.allow(group, self._single):
                del self._single[group]
                self._give_back(option)
                return False
        self._chosen[group] = option
        return True

    def _drop(self, group: int, option: Option) -> None:
        del self._chosen[group]
        self._single.pop(group, None)
        self._give_back(option)

    def _take(self, option: Option) -> bool:
        """Note what an option takes, where there is room for it beside what is taken already."""
        taken = self._taken
        for row, resource_class, amount in option:
            already = taken.get((row, resource_class))
            if already is not None and not self._fits(row, resource_class, already + amount):
                return False
        for row, resource_class, amount in option:
            if amount:
                pair = (row, resource_class)
                taken[pair] = taken.get(pair, 0) + amount
        return True

    def _give_back(self, option: Option) -> None:
        for row, resource_class, amount in option:
            if amount:
                pair = (row, resource_class)
                left = self._taken[pair] - amount
                if left:
                    self._taken[pair] = left
                else:
                    del self._taken[pair]

    def _fits(self, row: int, resource_class: str, amount: int) -> bool:
        room = self._room_of(row, resource_class)
        return amount <= room[0] and amount <= room[1]

    def _room_of(self, row: int, resource_class: str) -> tuple[int, int]:
        room = self._room.get((row, resource_class))
        if room is None:
            room = self._room[row, resource_class] = self._columns.classes[resource_class].room(row)
        return room

    def _acceptable(self) -> bool:
        if self._query.nested:
            return True
        rows = {row for option in self._chosen.values() for row, _, _ in option}
        return len({int(self._columns.tree[row]) for row in rows}) == len(rows)

    def _candidate(self) -> Candidate:
        return _candidate(self._columns, self._query, self._tree, self._chosen)


def _candidate(columns: Columns, query: Query, tree: int, chosen: Mapping[int, Option]) -> Candidate:
    ids = columns.ids
    allocations: Allocations = {}
    mappings: dict[str, list[str]] = {}
    for at, group in enumerate(query.groups):
        served = mappings.setdefault(group.suffix, [])
        for row, resource_class, amount in chosen[at]:
            provider = ids[row]
            if provider not in served:
                served.append(provider)
            if amount:
                amounts = allocations.setdefault(provider, {})
                amounts[resource_class] = amounts.get(resource_class, 0) + amount
    return Candidate(root=ids[int(columns.first[tree])], allocations=allocations, mappings=mappings)


def combinations(
    columns: Columns, query: Query, tree: int, local: Sequence[Local]
) -> Iterable[Candidate | None]:
    """Return what a walk of the tree gives; without one where no group has a choice and no two meet.

    That is so on most hosts: a root, and one provider a physical network.
    """
    if query.isolate or query.same_subtree or not query.nested:
        return Walk(columns, query, tree, local)
    chosen: dict[int, Option] = {}
    taken: set[tuple[int, str]] = set()
    for at, (group, by_class) in enumerate(zip(query.groups, local, strict=True)):
        if any(len(rows) != 1 for rows in by_class.values()) or (group.required and not group.suffix):
            return Walk(columns, query, tree, local)
        option = tuple((rows[0], name, group.resources.get(name, 0)) for name, rows in by_class.items())
        pairs = {(row, name) for row, name, amount in option if amount}
        if not taken.isdisjoint(pairs):
            return Walk(columns, query, tree, local)
        taken |= pairs
        chosen[at] = option
    return (_candidate(columns, query, tree, chosen),)
