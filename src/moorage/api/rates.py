"""How often a project may ask: a token bucket for each, so that a noisy one cannot starve the others.

The buckets are this process's own: behind a load balancer a project has them once in each process. A request takes its
token once its credential is known, before it costs anything more.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from moorage.api.auth import Authenticator, Credentials
from moorage.api.context import RequestContext
from moorage.core.errors import TooManyRequests


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second, and how many may come at once; callers with one of ``exempt_roles`` are not counted."""

    requests: float
    burst: int
    exempt_roles: frozenset[str] = frozenset()


class ProjectRates:
    """The buckets of at most ``size`` projects; the one that asked longest ago is forgotten first.

    ``clock`` gives seconds.
    """

    def __init__(
        self, rate: Rate, *, size: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._size = size
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, context: RequestContext) -> None:
        """Count one request; raises TooManyRequests with the seconds until the next one is served."""
        rate = self._rate
        if not rate.exempt_roles.isdisjoint(context.roles):
            return
        key = context.project_id or f"user {context.user_id}"
        now = self._clock()
        left, since = self._buckets.get(key, (float(rate.burst), now))
        left = min(rate.burst, left + (now - since) * rate.requests)
        granted = left >= 1
        self._buckets[key] = (left - 1 if granted else left, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        if not granted:
            raise TooManyRequests(
                f"This project may send {rate.requests:g} requests a second, {rate.burst} at once; slow down.",
                retry_after=max(1, math.ceil((1 - left) / rate.requests)),
            )


def rated(authenticate: Authenticator, rates: ProjectRates) -> Authenticator:
    """An authenticator that counts what it lets in."""

    async def check(credentials: Credentials, request_id: str) -> RequestContext:
        context = await authenticate(credentials, request_id)
        rates.take(context)
        return context

    return check
