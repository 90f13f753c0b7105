"""Allocation candidates: which providers together can give what a request asks.

A `Search` first computes, for all trees at once, what is necessary (each group has somewhere to go), and
then builds exact combinations only in the trees that are asked for, one at a time. A tree's providers
are joined by the sharing providers that serve it.

Source of the semantics: the Placement API, microversion 1.39. The un-suffixed group may spread over a
tree; a suffixed group comes from one provider.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from moorage.placement.columns import Columns, Mask, Rows
from moorage.placement.model import Allocations


class RequestGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Resources and conditions that belong together.

    `required` and `member_of` are conjunctions of alternatives: each inner set must be met by one of its
    members. `in_tree` is the id of any provider of the only tree that may be used.
    """

    suffix: str = ""
    resources: dict[str, int] = {}
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request. `nested=False` is the API before 1.29: one provider of a tree at most."""

    groups: tuple[RequestGroup, ...]
    isolate: bool = False
    same_subtree: tuple[frozenset[str], ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    nested: bool = True


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One way to serve a request: `mappings` says which providers serve which group's suffix."""

    root: str
    allocations: Allocations
    mappings: dict[str, list[str]]


Option = tuple[tuple[int, str, int], ...]
"""One way to serve one group: (row, resource class, amount) each; for a group without resources
a single (row, "", 0)."""


