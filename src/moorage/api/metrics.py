"""Requests as Prometheus counts them. Labels come from the tables of endpoints, never from what clients send."""

from prometheus_client import CollectorRegistry, Counter

from moorage.api.limits import Passage
from moorage.core.metrics import Durations

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """Counter and histogram of answered requests, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "moorage_requests",
            "Requests answered.",
            ("api", "method", "endpoint", "status"),
            registry=registry,
        )
        self._seconds = Durations(
            registry,
            "moorage_request_duration_seconds",
            "Time from a request's headers to the end of its answer.",
            ("api", "method", "endpoint"),
            shortest=0.002,
            longest=50.0,
        )
        self._counters: dict[tuple[str, str, str, int], Counter] = {}

    def answered(self, passage: Passage, method: str, seconds: float) -> None:
        """Count one request. One that no API took (an image for a host) is not counted."""
        if not passage.api or not passage.status:
            return
        if method not in _METHODS:
            method = "other"
        key = (passage.api, method, passage.route)
        counter = self._counters.get((*key, passage.status))
        if counter is None:
            counter = self._counters[*key, passage.status] = self._requests.labels(*key, str(passage.status))
        self._seconds.of(*key).observe(seconds)
        counter.inc()
