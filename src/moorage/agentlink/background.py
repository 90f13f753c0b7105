"""Ending background tasks for certain."""

import asyncio
from typing import Any


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait for them.

    One ``cancel`` is not always enough: before Python 3.12 ``asyncio.wait_for`` drops a cancellation that
    arrives together with the result it waits for.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.5)
