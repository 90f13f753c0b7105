"""Wake-ups: one LISTEN connection a process, fanned out to subscribers.

A signal says "look again", no more: payloads are not kept, several may arrive as one, and a lost connection
wakes everybody once it is back. Every waiter therefore also waits with a timer.
"""

import asyncio
import contextlib
from typing import Any

import asyncpg

from moorage.core.errors import Unavailable
from moorage.core.log import get_logger
from moorage.store.database import LOST, Database

log = get_logger(__name__)
_PROBE = 15.0  # seconds of silence after which the listening connection is asked whether it still lives


class Subscription:
    """One subscriber's flag for a channel."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the subscriber."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a signal or ``timeout`` seconds; True when a signal came. Clears the flag."""
        # Not asyncio.wait_for: before Python 3.12 it can swallow a cancellation that comes with the signal.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        came = self._event.is_set()
        self._event.clear()
        return came


class Signals:
    """Subscriptions by channel; ``start`` before use, ``stop`` at the end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._channels: dict[str, list[Subscription]] = {}
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.connected = False
        """Whether signals of other processes arrive at the moment."""

    def subscribe(self, channel: str) -> Subscription:
        """A new subscription; it also gets what this process publishes by ``wake``."""
        subscription = Subscription()
        self._channels.setdefault(channel, []).append(subscription)
        self._changed.set()
        return subscription

    def unsubscribe(self, channel: str, subscription: Subscription) -> None:
        """End a subscription."""
        with contextlib.suppress(ValueError, KeyError):
            self._channels[channel].remove(subscription)

    def wake(self, channel: str) -> None:
        """Wake the subscribers in this process at once, without a database round trip."""
        for subscription in self._channels.get(channel, ()):
            subscription.set()

    async def start(self) -> None:
        """Listen; reconnects by itself."""
        self._task = asyncio.create_task(self._run(), name="store-signals")

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except (Unavailable, asyncpg.PostgresError, *LOST) as error:
                log.warning("signals.lost", error=str(error))
                await asyncio.sleep(1)

    async def _listen(self) -> None:
        connection = await self._database.dedicated()
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _c: closed.set())
        listening: set[str] = set()
        try:
            while not closed.is_set():
                self._changed.clear()
                for channel in set(self._channels) - listening:
                    await connection.add_listener(channel, lambda _c, _p, name, _payload: self.wake(name))
                    listening.add(channel)
                    self.wake(channel)
                self.connected = True
                waiters = [asyncio.create_task(e.wait()) for e in (closed, self._changed)]
                try:
                    done, _ = await asyncio.wait(waiters, timeout=_PROBE, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for waiter in waiters:
                        waiter.cancel()
                if not done:
                    # A server that vanished with its machine closes nothing: only asking shows that it is gone.
                    await connection.execute("SELECT 1", timeout=_PROBE)
        finally:
            self.connected = False
            connection.terminate()
