"""The control API under /moorage/v1: what OpenStack's APIs have no place for.

GET  /moorage/v1/servers/{server_id}/placement   why a server is where it is (compute's table)
     /moorage/v1/operations...                   long work (operations' table)
GET, POST /moorage/v1/hosts...                   hosts (``host_control``)
GET  /moorage/v1/placement/explain               why roots give no candidate (placement's table)
GET  /moorage/v1/placement/capacity              how many more of a shape fit (placement's table)
GET  /moorage/v1/placement/dump                  the cloud as `moorage simulate` reads it
GET  /moorage/v1/audit                           the invariants
GET  /moorage/v1/health                          what is wrong; load balancers ask /healthcheck (front.py)
GET  /moorage/v1/openapi/{api}                   the OpenAPI document of an API; open
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.api import NO_QUERY, Api, Call, Endpoint
from moorage.api.auth import Authenticator
from moorage.api.policy import Policies
from moorage.audit import audit
from moorage.audit.model import Finding
from moorage.compute.http import control as of_compute
from moorage.compute.service import ComputeService
from moorage.operations import OperationsService
from moorage.operations.http.routes import operations_api
from moorage.placement.http import explain as of_placement
from moorage.placement.service import PlacementService
from moorage.server.health import Health, Report
from moorage.server.host_control import ADMIN, HOST_ENDPOINTS, HostControl
from moorage.simulate.model import World
from moorage.store.database import Database

PREFIX = "/moorage/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What the handlers need. ``openapi``: the document of an API by its name."""

    database: Database
    hosts: HostControl
    compute: ComputeService
    operations: OperationsService
    placement: PlacementService
    authenticate: Authenticator
    health: Health
    dump: Callable[[], Awaitable[World]]
    openapi: Callable[[str], Any]


class AuditReport(msgspec.Struct):
    """``checked``: how many things each invariant looked at."""

    clean: bool
    checked: dict[str, int]
    findings: list[Finding]


async def dump_placement(call: Call[Control]) -> Any:
    """Hosts, providers, inventories with what is used, and what each consumer holds."""
    return await call.app.dump()


async def run_audit(call: Call[Control]) -> Any:
    """Check every invariant."""
    report = await audit(call.app.database)
    return {"clean": not report.findings, "checked": report.checked, "findings": report.findings}


async def health(call: Call[Control]) -> Any:
    """Whether this process should be given requests, and why not."""
    return await call.app.health.report()


async def show_openapi(call: Call[Control]) -> Any:
    """The OpenAPI document of an API: compute, placement, network, control, agent, service."""
    return call.app.openapi(call.path["api"])


ENDPOINTS = (
    *HOST_ENDPOINTS,
    Endpoint("GET", "/placement/dump", dump_placement, ADMIN, query=NO_QUERY, response=World),
    Endpoint("GET", "/audit", run_audit, ADMIN, query=NO_QUERY, response=AuditReport),
    Endpoint("GET", "/health", health, ADMIN, query=NO_QUERY, response=Report),
    Endpoint("GET", "/openapi/{api}", show_openapi, query=NO_QUERY, response=dict[str, Any]),
)


class _Split:
    """The control API's parts by the beginning of the path: those of domains are served over their services."""

    def __init__(self, parts: dict[str, Api], own: Api) -> None:
        self._parts = tuple(parts.items())
        self._own = own

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix(PREFIX)
        app = next((part for beginning, part in self._parts if path.startswith(beginning)), self._own)
        await app(scope, receive, send)


def control_api(control: Control) -> Any:
    """The control API of a process."""

    def part(app: Any, endpoints: tuple[Endpoint, ...], policies: dict[str, str]) -> Api:
        return Api(
            "control",
            app,
            endpoints,
            "control",
            None,
            policies=Policies(policies, system=True),
            authenticate=control.authenticate,
            prefix=PREFIX,
        )

    placement = part(control.placement, of_placement.CONTROL_ENDPOINTS, of_placement.CONTROL_POLICIES)
    parts = {
        "/servers/": part(control.compute, of_compute.CONTROL_ENDPOINTS, of_compute.CONTROL_POLICIES),
        **{endpoint.path: placement for endpoint in of_placement.CONTROL_ENDPOINTS},
    }
    parts["/operations"] = operations_api(
        control.operations, authenticate=control.authenticate, prefix=PREFIX
    )
    return _Split(parts, part(control, ENDPOINTS, {ADMIN: "role:admin"}))
