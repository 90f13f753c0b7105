"""Every endpoint that a running cloud serves, found by walking its applications, however they are wrapped."""

from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.routing import Route

from moorage.api import Api, Endpoint
from moorage.api.versions import Version, text
from moorage.server import front, metrics
from moorage.server.cloud import Cloud


class Row(msgspec.Struct, frozen=True):
    """One endpoint where it is served. ``port``: which listener of the cloud; ``api``: the name in reports."""

    port: str
    api: str
    prefix: str
    endpoint: Endpoint
    version: Version | None

    @property
    def path(self) -> str:
        """The whole path, with parameters as in the table."""
        return self.prefix + self.endpoint.path

    @property
    def name(self) -> str:
        """What nothing else is called: API, method, path, action and versions."""
        first, last = self.endpoint.versions
        words = [self.api, self.endpoint.method, self.path]
        if self.endpoint.action:
            words.append(f"[{self.endpoint.action}]")
        if self.version is not None and (first, last) != ((0, 0), None):
            words.append(f"({text(first) if first != (0, 0) else ''}-{text(last) if last else ''})")
        return " ".join(words)

    @property
    def headers(self) -> dict[str, str]:
        """Those that ask for the newest version that has this row."""
        return {"OpenStack-API-Version": f"{self.port} {text(self.version)}"} if self.version else {}


def rows_of(cloud: Cloud) -> list[Row]:
    """Every endpoint, in the order of the tables; what stands before every port is shown once."""
    first = next(iter(cloud.apps))
    found = [Row(first, "service", "", endpoint, None) for endpoint in front.ENDPOINTS]
    for port, app in cloud.apps.items():
        for api in _walk(app, set()):
            found += [_row(port, api, endpoint) for endpoint in _endpoints(api)]
    return found


def app_of(cloud: Cloud, row: Row) -> Any:
    """The application that serves a row, as it is served."""
    return cloud.front(cloud.apps[row.port])


def _row(port: str, api: Any, endpoint: Endpoint) -> Row:
    if isinstance(api, metrics.MetricsApp):
        return Row(port, "service", "", endpoint, None)
    if isinstance(api, Route):
        return Row(port, "agent", "", endpoint, None)
    newest = None
    if api.versions is not None:
        newest = min(endpoint.versions[1] or api.versions.maximum, api.versions.maximum)
    return Row(port, api.name, api.prefix, endpoint, newest)


def _endpoints(api: Any) -> list[Endpoint]:
    if isinstance(api, Route):
        return [
            Endpoint(method, api.path, api.endpoint)
            for method in sorted(api.methods or ())
            if method != "HEAD"
        ]
    if isinstance(api, metrics.MetricsApp):
        return list(metrics.ENDPOINTS)
    return list(api.router.endpoints)


def _walk(app: Any, seen: set[int]) -> Iterator[Any]:
    """The Apis, Routes and metrics inside: what wraps them holds them in an attribute, a list or a dictionary."""
    if id(app) in seen:
        return
    seen.add(id(app))
    if isinstance(app, Api | Route | metrics.MetricsApp):
        yield app
    elif isinstance(app, dict):
        for each in app.values():
            yield from _walk(each, seen)
    elif isinstance(app, list | tuple):
        for each in app:
            yield from _walk(each, seen)
    elif callable(app) and hasattr(app, "__dict__"):
        for each in vars(app).values():
            yield from _walk(each, seen)
