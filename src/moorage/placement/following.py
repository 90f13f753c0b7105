"""The follower: brings an index up to date with the ledger's change log, and says how old it is.

Losing a notification costs time only, since the follower also looks when its timer runs out. A reader that must
not miss what was committed before it asked waits for one look at the log (`catch_up`); readers that ask
together share it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.placement import changes, loading
from moorage.placement.index import Index
from moorage.placement.model import UsedRow
from moorage.placement.reads import THESE
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals

log = get_logger(__name__)

RELOAD_SECONDS = 1800.0
"""A follower that was away longer starts over: the log it needs may have been trimmed."""


class Follower:
    """Keeps an index up to date with the change log.

    `await catch_up()` brings it to everything committed before the call, and loads it first where it must be;
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
        self._begun = 0
        self._done = 0

    @property
    def age(self) -> float:
        """Seconds since the index last equalled what was committed."""
        return time.monotonic() - self._polled_at

    async def catch_up(self, max_age: float = 0.0) -> None:
        """Apply everything that was committed before this call; nothing to do where the index is younger."""
        if self._loaded and self.age <= max_age:
            return
        arrived = self._begun
        async with self._lock:
            if self._done > arrived:
                # A look that began after this call has ended meanwhile.
                return
            self._begun += 1
            begun = self._begun
            if not self._loaded or self.age > RELOAD_SECONDS:
                await self._load()
            async with self._database.read() as tx:
                while await self._poll(tx):
                    pass
            self._done = begun

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

    async def _load(self) -> None:
        # Ids up to the start were handed out already; once the transactions that ran then have ended, the
        # snapshot read here holds all their effects, and only later ids need to be followed.
        async with self._database.read() as tx:
            start = await changes.POSITION.one(tx)
            now = start
            deadline = time.monotonic() + 5
            while now.oldest_running < start.next_transaction and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
                now = await changes.POSITION.one(tx)
        if now.oldest_running < start.next_transaction:
            # A transaction stays open: look again at all ids that it may still commit.
            start = msgspec.structs.replace(start, last_id=max(0, start.last_id - 10_000))
        async with self._database.snapshot() as tx:
            source = await loading.dump(tx)
        # In a thread, as it takes seconds for a large cloud. What is claimed meanwhile is in the log.
        self._index.replace(await asyncio.to_thread(loading.load, source))
        self._last_id, self._missing, self._loaded = start.last_id, {}, True
        self._polled_at = time.monotonic()

    async def _poll(self, tx: Tx) -> bool:
        """Apply what is new; return whether there may be more."""
        asked_at = time.monotonic()
        rows = await changes.POLL.all(tx, last_id=self._last_id)
        state, more = rows[0], len(rows) == changes.MOST
        if self._missing:
            # Asked after the log's state was seen: what had ended by then is found.
            rows += await changes.MISSING.all(tx, ids=list(self._missing))
        touched: set[str] = set()
        used: list[UsedRow] = []
        for row in rows:
            if row.kind == "used":
                used += msgspec.convert(row.payload, list[UsedRow])
            elif row.kind == "names":
                self._index.known_names.clear()
            elif row.provider_id is not None:
                touched.add(row.provider_id)
        if touched:
            self._index.apply_providers(touched, await THESE.all(tx, ids=sorted(touched)))
        self._index.apply_used(used)
        # Not before all is applied: where the read fails or is cancelled, the next look finds the same rows again.
        self._note_ids([row.id for row in rows if row.id is not None], state)
        if not more:
            self._polled_at = asked_at
        return more

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
