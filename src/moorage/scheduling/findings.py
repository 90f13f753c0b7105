"""Why a host fails a check: the answer for one host, in words and figures."""

from __future__ import annotations

import msgspec


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
