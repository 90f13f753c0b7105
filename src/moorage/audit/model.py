"""Invariants and what an audit finds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

Thing = Mapping[str, Any]
"""One row that an invariant looks at: ``subject`` and the columns its sentence speaks of."""
Judge = Callable[[Sequence[Thing]], Iterable[tuple[Thing, str]]]
"""A pure comparison: all things in, those that break the invariant out, each with what is wrong."""


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """Something that always holds.

    ``things`` is a SELECT with one row for each thing that is looked at, with a column ``subject``. Where SQL can
    tell, it has a boolean column ``broken``, and ``message`` is a template over the row's columns. Where it cannot
    (addresses kept as text), ``judge`` tells. ``run.PREAMBLE`` has the views that every SELECT may use.
    """

    name: str
    sentence: str
    things: str
    message: str = ""
    judge: Judge | None = None


class Finding(msgspec.Struct, frozen=True):
    """One thing that breaks an invariant. ``details`` are the row's columns."""

    invariant: str
    subject: str
    message: str
    details: dict[str, Any] = {}


class Report(msgspec.Struct, frozen=True):
    """``checked``: how many things each invariant looked at, in the order they are printed."""

    findings: tuple[Finding, ...]
    checked: dict[str, int]

    @property
    def clean(self) -> bool:
        """Whether everything holds."""
        return not self.findings
