"""Allocation candidates: which providers together can give what a request asks.

A search takes the trees that may serve a query (`matching`) and builds exact combinations (`combining`) only as
far as the limit asks: block by block, and lazily in each tree. Breadth first, every tree gives one candidate
before any gives its second; depth first, as upstream, a tree gives all it has before the next is looked at.

Work is bounded fairly, whatever is asked. A tree whose walk pauses without a result stands back behind the others; one
that has found nothing for `PATIENCE` pauses is left, and so is the whole search after `MOST_PAUSES`. What was found
by then is right, though it may not be all: trees that were left without a candidate are `undecided`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from moorage.core.log import get_logger
from moorage.placement.columns import Columns, Mask
from moorage.placement.combining import PAUSE, combinations
from moorage.placement.figures import Rows
from moorage.placement.matching import First, Shape
from moorage.placement.query import Candidate, Query
from moorage.placement.subtrees import Local

log = get_logger(__name__)

PATIENCE = 50
"""Pauses in a row without a candidate after which a tree is left."""
MOST_PAUSES = 500
"""Pauses after which a search ends: a second or less in which nothing was found."""
_BLOCKS = (16, 1024)
"""How many trees are looked at together, at least and at most."""


class Search:
    """The candidates of one query now. Use it at once: it looks at columns that change.

    Give the `shape` of an earlier search for the same query, where there is one. `pauses` counts the work done
    without a result; `undecided` holds trees that `serving` and `first_in` left before a candidate was found or ruled out.
    """

    def __init__(self, columns: Columns, query: Query, shape: Shape | None = None) -> None:
        self.columns = columns
        self.query = query
        self.shape = shape or Shape(columns, query)
        self.pauses = 0
        self.undecided: set[int] = set()
        self._seen: set[object] = set()

    def candidates(
        self, limit: int, *, breadth_first: bool = True, draw: np.random.Generator | None = None
    ) -> list[Candidate]:
        """Return candidates, at most `limit` of them; with `draw`, of trees at random and in random order."""
        trees = np.flatnonzero(self.shape.trees)
        streams = self._streams(trees, limit, draw)
        found = self._breadth(streams, limit) if breadth_first else self._depth(streams, limit)
        if draw is not None:
            draw.shuffle(found)
        if self.pauses >= MOST_PAUSES:
            log.warning(
                "placement.search_cut_short", found=len(found), trees=len(trees), steps=self.pauses * PAUSE
            )
        return found

    def serving(self) -> Mask:
        """Return the trees that give a candidate; of those in `undecided` it is not known afterwards."""
        found = np.zeros(self.columns.trees, dtype=np.bool_)
        again: deque[_Stream] = deque()
        for stream in self._streams(np.flatnonzero(self.shape.trees), self.columns.trees):
            self._settle(stream, found, again)
        while again:
            self._settle(again.popleft(), found, again)
        return found

    def _settle(self, stream: _Stream, found: Mask, again: deque[_Stream]) -> None:
        """Let a tree work until its first candidate or pause."""
        if self.pauses >= MOST_PAUSES or not stream.patience:
            self.undecided.add(stream.tree)
            return
        candidate = next(stream.walk, stream)
        if candidate is None:
            self._paused(stream)
            again.append(stream)
        elif candidate is not stream:
            found[stream.tree] = True

    def first_in(self, tree: int) -> Candidate | None:
        """Return the first candidate of one tree, or None: it has none, or is in `undecided`."""
        if not self.shape.serves(tree):
            return None
        if self.pauses >= MOST_PAUSES:
            self.undecided.add(tree)
            return None
        for stream in self._streams(np.array([tree]), 1):
            for candidate in stream.walk:
                if candidate is not None:
                    return candidate
                self._paused(stream)
                if not stream.patience or self.pauses >= MOST_PAUSES:
                    self.undecided.add(tree)
                    break
        return None

    def _paused(self, stream: _Stream) -> None:
        self.pauses += 1
        stream.patience -= 1

    def _breadth(self, streams: Iterable[_Stream], limit: int) -> list[Candidate]:
        found: list[Candidate] = []
        again: deque[_Stream] = deque()
        for stream in streams:
            if self._step(stream, found):
                again.append(stream)
            if len(found) == limit or self.pauses >= MOST_PAUSES:
                return found
        while again and len(found) < limit and self.pauses < MOST_PAUSES:
            stream = again.popleft()
            if self._step(stream, found):
                again.append(stream)
        return found

    def _depth(self, streams: Iterable[_Stream], limit: int) -> list[Candidate]:
        found: list[Candidate] = []
        for stream in streams:
            while len(found) < limit and self.pauses < MOST_PAUSES and self._step(stream, found):
                pass
            if len(found) == limit:
                break
        return found

    def _step(self, stream: _Stream, found: list[Candidate]) -> bool:
        """Let a tree work until its next candidate or pause; return whether it may have more."""
        for candidate in stream.walk:
            if candidate is None:
                self._paused(stream)
                return stream.patience > 0
            stream.patience = PATIENCE
            # Only sharing providers can be met from several trees.
            if self.columns.sharing and not self._is_new(candidate):
                continue
            found.append(candidate)
            return True
        return False

    def _streams(self, trees: Rows, limit: int, draw: np.random.Generator | None = None) -> Iterator[_Stream]:
        """Yield the trees' streams, making what they need for a block of trees at once."""
        self.shape.forget_firsts()
        low, high = _BLOCKS
        size = min(max(low, limit), high)
        if draw is not None:
            trees = draw.permutation(trees)
        for start in range(0, len(trees), size):
            block = trees[start : start + size]
            if draw is None:
                yield from self._block(block)
                continue
            # A block is made in the order of its rows, and then drawn from.
            streams = list(self._block(np.sort(block)))
            draw.shuffle(streams)
            yield from streams

    def _block(self, trees: Rows) -> Iterator[_Stream]:
        shape = self.shape
        numbers, changes = trees.tolist(), self.columns.changes[trees].tolist()
        known = [shape.firsts.get(tree) for tree in numbers]
        fresh = [
            first is not None and first.changes == count for first, count in zip(known, changes, strict=True)
        ]
        unknown = trees[~np.array(fresh)]
        local = dict(zip(unknown.tolist(), self._local(unknown), strict=True))
        for tree, first, count in zip(numbers, known, changes, strict=True):
            if tree in local:
                yield _Stream(tree, self._walked(tree, count, local[tree]))
            elif first is not None and first.candidate is not None:
                only = iter((first.candidate,))
                yield _Stream(tree, only if first.only else self._resumed(tree, first.candidate))

    def _walked(self, tree: int, count: int, local: Sequence[Local]) -> Iterator[Candidate | None]:
        """Walk a tree; what is found first, or that there is nothing, is kept with the shape."""
        walk = combinations(self.columns, self.query, tree, local)
        firsts = self.shape.firsts
        first: Candidate | None = None
        found = 0
        for candidate in walk:
            if candidate is not None:
                found += 1
                if first is None:
                    first = candidate
                    firsts[tree] = First(count, first, only=False)
            yield candidate
        if found < 2:
            firsts[tree] = First(count, first, only=True)

    def _resumed(self, tree: int, first: Candidate) -> Iterator[Candidate | None]:
        """Yield a first candidate that is known, and walk only if more is asked for."""
        yield first
        walk = combinations(self.columns, self.query, tree, self._local(np.array([tree]))[0])
        skipped = False
        for candidate in walk:
            if candidate is not None and not skipped:
                skipped = True
                continue
            yield candidate

    def _local(self, trees: Rows) -> list[list[Local]]:
        """Return for each tree, and in it for each group, the rows in reach that can serve it."""
        columns, shape = self.columns, self.shape
        within = columns.rows_of(trees)
        shared = np.array(sorted(columns.sharing), dtype=np.int64)
        by_matcher: dict[int, list[Local]] = {}
        for matcher in shape.matchers:
            if id(matcher) in by_matcher:
                continue
            own = _by_tree(columns, matcher.rows(within), trees)
            if len(shared):
                guests = {name: set(rows.tolist()) for name, rows in matcher.rows(shared).items()}
                for at, tree in enumerate(trees.tolist()):
                    near = columns.shared_with(tree)
                    own[at] = {
                        name: [*rows, *(row for row in near if row in guests[name])]
                        for name, rows in own[at].items()
                    }
            by_matcher[id(matcher)] = own
        return [[by_matcher[id(matcher)][at] for matcher in shape.matchers] for at in range(len(trees))]

    def _is_new(self, candidate: Candidate) -> bool:
        columns = self.columns
        served = itertools.chain.from_iterable(candidate.mappings.values())
        if any(columns.row_of[provider] not in columns.sharing for provider in served):
            return True
        key = (
            frozenset(
                (p, rc, n) for p, amounts in candidate.allocations.items() for rc, n in amounts.items()
            ),
            frozenset((suffix, frozenset(providers)) for suffix, providers in candidate.mappings.items()),
        )
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


class _Stream:
    """What a tree gives, one after the other, and for how many pauses it is waited for."""

    __slots__ = ("patience", "tree", "walk")

    def __init__(self, tree: int, walk: Iterator[Candidate | None]) -> None:
        self.tree = tree
        self.walk = walk
        self.patience = PATIENCE


def _by_tree(columns: Columns, by_class: dict[str, Rows], trees: Rows) -> list[Local]:
    """Cut rows that are in the order of these trees into those of each."""
    cut: dict[int, list[list[int]]] = {}
    for rows in by_class.values():
        if id(rows) not in cut:
            listed = rows.tolist()
            bounds = [*np.searchsorted(columns.tree[rows], trees).tolist(), len(listed)]
            cut[id(rows)] = [listed[a:b] for a, b in itertools.pairwise(bounds)]
    return [{name: cut[id(rows)][at] for name, rows in by_class.items()} for at in range(len(trees))]
