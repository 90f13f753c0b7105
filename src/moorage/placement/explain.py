"""Why a tree gives no candidate: each condition of a query by itself, with figures.

`matching.conditions` says for all trees at once where a condition is met. Here the trees that give nothing are told
what they fail on: a resource with what was needed and the best that one provider has, a trait, an aggregate. A
tree that meets every condition and yet gives nothing lacks a *combination*: what its providers have does not
add up to all groups together. Where the search was left before it knew, a tree is *undecided*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property, partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from moorage.placement.candidates import Search
from moorage.placement.columns import Columns, Mask
from moorage.placement.figures import Figures
from moorage.placement.matching import Condition, conditions
from moorage.placement.query import Query, RequestGroup
from moorage.scheduling.checks import UNITS, WORDS

COMBINATION = "combination"
UNDECIDED = "undecided"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition that a tree does not meet.

    `group` is the suffix ("" for the un-suffixed group and for conditions on the root), `condition` as in
    `matching.Condition`, or `combination`, or `undecided`. `reason` of `resources`: `absent` (no provider has the class), `short`,
    `below_min_unit`, `above_max_unit`, `off_step`; `needed` and `available` are in the class's unit, and
    available is the best of one provider, or the unit that stands in the way.
    """

    group: str = ""
    condition: str
    reason: str
    subject: str = ""
    needed: int | None = None
    available: int | None = None


class RootReport(msgspec.Struct, frozen=True):
    """A root that gave no candidate, and everything that it fails on."""

    uuid: str
    name: str
    failures: list[Failure]


class FailedCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition over all trees: how many fail it, and the smallest shortage among them."""

    group: str = ""
    condition: str
    subject: str = ""
    roots: int
    short_by: int | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a query found and did not find. `roots` may be cut to a limit; the figures are of all."""

    considered: int
    serving: int
    summary: str
    reasons: list[FailedCondition]
    roots: list[RootReport]