class Search:
    """One query over one state of the columns. Results are advisory: the ledger decides."""

    def __init__(self, columns: Columns, query: Query) -> None:
        self.columns = columns
        self.query = query
        self._rows: list[dict[str, Rows]] = [self._group_rows(group) for group in query.groups]

    @cached_property
    def trees(self) -> Mask:
        """The trees in which every group has somewhere to go: necessary, not sufficient."""
        columns = self.columns
        found = np.ones(columns.trees, dtype=np.bool_)
        for rows_by_class in self._rows:
            for rows in rows_by_class.values():
                found &= columns.trees_with(rows)
        for trait in self.query.root_required:
            found &= columns.trait(trait)[columns.first]
        for trait in self.query.root_forbidden:
            found &= ~columns.trait(trait)[columns.first]
        return found

    def candidates(self, limit: int | None = None) -> list[Candidate]:
        """Return candidates, with a limit spread over trees: every tree's first before any tree's second."""
        found: list[Candidate] = []
        seen: set[object] = set()
        streams = (
            [self.in_tree(tree) for tree in np.flatnonzero(self.trees).tolist()] if limit is None else None
        )
        if streams is not None:
            return [c for stream in streams for c in stream if _is_new(c, seen)]
        waiting: Iterator[Iterator[Candidate]] = (
            self.in_tree(tree) for tree in np.flatnonzero(self.trees).tolist()
        )
        assert limit is not None
        while len(found) < limit:
            again = []
            for stream in waiting:
                candidate = next((c for c in stream if _is_new(c, seen)), None)
                if candidate is not None:
                    found.append(candidate)
                    again.append(stream)
                if len(found) == limit:
                    return found
            if not again:
                return found
            waiting = iter(again)
        return found

    def first_in(self, tree: int) -> Candidate | None:
        """Return the first candidate of one tree, or None."""
        return next(self.in_tree(tree), None) if self.trees[tree] else None

    def in_tree(self, tree: int) -> Iterator[Candidate]:
        """Yield every candidate whose anchor is the root of this tree."""
        options = [
            list(self._options(group, rows, tree))
            for group, rows in zip(self.query.groups, self._rows, strict=True)
        ]
        # Groups with few options first keep the products small.
        order = sorted(range(len(options)), key=lambda i: len(options[i]))
        chosen: dict[int, Option] = {}
        for _ in self._combine(order, options, chosen, {}):
            if self._acceptable(chosen):
                yield self._candidate(tree, chosen)

    def _combine(
        self,
        order: Sequence[int],
        options: Sequence[Sequence[Option]],
        chosen: dict[int, Option],
        taken: dict[tuple[int, str], int],
    ) -> Iterator[None]:
        """Walk the product of the groups' options, leaving a branch as soon as it cannot fit."""
        if len(chosen) == len(order):
            yield None
            return
        group = order[len(chosen)]
        for option in options[group]:
            if self._collides(group, option, chosen):
                continue
            after = self._take(option, taken)
            if after is None:
                continue
            chosen[group] = option
            yield from self._combine(order, options, chosen, after)
            del chosen[group]

    def _collides(self, group: int, option: Option, chosen: Mapping[int, Option]) -> bool:
        if not self.query.isolate or not self._granular(group):
            return False
        return any(other[0][0] == option[0][0] for at, other in chosen.items() if self._granular(at))

    def _granular(self, group: int) -> bool:
        return bool(self.query.groups[group].suffix)

    def _take(self, option: Option, taken: dict[tuple[int, str], int]) -> dict[tuple[int, str], int] | None:
        after = dict(taken)
        for row, resource_class, amount in option:
            if not amount:
                continue
            total = after.get((row, resource_class), 0) + amount
            if total > amount and not self._has_room(row, resource_class, total):
                return None
            after[row, resource_class] = total
        return after

    def _has_room(self, row: int, resource_class: str, amount: int) -> bool:
        columns = self.columns
        column = columns.classes[resource_class]
        at = columns.position[columns.ids[row], resource_class]
        return bool(column.used[at] + amount <= column.capacity[at] and amount <= column.max_unit[at])

    def _group_rows(self, group: RequestGroup) -> dict[str, Rows]:
        """Return the rows that can serve each class of a group (each the whole of a suffixed one).

        A group without resources has its rows under the class "".
        """
        eligible = self._eligible(group)
        by_class: dict[str, Rows] = {}
        for resource_class, amount in group.resources.items():
            column = self.columns.classes.get(resource_class)
            rows = column.fitting(amount) if column is not None else np.empty(0, dtype=np.int64)
            by_class[resource_class] = rows if eligible is None else rows[eligible[rows]]
        if not group.resources:
            everything = np.arange(len(self.columns), dtype=np.int64)
            return {"": everything if eligible is None else everything[eligible]}
        if not group.suffix:
            return by_class
        common = None
        for rows in by_class.values():
            common = rows if common is None else np.intersect1d(common, rows, assume_unique=True)
        assert common is not None
        return dict.fromkeys(by_class, common)

    def _eligible(self, group: RequestGroup) -> Mask | None:
        """Return which rows meet the group's conditions; None when it has none.

        The un-suffixed group takes a provider whose root is in the aggregate, and its required traits are
        met by all its providers together (see `_options`), so they are no condition on one row.
        """
        columns = self.columns
        masks = []
        for alternatives in group.member_of:
            mask = columns.any_of(alternatives, "aggregate")
            masks.append(mask if group.suffix else mask | columns.of_root(mask))
        if group.not_member_of:
            mask = columns.any_of(group.not_member_of, "aggregate")
            masks.append(~(mask if group.suffix else mask | columns.of_root(mask)))
        if group.forbidden:
            masks.append(~columns.any_of(group.forbidden, "trait"))
        if group.suffix:
            masks += [columns.any_of(alternatives, "trait") for alternatives in group.required]
        if group.in_tree is not None:
            row = columns.row_of.get(group.in_tree)
            masks.append(columns.tree == (columns.tree[row] if row is not None else -1))
        if not masks:
            return None
        found = masks[0]
        for mask in masks[1:]:
            found = found & mask
        return found

    def _options(self, group: RequestGroup, rows: Mapping[str, Rows], tree: int) -> Iterator[Option]:
        local = {name: self._in_reach(found, tree) for name, found in rows.items()}
        if group.suffix or not group.resources:
            amounts = group.resources or {"": 0}
            for row in next(iter(local.values())):
                yield tuple((row, name, amount) for name, amount in amounts.items())
            return
        names = list(group.resources)
        for choice in itertools.product(*(local[name] for name in names)):
            if self._covers(set(choice), group.required):
                yield tuple(
                    (row, name, group.resources[name]) for row, name in zip(choice, names, strict=True)
                )

    def _in_reach(self, rows: Rows, tree: int) -> list[int]:
        own = self.columns.tree_rows(tree)
        start, end = np.searchsorted(rows, (own.start, own.stop))
        found: list[int] = rows[start:end].tolist()
        for row in self.columns.shared_by_tree.get(tree, ()):
            at = int(np.searchsorted(rows, row))
            if at < len(rows) and rows[at] == row:
                found.append(row)
        return found

    def _covers(self, rows: set[int], required: Sequence[frozenset[str]]) -> bool:
        return all(
            any(self.columns.trait(trait)[row] for trait in alternatives for row in rows)
            for alternatives in required
        )

    def _acceptable(self, chosen: Mapping[int, Option]) -> bool:
        columns, query = self.columns, self.query
        if not query.nested:
            rows = {row for option in chosen.values() for row, _, _ in option}
            if len({int(columns.tree[row]) for row in rows}) < len(rows):
                return False
        if not query.same_subtree:
            return True
        by_suffix = {query.groups[at].suffix: {row for row, _, _ in option} for at, option in chosen.items()}
        return all(
            self._one_above_all(set().union(*(by_suffix[suffix] for suffix in suffixes)))
            for suffixes in query.same_subtree
        )

    def _one_above_all(self, rows: set[int]) -> bool:
        lines = [self._ancestors(row) for row in rows]
        return any(all(row in line for line in lines) for row in rows)

    def _ancestors(self, row: int) -> set[int]:
        line = set()
        while row != -1:
            line.add(row)
            row = int(self.columns.parent[row])
        return line

    def _candidate(self, tree: int, chosen: Mapping[int, Option]) -> Candidate:
        ids = self.columns.ids
        allocations: Allocations = {}
        mappings: dict[str, list[str]] = {}
        for at in sorted(chosen):
            served = mappings.setdefault(self.query.groups[at].suffix, [])
            for row, resource_class, amount in chosen[at]:
                provider = ids[row]
                if provider not in served:
                    served.append(provider)
                if amount:
                    amounts = allocations.setdefault(provider, {})
                    amounts[resource_class] = amounts.get(resource_class, 0) + amount
        return Candidate(root=ids[int(self.columns.first[tree])], allocations=allocations, mappings=mappings)


def _is_new(candidate: Candidate, seen: set[object]) -> bool:
    key = (
        frozenset((p, rc, n) for p, amounts in candidate.allocations.items() for rc, n in amounts.items()),
        frozenset((suffix, frozenset(providers)) for suffix, providers in candidate.mappings.items()),
    )
    if key in seen:
        return False
    seen.add(key)
    return True
