"""Ordering the hosts that pass.

A weigher gives each host a figure; the figures are scaled to 0..1 over the hosts that pass, multiplied
by the weigher's weight and summed. Equal sums are broken by a random order drawn from the seed: the same
seed, request and table give the same ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from moorage.scheduling.hosts import HostTable

Scores = NDArray[np.float64]


class FreeResource(msgspec.Struct, frozen=True):
    """Prefers hosts with much of a resource left (a negative weight packs instead of spreading).

    Claims under way count as if they had succeeded, so that servers that start together spread too.
    """

    resource_class: str
    weight: float = 1.0

    def score(self, hosts: HostTable, chosen: NDArray[np.intp]) -> Scores:
        """Return the free amounts of the chosen hosts."""
        column = hosts.resource(self.resource_class)
        return (column.free[chosen] - column.expected[chosen]).astype(np.float64)


DEFAULT_WEIGHERS = (FreeResource("MEMORY_MB"), FreeResource("VCPU"))


def rank(
    hosts: HostTable,
    passing: NDArray[np.bool_],
    seed: int,
    weighers: Sequence[FreeResource],
    drawn: Mapping[str, float],
) -> tuple[NDArray[np.intp], Scores]:
    """Return the positions of the passing hosts, best first, and their scores in that order.

    `drawn` adds to the scores of single hosts (see `Request`).
    """
    chosen = np.flatnonzero(passing)
    total = np.zeros(len(chosen))
    for weigher in weighers:
        if len(chosen):
            total += weigher.weight * _scaled(weigher.score(hosts, chosen))
    for name, amount in drawn.items():
        total += amount * hosts.among((name,))[chosen]
    order = np.lexsort((_shuffled(len(chosen), seed), -total))
    return chosen[order], total[order]


def _shuffled(count: int, seed: int) -> NDArray[np.uint64]:
    """Return random keys: splitmix64 of position and seed, the same with every version of numpy."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        seed & (2**64 - 1)
    )
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _scaled(scores: Scores) -> Scores:
    low, high = scores.min(), scores.max()
    return np.zeros(len(scores)) if high == low else (scores - low) / (high - low)
