"""Work in threads that does not outlive who asked for it: cancelling alone ends nobody's thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from moorage.core.errors import MoorageError
from moorage.core.log import get_logger

log = get_logger(__name__)
Found = TypeVar("Found")
_AGAIN = 0.1  # seconds


async def ended(work: Callable[[], Found], *, give_up: Callable[[], bool]) -> Found:
    """Run ``work`` in a thread; it has ended when this ends, so that it makes nothing that nobody would stop.

    Where this is cancelled, ``give_up`` is called again and again until the thread has ended, or it says True: then it
    may be left alone. It is to be quick.
    """
    outcome = _begun(work)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        while not outcome.done() and not give_up():
            await asyncio.wait({outcome}, timeout=_AGAIN)
        if outcome.done() and (error := outcome.exception()) is not None:
            log.info(
                "thread.given_up", reason=error.message if isinstance(error, MoorageError) else repr(error)
            )
        raise


async def abandonable(work: Callable[[], Found]) -> Found:
    """Run ``work`` in a thread that is left alone when this is cancelled, and ends with the process at the latest.

    For what waits for others and leaves nothing when it is cut off, as a transaction does.
    """
    return await _begun(work)


def _begun(work: Callable[[], Found]) -> asyncio.Future[Found]:
    """What ``work`` gives. Not a thread of the loop's own: the process would wait for that at its end."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Found] = loop.create_future()

    def tell(deliver: Callable[[], None]) -> None:
        if not outcome.done():
            deliver()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001  it is raised where it was asked for
            deliver = partial(outcome.set_exception, error)
        else:
            deliver = partial(outcome.set_result, found)
        # The loop is closed where nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, deliver)

    threading.Thread(target=run, daemon=True).start()
    return outcome
