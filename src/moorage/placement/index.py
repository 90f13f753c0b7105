"""The index: columns that follow the ledger's change log.

`apply` is idempotent and order does not matter: usage carries the version of its row, and a provider that
changed otherwise is read again as a whole. Losing a notification costs time only, since the
follower also looks when its timer runs out. The index advises; the ledger decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.placement import changes
from moorage.placement.columns import USED, VERSION, Columns, build
from moorage.placement.model import Allocations, UsedRow
from moorage.placement.reads import EVERYTHING, THESE, Held
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals

log = get_logger(__name__)

EXPECTATION_SECONDS = 30.0
"""A claim that neither committed nor failed by then (its transaction was rolled back) is forgotten."""
RELOAD_SECONDS = 1800.0
"""A follower that was away longer starts over: the log it needs may have been trimmed."""


class Index:
    """Providers, inventories and usage of the whole cloud, in this process's memory."""

    def __init__(self) -> None:
        self._records: dict[str, Held] = {}
        self._cells: dict[tuple[str, str], list[Any]] = {}
        self._columns: Columns | None = None
        self._expected: dict[tuple[str, str], int] = {}
        self._expectations: dict[int, tuple[float, Allocations]] = {}
        self._next_token = 0

    @property
    def columns(self) -> Columns:
        """The columns, rebuilt first when the forest has changed."""
        self._forget_expectations()
        if self._columns is None:
            self._columns = build(self._records, self._expected)
        return self._columns

    def load(self, records: Iterable[Held]) -> None:
        """Start over from these providers."""
        self._records = {}
        self._cells = {}
        self.apply_providers((), records)

    def apply_used(self, rows: Iterable[UsedRow]) -> None:
        """Take over usage figures that are newer than those known."""
        for row in rows:
            pair = (row.provider_id, row.resource_class)
            cell = self._cells.get(pair)
            if cell is None or cell[VERSION] >= row.version:
                continue
            cell[USED], cell[VERSION] = row.used, row.version
            if self._columns is not None:
                self._columns.classes[row.resource_class].used[self._columns.position[pair]] = row.used

    def apply_providers(self, asked: Iterable[str], found: Iterable[Held]) -> None:
        """Take over whole providers; those asked for and not found are gone."""
        gone = set(asked)
        for record in found:
            gone.discard(record.id)
            old = self._records.get(record.id)
            for cell in record.inventories or ():
                known = self._cells.get((record.id, cell[0]))
                if known is not None and known[VERSION] > cell[VERSION]:
                    cell[USED], cell[VERSION] = known[USED], known[VERSION]
            self._forget_cells(old)
            self._records[record.id] = record
            self._cells.update({(record.id, cell[0]): cell for cell in record.inventories or ()})
        for provider in gone:
            self._forget_cells(self._records.pop(provider, None))
        self._columns = None

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
        for token, (since, _) in list(self._expectations.items()):
            if since > limit:
                return
            self.settle(token)

    def _add_expected(self, allocations: Allocations, sign: int) -> None:
        for provider, amounts in allocations.items():
            for resource_class, amount in amounts.items():
                pair = (provider, resource_class)
                value = self._expected.get(pair, 0) + sign * amount
                self._expected[pair] = value
                if not value:
                    del self._expected[pair]
                if self._columns is not None and pair in self._columns.position:
                    column = self._columns.classes[resource_class]
                    column.expected[self._columns.position[pair]] = value

    def _forget_cells(self, record: Held | None) -> None:
        if record is not None:
            for cell in record.inventories or ():
                self._cells.pop((record.id, cell[0]), None)


class Follower:
    """Keeps an index up to date with the change log.

    `await start()` loads the index; `await catch_up()` brings it to everything committed before the call;
    `await run()` follows until cancelled.
    """

    def __init__(
        self, database: Database, index: Index, signals: Signals | None, interval: float = 0.25
    ) -> None:
        self._database = database
        self._index = index
        self._signals = signals
        self._interval = interval
        self._lock = asyncio.Lock()
        self._last_id = 0
        self._missing: dict[int, int | None] = {}
        self._polled_at = 0.0
        self._loaded = False

    @property
    def age(self) -> float:
        """Seconds since the index last equalled what was committed."""
        return time.monotonic() - self._polled_at

    async def catch_up(self) -> None:
        """Apply everything that was committed before this call."""
        async with self._lock, self._database.read() as tx:
            if not self._loaded or self.age > RELOAD_SECONDS:
                await self._load(tx)
            await self._poll(tx)

    async def run(self) -> None:
        """Follow until cancelled: woken by signals, and by the timer where none came."""
        subscription = self._signals.subscribe(changes.CHANNEL) if self._signals is not None else None
        while True:
            try:
                await self.catch_up()
            except Unavailable as error:
                log.warning("placement.index_behind", error=str(error), age=round(self.age, 1))
            if subscription is None:
                await asyncio.sleep(self._interval)
            else:
                await subscription.wait(self._interval)

    async def _load(self, tx: Tx) -> None:
        # Ids up to the start were handed out already; once the transactions that ran then have ended, the
        # providers read here hold all their effects, and only later ids need to be followed.
        start = await changes.POSITION.one(tx)
        now = start
        deadline = time.monotonic() + 5
        while now.oldest_running < start.next_transaction and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
            now = await changes.POSITION.one(tx)
        if now.oldest_running < start.next_transaction:
            # A transaction stays open: look again at all ids that it may still commit.
            start = msgspec.structs.replace(start, last_id=max(0, start.last_id - 10_000))
        self._index.load(await EVERYTHING.all(tx))
        self._last_id, self._missing, self._loaded = start.last_id, {}, True
        self._polled_at = time.monotonic()

    async def _poll(self, tx: Tx) -> None:
        asked_at = time.monotonic()
        rows = await changes.POLL.all(tx, last_id=self._last_id, missing=list(self._missing))
        touched: set[str] = set()
        used: list[UsedRow] = []
        for row in rows:
            if row.kind == "used":
                used += msgspec.convert(row.payload, list[UsedRow])
            elif row.provider_id is not None:
                touched.add(row.provider_id)
        self._note_ids([row.id for row in rows if row.id is not None], rows[0])
        if touched:
            self._index.apply_providers(touched, await THESE.all(tx, ids=sorted(touched)))
        self._index.apply_used(used)
        self._polled_at = asked_at

    def _note_ids(self, seen: Sequence[int], state: changes.Change) -> None:
        """Remember which ids below the newest have not been seen and may still come.

        A missing id gets its bound one poll later, when its transaction must have begun; it is given up
        when every transaction below the bound has ended (it was rolled back).
        """
        missing: dict[int, int | None] = {}
        for number, bound in self._missing.items():
            if bound is None:
                missing[number] = state.next_transaction
            elif bound > state.oldest_running:
                missing[number] = bound
        newest = max(seen, default=self._last_id)
        if newest > self._last_id:
            missing.update(dict.fromkeys(range(self._last_id + 1, newest)))
            self._last_id = newest
        for number in seen:
            missing.pop(number, None)
        self._missing = missing
