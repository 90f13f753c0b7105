"""Requests as Prometheus counts them. Labels come from the tables of endpoints, never from what clients send."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from moorage.api.limits import Passage

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class RequestMetrics:
    """Counter and histogram of answered requests, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "moorage_requests",
            "Requests answered.",
            ("api", "method", "endpoint", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "moorage_request_duration_seconds",
            "Time from a request's headers to the end of its answer.",
            ("api", "method", "endpoint"),
            buckets=_BUCKETS,
            registry=registry,
        )
        # Looking a child up by its labels costs more than counting.
        self._counters: dict[tuple[str, str, str, int], Counter] = {}
        self._histograms: dict[tuple[str, str, str], Histogram] = {}

    def answered(self, passage: Passage, method: str, seconds: float) -> None:
        """Count one request. One that no API took (an image for a host) is not counted."""
        if not passage.api or not passage.status:
            return
        if method not in _METHODS:
            method = "other"
        key = (passage.api, method, passage.route)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = self._seconds.labels(*key)
        counter = self._counters.get((*key, passage.status))
        if counter is None:
            counter = self._counters[*key, passage.status] = self._requests.labels(*key, str(passage.status))
        histogram.observe(seconds)
        counter.inc()
