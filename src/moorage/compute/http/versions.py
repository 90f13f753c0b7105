"""The version documents: what this API is and which microversions it has."""

from typing import Any

from moorage.api.versions import VersionScheme, text
from moorage.compute.http.values import ComputeCall, bookmark

SCHEME = VersionScheme(
    service="compute", minimum=(2, 1), maximum=(2, 96), legacy="X-OpenStack-Nova-API-Version"
)
_UPDATED = "2013-07-23T11:33:21Z"


def _v21(call: ComputeCall) -> dict[str, Any]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": text(SCHEME.maximum),
        "min_version": text(SCHEME.minimum),
        "updated": _UPDATED,
        "links": [{"rel": "self", "href": bookmark(call, "/v2.1/")}],
    }


async def versions(call: ComputeCall) -> dict[str, Any]:
    """GET / of the host: every version of the API."""
    return {"versions": [_v21(call)]}


async def version(call: ComputeCall) -> dict[str, Any]:
    """GET /v2.1/."""
    media = [{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}]
    return {"version": {**_v21(call), "media-types": media}}
