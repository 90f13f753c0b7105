"""What is still to be said to the control plane: results and events in order, kept until they are acknowledged."""

import asyncio
from collections.abc import Sequence

from moorage.wire.messages import Event, Result, Uplink

_BATCH = 200


class Outbox:
    """A queue with one reader. Nothing leaves it before ``done``."""

    def __init__(self) -> None:
        self._results: dict[str, Result] = {}
        self._events: list[Event] = []
        self._some = asyncio.Event()

    def put(self, result: Result | None = None, events: Sequence[Event] = ()) -> None:
        """Add what one command brought about."""
        if result is not None:
            self._results[result.command_id] = result
        self._events.extend(events)
        if self._results or self._events:
            self._some.set()

    async def batch(self) -> Uplink:
        """Wait until there is something; the oldest of it."""
        await self._some.wait()
        return Uplink(list(self._results.values())[:_BATCH], self._events[:_BATCH])

    def done(self, sent: Uplink) -> None:
        """Forget what has been acknowledged."""
        for result in sent.results:
            if self._results.get(result.command_id) is result:
                del self._results[result.command_id]
        del self._events[: len(sent.events)]
        if not self._results and not self._events:
            self._some.clear()
