"""Why hosts fail a check: the answer in words and figures, for one of them and for many at once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
"""Of hosts in a table; in a function that gives reasons at least one."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Why one host fails one check.

    `reason` is a stable word for programs, `subject` what the check was about (a resource class, a
    network, a zone). `needed` and `available` are set where the check compares figures. `short` is the
    phrase that a summary puts after a count of hosts; `private` text is for administrators only.
    """

    reason: str
    short: str
    subject: str | None = None
    needed: int | None = None
    available: int | None = None
    private: str | None = None


Reasons = Iterator[tuple[Finding, int]]
"""A finding for each reason that some hosts have, of the one that is nearest to passing, and how many have it.

Of one host it has its finding alone.
"""
