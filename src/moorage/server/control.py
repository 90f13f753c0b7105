"""The control API under /moorage/v1: what OpenStack's APIs have no place for.

GET  /moorage/v1/servers/{server_id}/placement   why a server is where it is (compute's table)
     /moorage/v1/operations...                   long work (operations' table)
GET, POST /moorage/v1/hosts...                   hosts (``host_control``)
GET  /moorage/v1/placement/dump                  the cloud as `moorage simulate` reads it
GET  /moorage/v1/audit                           the invariants
GET  /moorage/v1/health                          what is wrong; load balancers ask /healthcheck (front.py)
GET  /moorage/v1/openapi/{api}                   the OpenAPI document of an API; open
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from moorage.api import Api, Call, Endpoint
from moorage.api.auth import Authenticator
from moorage.api.policy import Policies
from moorage.audit import audit
from moorage.compute.http.control import CONTROL_ENDPOINTS, CONTROL_POLICIES
from moorage.compute.service import ComputeService
from moorage.operations import OperationsService
from moorage.operations.http.routes import operations_api
from moorage.server.health import Health
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
    authenticate: Authenticator
    health: Health
    dump: Callable[[], Awaitable[World]]
    openapi: Callable[[str], Any]


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
    """The OpenAPI document of an API: compute, placement, network, agent, control."""
    return call.app.openapi(call.path["api"])


ENDPOINTS = (
    *HOST_ENDPOINTS,
    Endpoint("GET", "/placement/dump", dump_placement, ADMIN, response=World),
    Endpoint("GET", "/audit", run_audit, ADMIN),
    Endpoint("GET", "/health", health, ADMIN),
    Endpoint("GET", "/openapi/{api}", show_openapi),
)


class _Split:
    """The domains' parts of the control API are served over their services, the rest over the cloud."""

    def __init__(self, own: Api, parts: dict[str, Api]) -> None:
        self._own, self._parts = own, parts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        noun = scope["path"].removeprefix(f"{PREFIX}/").partition("/")[0]
        await self._parts.get(noun, self._own)(scope, receive, send)


def control_api(control: Control) -> Any:
    """The control API of a process."""
    own = Api(
        "control",
        control,
        ENDPOINTS,
        "control",
        None,
        policies=Policies({ADMIN: "role:admin"}, system=True),
        authenticate=control.authenticate,
        prefix=PREFIX,
    )
    compute = Api(
        "control",
        control.compute,
        CONTROL_ENDPOINTS,
        "control",
        None,
        policies=Policies(CONTROL_POLICIES, system=True),
        authenticate=control.authenticate,
        prefix=PREFIX,
    )
    operations = operations_api(control.operations, authenticate=control.authenticate, prefix=PREFIX)
    return _Split(own, {"servers": compute, "operations": operations})
