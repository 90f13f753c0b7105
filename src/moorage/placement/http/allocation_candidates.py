"""`GET /allocation_candidates`.

An answer of a thousand candidates is megabytes, most of them summaries of providers. They are put together from
pieces of JSON: each candidate's, kept with it, and each tree's, kept by the index until the tree changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api import Reply, Version
from moorage.placement.columns import Columns
from moorage.placement.http.common import PlacementCall, index_age, max_age, reply
from moorage.placement.http.queries import candidates_request
from moorage.placement.index import Index
from moorage.placement.query import Candidate, Query

_encode = msgspec.json.Encoder().encode


async def list_candidates(call: PlacementCall) -> Reply:
    """Answer the ways to serve a request, and what the providers concerned have."""
    asked = candidates_request(call.query, call.version)
    await call.app.follower.catch_up(max_age(call))
    await call.app.require_names(asked.classes, asked.traits)
    found = call.app.candidates(asked.query, asked.limit)
    age = index_age(call)
    requests = b",".join(_request(call.version, candidate) for candidate in found)
    summaries = b",".join(_summaries(call, asked.query, found))
    answer = reply(call, b'{"allocation_requests":[%b],"provider_summaries":{%b}}' % (requests, summaries))
    answer.headers.update(age)
    return answer


def _request(version: Version, candidate: Candidate) -> bytes:
    form = (version >= (1, 12), version >= (1, 34))
    found = candidate.rendered.get(form)
    if found is None:
        found = candidate.rendered[form] = _encode(_render(candidate, *form))
    return found


def _render(candidate: Candidate, keyed: bool, mapped: bool) -> dict[str, Any]:
    given = candidate.allocations.items()
    if not keyed:
        return {
            "allocations": [
                {"resource_provider": {"uuid": provider}, "resources": amounts} for provider, amounts in given
            ]
        }
    body: dict[str, Any] = {"allocations": {provider: {"resources": amounts} for provider, amounts in given}}
    if mapped:
        body["mappings"] = candidate.mappings
    return body


def _summaries(call: PlacementCall, query: Query, found: Iterable[Candidate]) -> Iterator[bytes]:
    """Yield members of the object of summaries: from 1.29 on those of whole trees."""
    index = call.app.index
    columns = index.columns
    if call.version >= (1, 29):
        yield from (_tree(index, columns, tree) for tree in _trees(columns, found))
        return
    rows = {columns.row_of[provider] for candidate in found for provider in candidate.allocations}
    asked = None
    if call.version < (1, 27):
        asked = frozenset(name for group in query.groups for name in group.resources)
    for row in sorted(rows):
        summary: dict[str, Any] = {"resources": _resources(columns, row, asked)}
        if call.version >= (1, 17):
            summary["traits"] = _traits(columns, row)
        yield _member(columns.ids[row], summary)


def _trees(columns: Columns, found: Iterable[Candidate]) -> list[int]:
    """Return the trees of all candidates, those of sharing providers included."""
    providers = {candidate.root for candidate in found}
    if columns.sharing:
        providers.update(provider for candidate in found for provider in candidate.allocations)
    return list(dict.fromkeys(int(columns.tree[columns.row_of[provider]]) for provider in sorted(providers)))


def _tree(index: Index, columns: Columns, tree: int) -> bytes:
    found = index.fragment(tree)
    if found is None:
        root = columns.ids[int(columns.first[tree])]
        found = b",".join(_nested(columns, row, root) for row in columns.tree_rows(tree))
        index.keep_fragment(tree, found)
    return found


def _nested(columns: Columns, row: int, root: str) -> bytes:
    parent = int(columns.parent[row])
    summary = {
        "resources": _resources(columns, row, None),
        "traits": _traits(columns, row),
        "parent_provider_uuid": columns.ids[parent] if parent >= 0 else None,
        "root_provider_uuid": root,
    }
    return _member(columns.ids[row], summary)


def _member(provider: str, summary: dict[str, Any]) -> bytes:
    return b'"%b":%b' % (provider.encode(), _encode(summary))


def _resources(columns: Columns, row: int, asked: frozenset[str] | None) -> dict[str, dict[str, int]]:
    found = {}
    for name, column in columns.classes.items():
        entry = int(column.at[row])
        if entry >= 0 and (asked is None or name in asked):
            found[name] = {"capacity": int(column.capacity[entry]), "used": int(column.used[entry])}
    return found


def _traits(columns: Columns, row: int) -> list[str]:
    # Standard traits first, as upstream lists them.
    return sorted(columns.traits_of(row), key=lambda name: (name.startswith("CUSTOM_"), name))
