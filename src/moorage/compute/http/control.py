"""Compute's part of the control API; its prefix is /moorage/v1."""

from moorage.api.endpoint import NO_QUERY, Endpoint
from moorage.compute.http import placement

CONTROL_POLICIES: dict[str, str] = {
    "moorage:placement:show": "rule:project_reader",
    "moorage:placement:full": "rule:admin_api",
}

CONTROL_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/servers/{server_id}/placement",
        placement.show,
        "moorage:placement:show",
        query=NO_QUERY,
        response=placement.ServerPlacement,
    ),
)
