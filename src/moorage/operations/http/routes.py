"""The control API's table of operations; its prefix is /moorage/v1."""

from typing import Any

from moorage.api import NO_QUERY, Api, Endpoint
from moorage.api.answers import many, one
from moorage.api.auth import Authenticator
from moorage.api.policy import Policies
from moorage.operations.http import operations
from moorage.operations.listing import OperationView
from moorage.operations.service import OperationsService

LIST, SHOW, RESUME, ABANDON = (f"moorage:operations:{act}" for act in ("list", "show", "resume", "abandon"))
POLICIES: dict[str, str] = dict.fromkeys((LIST, SHOW, RESUME, ABANDON), "role:admin")

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/operations",
        operations.index,
        LIST,
        query=operations.OperationsQuery,
        response=many("operations", OperationView, "operations_links"),
    ),
    Endpoint(
        "GET",
        "/operations/{operation_id}",
        operations.show,
        SHOW,
        query=NO_QUERY,
        response=one("operation", operations.ShownOperation),
    ),
    Endpoint(
        "POST", "/operations/{operation_id}/resume", operations.resume, RESUME, query=NO_QUERY, status=202
    ),
    Endpoint(
        "POST",
        "/operations/{operation_id}/abandon",
        operations.abandon,
        ABANDON,
        query=NO_QUERY,
        response=one("operation", operations.AbandonedOperation),
    ),
)


def operations_api(service: OperationsService, *, authenticate: Authenticator, prefix: str) -> Any:
    """The application."""
    return Api(
        "control",
        service,
        ENDPOINTS,
        "control",
        None,
        policies=Policies(POLICIES, system=True),
        authenticate=authenticate,
        prefix=prefix,
    )
