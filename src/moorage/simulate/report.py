"""What a run came to: how many were accepted, why the others were not, how full it got, how long deciding took."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from moorage.simulate.engine import Simulation
from moorage.simulate.model import Arrival, Outcome


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """After one decision: the time, how many were accepted and refused so far, the used part of each class."""

    at: float
    accepted: int
    refused: int
    used: dict[str, float]


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """One resource class: amounts, and the used part (0 to 1) at three moments."""

    capacity: int
    used: int
    at_end: float
    at_peak: float
    at_first_refusal: float | None = None


class Milliseconds(msgspec.Struct, frozen=True):
    """Times of decisions."""

    p50: float
    p90: float
    p99: float
    most: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run in figures. `refused_with_room`: refused though all hosts together had enough of everything."""

    requests: int
    accepted: int
    refused: int
    refused_with_room: int
    first_refusal: int | None
    """The number of the arrival, from 1."""
    reasons: dict[str, int]
    """Refused arrivals by the reason that most hosts gave."""
    refused_by_policy: dict[str, int]
    packing: dict[str, Packing]
    decision_ms: Milliseconds
    samples: list[Sample]
    refusals: list[Outcome]


class Recorder:
    """Listens to a run; `report` sums it up."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.samples: list[Sample] = []
        self._seconds: list[float] = []
        self._refusals: list[Outcome] = []
        self._policies: Counter[str] = Counter()
        self._first: int | None = None

    def note(self, arrival: Arrival, outcome: Outcome) -> None:
        """Note one decision, in the state after it."""
        self._seconds.append(outcome.seconds)
        if outcome.host is None:
            self._refusals.append(outcome)
            self._policies[arrival.policy or "none"] += 1
            if self._first is None:
                self._first = len(self._seconds)
        refused = len(self._refusals)
        self.samples.append(Sample(outcome.at, len(self._seconds) - refused, refused, self._used()))

    def report(self) -> Report:
        """Raises ValueError when nothing was noted."""
        if not self._seconds:
            raise ValueError("nothing was asked for: there is nothing to report")
        refused = len(self._refusals)
        reasons = Counter(outcome.main or "" for outcome in self._refusals)
        return Report(
            requests=len(self._seconds),
            accepted=len(self._seconds) - refused,
            refused=refused,
            refused_with_room=sum(outcome.room for outcome in self._refusals),
            first_refusal=self._first,
            reasons=dict(reasons.most_common()),
            refused_by_policy=dict(self._policies.most_common()),
            packing={name: self._packing(name) for name in sorted(self._simulation.capacity)},
            decision_ms=_milliseconds(self._seconds),
            samples=self.samples,
            refusals=self._refusals,
        )

    def _used(self) -> dict[str, float]:
        s = self._simulation
        return {name: round(s.used[name] / have, 4) if have else 0.0 for name, have in s.capacity.items()}

    def _packing(self, name: str) -> Packing:
        parts = [sample.used[name] for sample in self.samples]
        return Packing(
            capacity=self._simulation.capacity[name],
            used=self._simulation.used[name],
            at_end=parts[-1],
            at_peak=max(parts),
            at_first_refusal=None if self._first is None else parts[self._first - 1],
        )


def _milliseconds(seconds: list[float]) -> Milliseconds:
    p50, p90, p99, most = np.percentile(np.array(seconds) * 1000, (50, 90, 99, 100)).round(3).tolist()
    return Milliseconds(p50, p90, p99, most)
