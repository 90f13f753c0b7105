"""`GET /allocation_candidates`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.api import Reply
from moorage.placement.candidates import Candidate, Query
from moorage.placement.columns import Columns
from moorage.placement.http.common import PlacementCall, reply
from moorage.placement.http.queries import candidates_request


async def list_candidates(call: PlacementCall) -> Reply:
    """Answer the ways to serve a request, and what the providers concerned have."""
    asked = candidates_request(call.query, call.version)
    async with call.app.database.read() as tx:
        await asked.check_names(tx)
    await call.app.follower.catch_up()
    found = call.app.candidates(asked.query, asked.limit)
    columns = call.app.index.columns
    body = {
        "allocation_requests": [_render(call, candidate) for candidate in found],
        "provider_summaries": _summaries(call, columns, asked.query, found),
    }
    return reply(call, body)


def _render(call: PlacementCall, candidate: Candidate) -> dict[str, Any]:
    if call.version < (1, 12):
        return {
            "allocations": [
                {"resource_provider": {"uuid": provider}, "resources": amounts}
                for provider, amounts in candidate.allocations.items()
            ]
        }
    body: dict[str, Any] = {
        "allocations": {
            provider: {"resources": amounts} for provider, amounts in candidate.allocations.items()
        }
    }
    if call.version >= (1, 34):
        body["mappings"] = candidate.mappings
    return body


def _summaries(
    call: PlacementCall, columns: Columns, query: Query, found: Iterable[Candidate]
) -> dict[str, Any]:
    rows = {columns.row_of[provider] for candidate in found for provider in candidate.allocations}
    if call.version >= (1, 29):
        trees = {int(columns.tree[row]) for row in rows}
        trees |= {int(columns.tree[columns.row_of[candidate.root]]) for candidate in found}
        rows = {row for tree in trees for row in columns.tree_rows(tree)}
    asked = {name for group in query.groups for name in group.resources}
    wanted = [name for name in columns.classes if call.version >= (1, 27) or name in asked]
    return {columns.ids[row]: _summary(call, columns, row, wanted) for row in sorted(rows)}


def _summary(call: PlacementCall, columns: Columns, row: int, wanted: list[str]) -> dict[str, Any]:
    provider = columns.ids[row]
    resources = {}
    for name in wanted:
        at = columns.position.get((provider, name))
        if at is not None:
            column = columns.classes[name]
            resources[name] = {"capacity": int(column.capacity[at]), "used": int(column.used[at])}
    body: dict[str, Any] = {"resources": resources}
    if call.version >= (1, 17):
        body["traits"] = columns.traits[row]
    if call.version >= (1, 29):
        parent = int(columns.parent[row])
        body["parent_provider_uuid"] = columns.ids[parent] if parent >= 0 else None
        body["root_provider_uuid"] = columns.ids[int(columns.first[columns.tree[row]])]
    return body
