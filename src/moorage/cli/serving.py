"""Being a program that serves until it is told to stop.

SIGINT and SIGTERM are heeded from the first moment on: a start that hangs, or takes long, is undone like a cloud that
runs. Whoever asks twice is not served faster: what stops in order is not disturbed.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import uvloop

Served = TypeVar("Served")
_TOLD = (signal.SIGINT, signal.SIGTERM)


def serve(
    context: AbstractAsyncContextManager[Served],
    ready: Callable[[Served], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Enter ``context``, call ``ready`` with what it gives, stay until SIGINT or SIGTERM, and leave it.

    A signal that comes while it is entered cancels that. ``stopping`` is called at once when a signal comes.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_told(context, ready, stopping))


async def _until_told(
    context: AbstractAsyncContextManager[Any], ready: Callable[[Any], None], stopping: Callable[[], None]
) -> None:
    told, entered = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        async with context as what:
            entered.set()
            if not told.is_set():
                ready(what)
            await told.wait()

    def tell() -> None:
        if told.is_set():
            return
        told.set()
        stopping()
        if not entered.is_set():
            staying.cancel()

    staying = asyncio.create_task(stay())
    loop = asyncio.get_running_loop()
    for number in _TOLD:
        loop.add_signal_handler(number, tell)
    with contextlib.suppress(asyncio.CancelledError):
        await staying
    # All has ended; another signal on the way out must not make it look as if it had not.
    for number in _TOLD:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
