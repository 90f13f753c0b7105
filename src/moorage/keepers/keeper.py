"""The driver of reconcilers.

A reconciler takes no arguments: it reads the desired state, compares, repairs, and says what it did. It is woken by a
signal as soon as something changed, and by a timer in case a signal was lost; a pass is never told what changed, so a
lost or doubled wake-up does no harm. A pass that fails is tried again after a pause that doubles up to a minute. In a
cloud of several processes one of them runs a pass at a time.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from moorage.core.clock import utcnow
from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.keepers.lock import AdvisoryLock
from moorage.store.database import Database
from moorage.store.signals import Signals

log = get_logger(__name__)
_LONGEST_PAUSE = 60.0
_HELD_ELSEWHERE = 1.0


class Reconciler(Protocol):
    """Something that can be brought to its desired state.

    ``interval``  seconds after which a pass runs without a signal
    ``channel``   signal that wakes it, or None
    """

    name: str
    channel: str | None
    interval: float

    async def reconcile(self) -> Mapping[str, Any]:
        """One pass; figures of what was done. ``{"again": True}`` asks for another pass at once."""
        ...


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """How the last pass went. ``seconds`` is how long it took, ``failures`` how many failed in a row."""

    keeper: str
    started_at: datetime
    seconds: float
    outcome: Literal["done", "failed", "held elsewhere"]
    did: Mapping[str, Any] = {}
    error: str | None = None
    failures: int = 0


class Keeper:
    """Runs one reconciler until it is stopped."""

    def __init__(
        self, database: Database, signals: Signals, reconciler: Reconciler, *, first_pause: float = 0.5
    ) -> None:
        self._lock = AdvisoryLock(database, reconciler.name)
        self._signals = signals
        self._reconciler = reconciler
        self._first_pause = first_pause
        self._failures = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.last: Pass | None = None

    @property
    def name(self) -> str:
        """The reconciler's name."""
        return self._reconciler.name

    async def start(self) -> None:
        """Begin, with a pass at once."""
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name=f"keeper-{self.name}")

    async def stop(self) -> None:
        """End after cancelling a pass that is under way."""
        self._stopping = True
        task, self._task = self._task, None
        # A cancellation that meets the end of what is awaited can get lost (asyncio.wait_for before Python 3.12).
        while task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)

    async def pass_once(self) -> Pass:
        """One pass now, if no other process is in one; never raises what the reconciler raised."""
        started, clock = utcnow(), time.monotonic()
        did: Mapping[str, Any] = {}
        error: str | None = None
        held = True
        try:
            async with self._lock.attempt() as held:
                did = await self._reconciler.reconcile() if held else {}
        except Unavailable as failure:
            log.warning("keeper.failed", keeper=self.name, failures=self._failures + 1, error=failure.message)
            error = f"{type(failure).__name__}: {failure}"
        except Exception as failure:
            log.exception("keeper.failed", keeper=self.name, failures=self._failures + 1)
            error = f"{type(failure).__name__}: {failure}"
        self._failures = self._failures + 1 if error is not None else 0
        self.last = Pass(
            keeper=self.name,
            started_at=started,
            seconds=time.monotonic() - clock,
            outcome="failed" if error is not None else "done" if held else "held elsewhere",
            did=did,
            error=error,
            failures=self._failures,
        )
        return self.last

    def pause(self) -> float:
        """Seconds until the next pass, if no signal comes before."""
        if self.last is None or (self.last.outcome == "done" and self.last.did.get("again")):
            return 0.0
        if self.last.outcome == "failed":
            return min(self._first_pause * 2.0 ** (self._failures - 1), _LONGEST_PAUSE)
        if self.last.outcome == "held elsewhere":
            return min(self._reconciler.interval, _HELD_ELSEWHERE)
        return self._reconciler.interval

    async def _run(self) -> None:
        channel = self._reconciler.channel
        subscription = None if channel is None else self._signals.subscribe(channel)
        try:
            while not self._stopping:
                report = await self.pass_once()
                # While it fails, signals must not turn the pauses into a busy loop.
                if subscription is None or report.outcome == "failed":
                    await asyncio.sleep(self.pause())
                else:
                    await subscription.wait(self.pause())
        finally:
            if subscription is not None and channel is not None:
                self._signals.unsubscribe(channel, subscription)
