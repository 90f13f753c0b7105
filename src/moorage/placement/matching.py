"""Which rows can serve a group, and in which trees every group has somewhere to go: all in columns.

This is necessary, not sufficient: that the choices fit together is decided tree by tree (`combining`). A `Shape`
keeps the answer for a query and looks again only at the trees that have changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from moorage.placement.columns import NONE, Columns, Mask
from moorage.placement.crowding import Crowds
from moorage.placement.figures import Rows
from moorage.placement.query import Candidate, Query, RequestGroup

FIRSTS = 4_096
"""How many trees' first candidates a shape keeps between two searches: some MB."""


class Condition(msgspec.Struct, frozen=True):
    """One condition of one group, and the trees in which some provider meets it, whatever else it lacks.

    `kind` is `resources` (subject: the class), `required`, `forbidden`, `member_of`, `not_member_of`, `in_tree`,
    `provider` (one provider meets all of the group), `root_required`, `root_forbidden`.
    """

    suffix: str
    kind: str
    subject: str
    trees: Mask


class Matcher:
    """The rows that can serve one group. Conditions on names are decided a set, not a row."""

    def __init__(self, columns: Columns, group: RequestGroup) -> None:
        self.columns = columns
        self.group = group
        self._sets: tuple[Any, ...] = ()
        self._traits: Mask | None = None
        self._aggregates: list[Mask] = []
        self._unwanted: Mask | None = None

    def rows(self, within: Rows | None = None) -> dict[str, Rows]:
        """Return the rows (of all, or of these) that can serve each class, in their order.

        A suffixed group has the same rows for all of its classes; a group without resources has its rows under
        the class "".
        """
        self._decide()
        group, columns = self.group, self.columns
        if not group.resources:
            if within is None:
                within = np.flatnonzero(columns.alive)
            return {"": self._eligible(within)}
        if not group.suffix:
            return {name: self._eligible(self._fitting(name, within)) for name in group.resources}
        found = within
        for name in group.resources:
            found = self._fitting(name, found)
        assert found is not None
        return dict.fromkeys(group.resources, self._eligible(found))

    def _fitting(self, resource_class: str, within: Rows | None) -> Rows:
        column = self.columns.classes.get(resource_class)
        return NONE if column is None else column.fitting(self.group.resources[resource_class], within)

    def _decide(self) -> None:
        """Decide the conditions for every distinct set of names; again when there are new ones."""
        columns, group = self.columns, self.group
        # Sets are numbered anew when rows move together.
        sets = (columns.traits, len(columns.traits), columns.aggregates, len(columns.aggregates))
        if self._sets == sets:
            return
        self._sets = sets
        self._traits = None
        if group.forbidden or (group.suffix and group.required):
            # Traits that the un-suffixed group requires are met by its providers together: see `combining`.
            self._traits = ~columns.traits.any_of(group.forbidden)
            for alternatives in group.required if group.suffix else ():
                self._traits &= columns.traits.any_of(alternatives)
        self._aggregates = [columns.aggregates.any_of(names) for names in group.member_of]
        self._unwanted = columns.aggregates.any_of(group.not_member_of) if group.not_member_of else None

    def _eligible(self, rows: Rows) -> Rows:
        """Return those of the rows that meet the group's conditions.

        The un-suffixed group takes a provider that is in the aggregate, or whose root is.
        """
        columns, group = self.columns, self.group
        if self._traits is not None:
            rows = rows[self._traits[columns.trait_set[rows]]]
        if self._aggregates or self._unwanted is not None:
            own = columns.aggregate_set[rows]
            top = own if group.suffix else columns.aggregate_set[columns.first[columns.tree[rows]]]
            good = np.ones(len(rows), dtype=np.bool_)
            for table in self._aggregates:
                good &= table[own] | table[top]
            if self._unwanted is not None:
                good &= ~(self._unwanted[own] | self._unwanted[top])
            rows = rows[good]
        if group.in_tree is not None:
            row = columns.row_of.get(group.in_tree)
            rows = rows[columns.tree[rows] == columns.tree[row]] if row is not None else NONE
        return rows


class First(msgspec.Struct, frozen=True, gc=False):
    """The first candidate of a tree (None: it has none) as of the tree's count of changes, and whether it is all."""

    changes: int
    candidate: Candidate | None
    only: bool


