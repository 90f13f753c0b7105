"""The OpenAPI documents of a control plane's APIs, by name; served at `/moorage/v1/openapi/NAME`, kept in `docs/openapi`."""

from functools import cache
from typing import Any

from moorage.agentlink.http import routes as agents
from moorage.api.openapi import Face, document
from moorage.compute.http import routes as compute
from moorage.compute.http.control import CONTROL_ENDPOINTS as OF_COMPUTE
from moorage.compute.http.versions import SCHEME
from moorage.core.errors import NotFound
from moorage.network.http import routes as network
from moorage.operations.http import routes as operations
from moorage.placement.http import routes as placement
from moorage.placement.http.explain import CONTROL_ENDPOINTS as OF_PLACEMENT
from moorage.server import control, front, images, metrics

FACES: dict[str, Face] = {
    "compute": Face(
        title="Compute",
        endpoints=compute.ENDPOINTS,
        style="compute",
        versions=SCHEME,
        prefix=compute.PREFIX,
        root=compute.ROOT,
    ),
    "placement": Face(
        title="Placement", endpoints=placement.ENDPOINTS, style="placement", versions=placement.VERSIONS
    ),
    "network": Face(title="Networking", endpoints=network.ENDPOINTS, style="network"),
    "control": Face(
        title="Control",
        endpoints=(*control.ENDPOINTS, *OF_COMPUTE, *OF_PLACEMENT, *operations.ENDPOINTS),
        style="control",
        prefix=control.PREFIX,
    ),
    "agent": Face(
        title="Agents",
        endpoints=(*agents.ENDPOINTS, images.ENDPOINT),
        style="control",
        prefix=agents.PREFIX,
        hosts=True,
    ),
    "service": Face(title="Service", endpoints=(*front.ENDPOINTS, *metrics.ENDPOINTS), style="text"),
}


@cache
def openapi(name: str) -> dict[str, Any]:
    """The document of an API, made once; raises NotFound."""
    if name not in FACES:
        raise NotFound(f"there is no API {name[:32]}; there are {', '.join(FACES)}")
    return document(FACES[name])
