"""Durations as Prometheus counts them: one form of histogram for requests, steps, answers of hosts and operations."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

_SERIES = tuple(digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5))


class Durations:
    """A histogram of seconds by labels. Its buckets are 1, 2, 5, 10, ... from ``shortest`` to ``longest``."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        text: str,
        labels: Sequence[str],
        *,
        shortest: float = 0.001,
        longest: float = 10.0,
    ) -> None:
        buckets = [round(each, 3) for each in _SERIES if shortest <= round(each, 3) <= longest]
        self._histogram = Histogram(name, text, labels, buckets=buckets, registry=registry)
        # Looking a child up by its labels costs more than counting.
        self._children: dict[tuple[str, ...], Histogram] = {}

    def of(self, *labels: str) -> Histogram:
        """The one of these labels; it is shown from the first call on, with nothing in it."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._histogram.labels(*labels)
        return child
