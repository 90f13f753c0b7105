"""What stands before every application at its port: health documents for load balancers, and the count of requests.

GET /healthcheck        200 OK, or 503 where this process should be given no requests (upstream's convention)
GET /healthcheck/live   200 OK as long as the process answers

Both are open to everybody and say nothing more; the reasons are in /moorage/v1/health, for administrators.
"""

import time
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send

from moorage.api.endpoint import Endpoint
from moorage.api.limits import passage_of
from moorage.api.metrics import RequestMetrics
from moorage.server.health import Health

READY, LIVE = "/healthcheck", "/healthcheck/live"


class Front:
    """An ASGI application around another."""

    def __init__(self, app: Any, health: Health, metrics: RequestMetrics) -> None:
        self._app = app
        self._health = health
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["path"] in (READY, LIVE):
            await self._answer(scope, send)
            return
        began = time.perf_counter()
        await self._app(scope, receive, send)
        if scope["type"] == "http":
            self._metrics.answered(passage_of(scope), scope["method"], time.perf_counter() - began)

    async def ready(self) -> bool:
        """OK, or 503 where this process should be given no requests."""
        return (await self._health.report()).ready

    async def live(self) -> bool:
        """OK as long as the process answers."""
        return True

    async def _answer(self, scope: Scope, send: Send) -> None:
        status = HTTPStatus.OK
        if scope["method"] not in ("GET", "HEAD"):
            status = HTTPStatus.METHOD_NOT_ALLOWED
        elif not await (self.ready() if scope["path"] == READY else self.live()):
            status = HTTPStatus.SERVICE_UNAVAILABLE
        text = b"OK" if status is HTTPStatus.OK else status.phrase.encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            (b"cache-control", b"no-store"),
        ]
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append((b"retry-after", b"5"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})


ENDPOINTS = (
    Endpoint("GET", READY, Front.ready, statuses=(503,), response=str, produces="text/plain"),
    Endpoint("GET", LIVE, Front.live, response=str, produces="text/plain"),
)
"""What it adds to every port, for the documents."""
