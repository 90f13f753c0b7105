"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import Any

#: Seconds for what comes in a moment, on a machine that has much else to do; guests are emulated too.
PATIENCE = 240.0


def until(question: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first true answer; an AssertionError that says ``what`` was waited for where none comes in time."""
    limit = time.monotonic() + patience
    while not (answer := question()):
        assert time.monotonic() < limit, f"not within {patience:g} s: {what}"
        time.sleep(0.05)
    return answer