class Shape:
    """A query and the trees that may serve it, kept up to date by the columns' journal.

    `firsts` holds what the search found first in each tree.
    """

    def __init__(self, columns: Columns, query: Query) -> None:
        self.columns = columns
        self.query = query
        by_key = {group.key: Matcher(columns, group) for group in query.groups}
        self.matchers = [by_key[group.key] for group in query.groups]
        self._distinct = list(by_key.values())
        self._crowds = Crowds(query)
        self.firsts: dict[int, First] = {}
        self._firsts_of = -1
        self._epoch = -1
        self._position = 0
        self._trees: Mask = np.empty(0, dtype=np.bool_)

    @property
    def trees(self) -> Mask:
        """The trees in which every group has somewhere to go."""
        columns = self.columns
        changed = columns.changed_since(self._position) if columns.epoch == self._epoch else None
        if changed is None or len(changed) > max(32, columns.trees // 8):
            self._trees = self._necessary(None)
        elif changed:
            if len(self._trees) < columns.trees:
                more = np.zeros(columns.trees - len(self._trees), dtype=np.bool_)
                self._trees = np.concatenate((self._trees, more))
            some = np.array(sorted(changed))
            self._trees[some] = self._necessary(some)[some]
        self._epoch, self._position = columns.epoch, columns.position
        return self._trees

    def serves(self, tree: int) -> bool:
        """Tell whether one tree may serve the query now, without a look at the others."""
        return bool(self._necessary(np.array([tree]))[tree])

    def forget_firsts(self) -> None:
        """Start over with `firsts` where they are worth nothing any more, or take much memory."""
        if self._firsts_of != self.columns.epoch or len(self.firsts) > FIRSTS:
            self.firsts.clear()
            self._firsts_of = self.columns.epoch

    def _necessary(self, trees: Rows | None) -> Mask:
        """Return the mask for all trees, right for these (all when None)."""
        columns, query = self.columns, self.query
        within = None
        if trees is None:
            found = columns.living_trees.copy()
        else:
            found = np.zeros(columns.trees, dtype=np.bool_)
            found[trees] = columns.first[trees] >= 0
            within = np.union1d(columns.rows_of(trees), np.array(sorted(columns.sharing), dtype=np.int64))
        rows_of: dict[int, dict[str, Rows]] = {}
        for matcher in self._distinct:
            by_class = rows_of[id(matcher)] = matcher.rows(within)
            for rows in {id(rows): rows for rows in by_class.values()}.values():
                found &= columns.trees_with(rows)
            if not matcher.group.suffix:
                found &= self._covered(matcher.group, list(by_class.values()))
        self._crowds.clear(columns, [rows_of[id(matcher)] for matcher in self.matchers], found)
        if query.root_required or query.root_forbidden:
            tops = np.flatnonzero(found)
            found[tops] = self._roots(columns.first[tops])
        return found

    def _covered(self, group: RequestGroup, by_class: Sequence[Rows]) -> Mask:
        """Return the trees in which each trait that the un-suffixed group requires is on some provider."""
        columns = self.columns
        found = np.ones(columns.trees, dtype=np.bool_)
        if group.required:
            rows = np.concatenate(by_class)
            for alternatives in group.required:
                table = columns.traits.any_of(alternatives)
                found &= columns.trees_with(rows[table[columns.trait_set[rows]]])
        return found

    def _roots(self, rows: Rows) -> Mask:
        traits, query = self.columns.traits, self.query
        table = ~traits.any_of(query.root_forbidden)
        for name in query.root_required:
            table &= traits.any_of((name,))
        found: Mask = table[self.columns.trait_set[rows]]
        return found


def conditions(columns: Columns, query: Query) -> Iterator[Condition]:
    """Yield every condition of a query by itself, for explanations: each mask says where it is met."""
    for group in query.groups:
        yield from _of_group(columns, group)
    for kind, names in (("root_required", query.root_required), ("root_forbidden", query.root_forbidden)):
        for name in sorted(names):
            trees = columns.living_trees.copy()
            has = columns.traits.any_of((name,))[columns.trait_set[columns.first[: columns.trees][trees]]]
            trees[trees] = has if kind == "root_required" else ~has
            yield Condition("", kind, name, trees)


def _of_group(columns: Columns, group: RequestGroup) -> Iterator[Condition]:
    bare = msgspec.structs.replace(
        group, required=(), forbidden=frozenset(), member_of=(), not_member_of=frozenset(), in_tree=None
    )
    for name, amount in group.resources.items():
        only = Matcher(columns, msgspec.structs.replace(bare, resources={name: amount}))
        yield Condition(group.suffix, "resources", name, columns.trees_with(only.rows()[name]))
    parts: list[tuple[str, str, dict[str, Any]]] = [
        *(("required", _words(names), {"required": (names,)}) for names in group.required),
        *(("member_of", _words(names), {"member_of": (names,)}) for names in group.member_of),
    ]
    for kind in ("forbidden", "not_member_of"):
        names = getattr(group, kind)
        if names:
            parts.append((kind, _words(names), {kind: names}))
    if group.in_tree is not None:
        parts.append(("in_tree", group.in_tree, {"in_tree": group.in_tree}))
    for kind, subject, change in parts:
        # As a suffixed group, so that required traits are asked of single providers.
        asked = {"suffix": group.suffix or ("_" if kind == "required" else ""), "resources": {}, **change}
        rows = Matcher(columns, msgspec.structs.replace(bare, **asked)).rows()[""]
        yield Condition(group.suffix, kind, subject, columns.trees_with(rows))
    if group.suffix:
        rows = next(iter(Matcher(columns, group).rows().values()))
        yield Condition(group.suffix, "provider", "", columns.trees_with(rows))


def _words(names: frozenset[str]) -> str:
    return ",".join(sorted(names))
