"""Placement's part of the control API; its prefix is /moorage/v1.

Both take the query of `GET /allocation_candidates` at its newest version, and its header on the index's age; both answer
how old the index was.

GET /placement/explain    for each root that gives no candidate, what it fails on; `limit` roots one by one (100), first
                          the one of `in_tree`
GET /placement/capacity   how many more of this shape fit now, in all and for each aggregate
"""

from __future__ import annotations

from moorage.api import Endpoint, Reply, names
from moorage.placement.capacity import Capacity
from moorage.placement.explain import Explanation
from moorage.placement.http.common import INDEX_ASKED, INDEX_TOLD, LATEST, PlacementCall, index_age, max_age
from moorage.placement.http.queries import CANDIDATES, CandidatesRequest, candidates_request

CONTROL_POLICIES: dict[str, str] = {
    "moorage:placement:explain": "role:admin",
    "moorage:placement:capacity": "role:admin",
}
QUERY = names(*CANDIDATES.names)
ROOTS = 100
MOST_ROOTS = 10_000


async def explain(call: PlacementCall) -> Reply:
    """Say why roots give no candidate."""
    asked = await _asked(call)
    found = call.app.explain(asked.query, min(asked.limit or ROOTS, MOST_ROOTS))
    return Reply(found, headers=index_age(call))


async def capacity(call: PlacementCall) -> Reply:
    """Count how many more fit."""
    found = call.app.capacity((await _asked(call)).query)
    return Reply(found, headers=index_age(call))


async def _asked(call: PlacementCall) -> CandidatesRequest:
    asked = candidates_request(call.query, LATEST)
    await call.app.follower.catch_up(max_age(call))
    await call.app.require_names(asked.classes, asked.traits)
    return asked


# fmt: off
CONTROL_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/placement/explain", explain, "moorage:placement:explain", query=QUERY, response=Explanation,
             headers=INDEX_ASKED, tells=INDEX_TOLD),
    Endpoint("GET", "/placement/capacity", capacity, "moorage:placement:capacity", query=QUERY, response=Capacity,
             headers=INDEX_ASKED, tells=INDEX_TOLD),
)
