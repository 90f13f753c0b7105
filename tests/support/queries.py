"""Queries of allocation candidates as a client writes them, and as the API reads them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from urllib.parse import quote, urlencode

from moorage.api import Version
from moorage.api.decode import decode_query
from moorage.api.limits import query_pairs
from moorage.placement.http.common import LATEST
from moorage.placement.http.queries import CandidatesRequest, candidates_request
from moorage.placement.http.routes import ENDPOINTS
from moorage.placement.query import Query, RequestGroup

BEFORE_NESTED: Version = (1, 28)


def read(text: str, version: Version) -> CandidatesRequest:
    """The query of a request, by the API's own code."""
    (row,) = (row for row in ENDPOINTS if row.path == "/allocation_candidates" and row.offers(version))
    return candidates_request(decode_query(row, query_pairs(text.encode("ascii"), 1000), version), version)


def through_http(rng: Random, query: Query, limit: int | None = None) -> Query:
    """Write a query, read it, and see that what is read is what was meant."""
    version = LATEST if query.nested else BEFORE_NESTED
    text = written(rng, query, limit)
    asked = read(text, version)
    assert asked.query == query, text
    assert asked.limit == limit, text
    return asked.query


def written(rng: Random, query: Query, limit: int | None = None) -> str:
    """One of the ways to write a query."""
    parameters: dict[str, list[str]] = {}
    for group in query.groups:
        parameters |= {
            name + group.suffix: values for name, values in _group(rng, group, nested=query.nested)
        }
    parameters["same_subtree"] = [",".join(_shuffled(rng, suffixes)) for suffixes in query.same_subtree]
    root = [*query.root_required, *(f"!{name}" for name in query.root_forbidden)]
    parameters["root_required"] = [",".join(_shuffled(rng, root))] if root else []
    several = sum(1 for group in query.groups if group.suffix) > 1
    if query.isolate or several or rng.random() < 0.5:
        parameters["group_policy"] = ["isolate" if query.isolate else "none"]
    parameters["limit"] = [] if limit is None else [str(limit)]
    names = _shuffled(rng, parameters)
    pairs = [(name, value) for name in names for value in parameters[name]]
    return urlencode(pairs, safe=rng.choice(["", ":,!"]), quote_via=quote)


def _group(rng: Random, group: RequestGroup, *, nested: bool) -> Iterable[tuple[str, list[str]]]:
    if group.resources:
        yield "resources", [",".join(f"{name}:{amount}" for name, amount in group.resources.items())]
    yield "required", list(_traits(rng, group, nested=nested))
    yield "member_of", _aggregates(rng, group)
    yield "in_tree", [] if group.in_tree is None else [group.in_tree]


def _traits(rng: Random, group: RequestGroup, *, nested: bool) -> Iterable[str]:
    """Traits that must be there keep their order; those that must not stand anywhere between them."""

    def either(names: frozenset[str]) -> str:
        prefix = "in:" if len(names) > 1 or (nested and rng.random() < 0.2) else ""
        return prefix + ",".join(_shuffled(rng, names))

    words = [either(names) for names in group.required]
    for name in sorted(group.forbidden):
        words.insert(rng.randint(0, len(words)), f"!{name}")
    line: list[str] = []
    for word in words:
        # `in:` is the whole of a parameter, and repeated parameters came with it.
        apart = any(one.startswith("in:") for one in (word, *line))
        if line and nested and (apart or rng.random() < 0.5):
            yield ",".join(line)
            line = []
        line.append(word)
    if line:
        yield ",".join(line)


def _aggregates(rng: Random, group: RequestGroup) -> list[str]:
    def either(names: Iterable[str]) -> str:
        words = _shuffled(rng, names)
        return ("in:" if len(words) > 1 or rng.random() < 0.3 else "") + ",".join(words)

    found = [either(names) for names in group.member_of]
    unwanted = sorted(group.not_member_of)
    for names in [unwanted] if unwanted and rng.random() < 0.5 else [[name] for name in unwanted]:
        found.insert(rng.randint(0, len(found)), f"!{either(names)}")
    return found


def _shuffled(rng: Random, values: Iterable[str]) -> list[str]:
    found = sorted(values)
    rng.shuffle(found)
    return found
