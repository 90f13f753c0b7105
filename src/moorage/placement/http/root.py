"""`GET /`: which versions there are. Open to all."""

from __future__ import annotations

from moorage.api import Reply
from moorage.placement.http.common import FIRST, LATEST, PlacementCall, reply


async def versions(call: PlacementCall) -> Reply:
    """Answer the version document."""
    document = {
        "versions": [
            {
                "id": "v1.0",
                "status": "CURRENT",
                "min_version": f"{FIRST[0]}.{FIRST[1]}",
                "max_version": f"{LATEST[0]}.{LATEST[1]}",
                "links": [{"rel": "self", "href": ""}],
            }
        ]
    }
    return reply(call, document)
