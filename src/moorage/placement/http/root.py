"""`GET /`: which versions there are. Open to all."""

from __future__ import annotations

from typing import Any

from moorage.placement.http.common import FIRST, LATEST, PlacementCall


async def versions(_call: PlacementCall) -> dict[str, Any]:
    """Answer the version document."""
    return {
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
