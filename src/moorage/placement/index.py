"""The index: columns that follow the ledger, and what is remembered for repeated requests.

`apply` is idempotent and order does not matter: usage carries the version of its row, and a provider that
changed otherwise is read again as a whole. The index advises; the ledger decides.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable

from moorage.placement import forest
from moorage.placement.candidates import Search
from moorage.placement.columns import Columns
from moorage.placement.matching import Shape
from moorage.placement.model import Allocations, UsedRow
from moorage.placement.query import Query
from moorage.placement.reads import Held

EXPECTATION_SECONDS = 30.0
"""A claim that neither committed nor failed by then (its transaction was rolled back) is forgotten."""
SHAPES = 32
"""How many shapes of requests are remembered; each takes a byte a tree and some candidates."""


FRAGMENTS = 8_192
"""For how many trees the JSON of their summaries is kept: some 20 MB."""


class Index:
    """Providers, inventories and usage of the whole cloud, in this process's memory.

    `known_names` are custom traits and classes that exist for sure, until the log tells of one that was deleted.
    """

    def __init__(self) -> None:
        self._columns = Columns()
        self.expected: dict[tuple[str, str], int] = {}
        self._expectations: dict[int, tuple[float, Allocations]] = {}
        self._next_token = 0
        self.known_names: set[str] = set()
        self._fragments: dict[int, tuple[int, int, bytes]] = {}
        self._shapes: OrderedDict[object, Shape] = OrderedDict()

    @property
    def columns(self) -> Columns:
        """The columns as they are now; they change at the next await."""
        self._forget_expectations()
        return self._columns

    def search(self, query: Query) -> Search:
        """Return a search for a query, with what is remembered of the last one like it."""
        columns = self.columns
        shape = self._shapes.get(query.key)
        if shape is None:
            shape = self._shapes[query.key] = Shape(columns, query)
            if len(self._shapes) > SHAPES:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(query.key)
        return Search(columns, query, shape)

    def load(self, records: Iterable[Held]) -> None:
        """Start over from these providers."""
        self.replace(forest.build(records))

    def replace(self, columns: Columns) -> None:
        """Start over from these columns."""
        self._columns = columns
        self._shapes.clear()
        self.known_names.clear()
        self._fragments.clear()
        for (provider, name), amount in self.expected.items():
            columns.set_expected(provider, name, amount)

    def fragment(self, tree: int) -> bytes | None:
        """Return what a face has made of a tree, if the tree has not changed since."""
        columns = self._columns
        found = self._fragments.get(tree)
        if found is None or found[:2] != (columns.epoch, int(columns.changes[tree])):
            return None
        return found[2]

    def keep_fragment(self, tree: int, made: bytes) -> None:
        """Keep it for the next time."""
        columns = self._columns
        if len(self._fragments) >= FRAGMENTS:
            self._fragments.clear()
        self._fragments[tree] = (columns.epoch, int(columns.changes[tree]), made)

    def apply_used(self, rows: Iterable[UsedRow]) -> None:
        """Take over usage figures that are newer than those known."""
        for row in rows:
            self._columns.set_used(row.provider_id, row.resource_class, row.used, row.version)

    def apply_providers(self, asked: Iterable[str], found: Iterable[Held]) -> None:
        """Take over whole providers; those asked for and not found are gone."""
        records = list(found)
        gone = set(asked) - {record.id for record in records}
        forest.apply(self._columns, gone, records, self.expected)

    def expect(self, allocations: Allocations) -> int:
        """Note a claim that is under way, for rankings; return the token to `settle` it with."""
        self._next_token += 1
        self._expectations[self._next_token] = (time.monotonic(), allocations)
        self._add_expected(allocations, 1)
        return self._next_token

    def settle(self, token: int) -> None:
        """Forget a claim that has ended, well or not."""
        held = self._expectations.pop(token, None)
        if held is not None:
            self._add_expected(held[1], -1)

    def _forget_expectations(self) -> None:
        # Tokens are in the order of time, so the first young one ends the search.
        limit = time.monotonic() - EXPECTATION_SECONDS
        while self._expectations:
            token, (since, _) = next(iter(self._expectations.items()))
            if since > limit:
                return
            self.settle(token)

    def _add_expected(self, allocations: Allocations, sign: int) -> None:
        for provider, amounts in allocations.items():
            for resource_class, amount in amounts.items():
                pair = (provider, resource_class)
                value = self.expected.get(pair, 0) + sign * amount
                self.expected[pair] = value
                if not value:
                    del self.expected[pair]
                self._columns.set_expected(provider, resource_class, value)