class Explainer:
    """One query over the columns as they are now; use it at once."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.columns: Columns = search.columns
        self.query: Query = search.query
        self._best_of_trees = cache(partial(best_of_trees, self.columns))
        self._groups = {group.suffix: group for group in self.query.groups}
        self._conditions = list(_in_sum(self.columns, list(conditions(self.columns, self.query))))

    def explain(self, limit: int) -> Explanation:
        """Explain all trees, up to `limit` of them one by one; first those that the query names by `in_tree`."""
        columns, living = self.columns, self.columns.living_trees
        serving = self.search.serving()
        met = living.copy()
        for condition in self._conditions:
            met &= condition.trees
        undecided = np.zeros_like(met)
        undecided[sorted(self.search.undecided)] = True
        rest = {COMBINATION: met & ~serving & ~undecided, UNDECIDED: undecided}
        failing = np.flatnonzero(living & ~serving)
        failing = failing[np.argsort(~self._named()[failing], kind="stable")]
        return Explanation(
            considered=int(living.sum()),
            serving=int(serving.sum()),
            summary=self._summary(serving, rest),
            reasons=self._reasons(rest),
            roots=[
                RootReport(columns.ids[row], columns.names[row], self.failures(tree))
                for tree in failing[:limit].tolist()
                for row in (int(columns.first[tree]),)
            ],
        )

    def _named(self) -> Mask:
        found = np.zeros(self.columns.trees, dtype=np.bool_)
        for group in self.query.groups:
            row = None if group.in_tree is None else self.columns.row_of.get(group.in_tree)
            if row is not None:
                found[self.columns.tree[row]] = True
        return found

    def failures(self, tree: int) -> list[Failure]:
        """Say everything that a tree which gives no candidate fails on."""
        found = [_failure(self.columns, self._groups, c, tree) for c in self._conditions if not c.trees[tree]]
        if tree in self.search.undecided:
            return [Failure(condition=UNDECIDED, reason="not_decided")]
        return found or [Failure(condition=COMBINATION, reason="no_combination")]

    def _reasons(self, rest: Mapping[str, Mask]) -> list[FailedCondition]:
        found = []
        living = self.columns.living_trees
        for c in self._conditions:
            failing = living & ~c.trees
            if failing.any():
                short_by = self._least(c, failing)
                found.append(
                    FailedCondition(
                        group=c.suffix,
                        condition=c.kind,
                        subject=c.subject,
                        roots=int(failing.sum()),
                        short_by=short_by,
                    )
                )
        for kind, failing in rest.items():
            if failing.any():
                found.append(FailedCondition(condition=kind, roots=int(failing.sum())))
        return sorted(found, key=lambda reason: -reason.roots)

    def _least(self, condition: Condition, failing: Mask) -> int | None:
        """The smallest amount by which one of these trees is short; None where none of them is short of it."""
        if condition.kind != "resources":
            return None
        best = self._best_of_trees(condition.subject)[failing]
        missing = self._groups[condition.suffix].resources[condition.subject] - best[best >= 0]
        missing = missing[missing > 0]
        return int(missing.min()) if len(missing) else None

    def _summary(self, serving: Mask, rest: Mapping[str, Mask]) -> str:
        """In a line; a tree counts once, for the first condition that it fails."""
        living = self.columns.living_trees
        considered = int(living.sum())
        parts = [(int(serving.sum()), "suitable", "")]
        counted = serving.copy()
        for c in self._conditions:
            failing = living & ~c.trees & ~counted
            counted |= failing
            least = self._least(c, failing)
            by = "" if least is None else f" by {least} {UNITS.get(c.subject, '')}".rstrip()
            parts.append((int(failing.sum()), words(c.kind, c.subject, c.suffix), by))
        parts += [(int((failing & ~counted).sum()), _REST[kind], "") for kind, failing in rest.items()]
        told = ", ".join(f"{count} {text}{by}" for count, text, by in parts if count)
        trees = f"{considered} root" + ("" if considered == 1 else "s")
        return f"{trees}: {told}" if told else "no providers"


REASONS = {
    "required": "missing_trait",
    "forbidden": "forbidden_trait",
    "member_of": "not_in_aggregate",
    "not_member_of": "in_forbidden_aggregate",
    "in_tree": "other_tree",
    "provider": "no_single_provider",
    "root_required": "missing_trait",
    "root_forbidden": "forbidden_trait",
}
_WORDS = {
    "required": "without a provider with trait {}",
    "forbidden": "with forbidden trait {} on every provider",
    "member_of": "not in aggregate {}",
    "not_member_of": "in forbidden aggregate {}",
    "in_tree": "other than the tree asked for",
    "provider": "without one provider for all",
    "root_required": "with a root without trait {}",
    "root_forbidden": "with a root with trait {}",
}


_REST = {
    COMBINATION: "without a combination of providers for all",
    UNDECIDED: "not decided, as there are too many combinations to try",
}


def words(kind: str, subject: str, group: str) -> str:
    """Put a condition that is not met into words, for a summary."""
    what = WORDS.get(subject, subject)
    text = f"short of {what}" if kind == "resources" else _WORDS[kind].format(subject)
    return f"{text} for group {group}" if group else text


class GroupFailures:
    """What keeps one suffixed group from having a provider in a tree, of the columns as they are when first asked."""

    def __init__(self, columns: Columns, group: RequestGroup) -> None:
        self._columns = columns
        self._group = group
        self._best_of_trees = cache(partial(best_of_trees, columns))

    @cached_property
    def _conditions(self) -> list[Condition]:
        return list(_in_sum(self._columns, list(conditions(self._columns, Query(groups=(self._group,))))))

    def first(self, trees: NDArray[np.int64]) -> Iterator[tuple[Failure, int]]:
        """For each reason that is the first in some of these trees: the failure of the nearest, and how many it is."""
        for condition in self._conditions:
            met = condition.trees[trees]
            if not met.all():
                yield from self._failures(condition, trees[~met])
            trees = trees[met]
        if len(trees):
            group = self._group.suffix
            yield Failure(group=group, condition=COMBINATION, reason="no_combination"), len(trees)

    def _failures(self, condition: Condition, trees: NDArray[np.int64]) -> Iterator[tuple[Failure, int]]:
        nearest: dict[str, tuple[Failure, int]] = {}
        if condition.kind != "resources":
            yield self._failure(condition, trees[0]), len(trees)
            return
        best = self._best_of_trees(condition.subject)[trees]
        short = best < self._group.resources[condition.subject]
        for those in (best < 0, (best >= 0) & short):
            found = trees[those]
            if len(found):
                yield self._failure(condition, found[np.argmax(best[those])]), len(found)
        # What is left has enough, in other units. Which of them stands in the way is asked of each: few operators have any.
        for tree in trees[~short]:
            failure = self._failure(condition, tree)
            first, count = nearest.get(failure.reason, (failure, 0))
            nearest[failure.reason] = first, count + 1
        yield from nearest.values()

    def _failure(self, condition: Condition, tree: np.int64) -> Failure:
        return _failure(self._columns, {self._group.suffix: self._group}, condition, int(tree))


def _failure(
    columns: Columns, groups: Mapping[str, RequestGroup], condition: Condition, tree: int
) -> Failure:
    suffix, kind, subject = condition.suffix, condition.kind, condition.subject
    if kind != "resources":
        return Failure(group=suffix, condition=kind, reason=REASONS[kind], subject=subject)
    amount = groups[suffix].resources[subject]
    reason, available = shortage(columns, tree, subject, amount)
    return Failure(
        group=suffix, condition=kind, reason=reason, subject=subject, needed=amount, available=available
    )


def shortage(columns: Columns, tree: int, resource_class: str, amount: int) -> tuple[str, int]:
    """Say why no provider in reach of a tree gives an amount: the reason, and the figure that goes with it."""
    column = columns.classes.get(resource_class)
    rows = [*columns.tree_rows(tree), *columns.shared_with(tree)]
    entries = [int(column.at[row]) for row in rows if column.at[row] >= 0] if column is not None else []
    if column is None or not entries:
        return "absent", 0
    free = {entry: int(column.capacity[entry] - column.used[entry]) for entry in entries}
    enough = [entry for entry in entries if free[entry] >= amount]
    if not enough:
        return "short", max(0, *free.values())
    entry = max(enough, key=lambda e: int(column.max_unit[e]))
    if amount > column.max_unit[entry]:
        return "above_max_unit", int(column.max_unit[entry])
    if amount < column.min_unit[entry]:
        return "below_min_unit", int(column.min_unit[entry])
    return "off_step", int(column.step_size[entry])


def best_of_trees(columns: Columns, resource_class: str) -> Figures:
    """Return what the best provider in reach of each tree has free; -1 where none has the class."""
    best = np.full(columns.trees, -1, dtype=np.int64)
    column = columns.classes.get(resource_class)
    if column is None:
        return best
    live = column.capacity >= 0
    rows = column.rows[live]
    free = np.maximum(column.capacity[live] - column.used[live], 0)
    np.maximum.at(best, columns.tree[rows], free)
    for row in columns.sharing:
        if column.at[row] >= 0:
            served = columns.trees_with(np.array([row]))
            best[served] = np.maximum(best[served], column.free(np.array([row]))[0])
    return best


def _in_sum(columns: Columns, found: list[Condition]) -> Iterator[Condition]:
    """The conditions, that on one provider of all last, and failed only where the group's others are met."""
    others: dict[str, Mask] = {}
    for condition in found:
        if condition.kind == "provider":
            trees = condition.trees | ~others.get(condition.suffix, columns.living_trees)
            yield msgspec.structs.replace(condition, trees=trees)
        else:
            known = others.get(condition.suffix, columns.living_trees)
            others[condition.suffix] = known & condition.trees
            yield condition
