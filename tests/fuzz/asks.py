"""Requests that no client should send: from the OpenAPI documents, and good requests with one value gone bad."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import schemathesis
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from moorage.api.endpoint import Query
from moorage.api.versions import text
from moorage.server.documents import FACES, openapi
from tests.api.requests import ask_of
from tests.support.faces import Row
from tests.support.world import MARK, World

# Values at the edges of what is stored, parsed or compared somewhere behind an API.
BAD: tuple[Any, ...] = (
    "", " ", "\0", "a\0b", "é\U0001f600", "x" * 300, "x" * 70_000, "-1", "0", "²", "1e9", "9" * 30, "9" * 5000,
    -1, 0, 1, 2**31 - 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**40, 0.5, 1e308, -0.0, True, False, None, [], {}, [None],
    "null", "None", "../../etc/passwd", "%00", "%s%n", "a\r\nX-Injected: 1", "' OR 1=1 --", "[", "(?P<", "*", "a,b", ",",
    "in:", "!", "!in:", ":", "VCPU:1,", "VCPU:99999999999999999999", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-23:59", "10.0.0.0/33", "::/0", "0.0.0.0", "fe80::1%eth0", "ip_address=\0",
    "00000000-0000-0000-0000-000000000000", "latest",
)  # fmt: skip
TEXTS = tuple(value for value in BAD if isinstance(value, str) and len(value) < 6000)


class Asked(msgspec.Struct, frozen=True):
    """One request. ``body`` is bytes, or anything to be sent as JSON; UNSET for none."""

    method: str
    url: str
    headers: dict[str, str]
    body: Any = msgspec.UNSET


class Operation(msgspec.Struct, frozen=True):
    """One method of a path: its rows of the table, and what schemathesis knows of it."""

    api: str
    port: str
    label: str
    rows: tuple[Row, ...]
    schema: Any
    statuses: frozenset[str]


def operations(rows: list[Row]) -> Iterator[Operation]:
    """Every operation of the documents, with the rows that are served."""
    for api in FACES:
        document = openapi(api)
        for result in schemathesis.openapi.from_dict(document).get_all_operations():
            schema = result.ok()
            statuses = frozenset(document["paths"][schema.path][schema.method]["responses"])
            mine = tuple(r for r in rows if r.api == api and f"{r.endpoint.method} {r.path}" == schema.label)
            yield Operation(api, mine[0].port, schema.label, mine, schema, statuses)


def asks(operation: Operation, world: World, *, marked: bool) -> st.SearchStrategy[Asked]:
    """Requests of an operation; ``marked``: whether they may carry the mark of the world's free texts."""
    modes = st.one_of(*(operation.schema.as_strategy(generation_mode=mode) for mode in _modes(operation)))
    good = st.sampled_from(operation.rows).flatmap(lambda row: _spoilt(row, world))
    found = st.one_of(modes.flatmap(lambda case: _of_case(operation, world, case)), good)
    if operation.label.endswith("/agent/v1/commands"):
        found = found.map(_short)
    return found if marked else found.map(_unmarked)


def _modes(operation: Operation) -> list[GenerationMode]:
    parts = operation.schema
    writes = bool(parts.body) or bool(parts.query)
    return [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if writes else [GenerationMode.POSITIVE]


def _of_case(operation: Operation, world: World, case: Any) -> st.SearchStrategy[Asked]:
    row = operation.rows[0]
    body = (
        case.body if isinstance(case.body, dict | list | str | int | float | bool | None) else msgspec.UNSET
    )
    query = [(k, v) for k, vs in (case.query or {}).items() for v in (vs if isinstance(vs, list) else [vs])]
    return st.builds(
        lambda path, version: Asked(case.method, path + _query(query), version, body),
        _paths(row, world),
        st.sampled_from(operation.rows).flatmap(_versions),
    )


def _spoilt(row: Row, world: World) -> st.SearchStrategy[Asked]:
    """The good request of the authorisation table with one value replaced."""
    ask = ask_of(world, row)
    path = row.path
    for name, value in ask.at.items():
        path = path.replace(f"{{{name}}}", value)
    known = tuple(row.endpoint.query.names) if isinstance(row.endpoint.query, Query) else ("limit",)
    pairs = st.lists(st.tuples(st.sampled_from((*known, "unknown")), st.sampled_from(TEXTS)), max_size=3)
    body = st.just(msgspec.UNSET) if ask.body is None else _with_one_bad(ask.body)
    return st.builds(
        lambda url, more, version, sent: Asked(row.endpoint.method, url + _query(more), version, sent),
        st.one_of(st.just(quote(world.path(row.port, path), safe="/:")), _paths(row, world)),
        st.one_of(st.just([tuple(p.split("=", 1)) for p in ask.query.split("&") if p]), pairs),
        _versions(row),
        body,
    )


def _with_one_bad(body: Any) -> st.SearchStrategy[Any]:
    places = list(_places(body))
    if not places:
        return st.just(body)
    return st.builds(lambda place, bad: _put(body, place, bad), st.sampled_from(places), st.sampled_from(BAD))


def _places(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield from _places(value, (*at, key))


def _put(body: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    key, *rest = at
    changed = dict(body) if isinstance(body, dict) else list(body)
    changed[key] = _put(changed[key], tuple(rest), value)
    return changed


def _paths(row: Row, world: World) -> st.SearchStrategy[str]:
    """The path with the world's ids, or with one parameter that is something else."""
    names = [part[1:-1] for part in row.path.split("/") if part.startswith("{")]
    good = quote(world.path(row.port, row.path), safe="/:")
    if not names:
        return st.just(good)

    def spoil(name: str, bad: str) -> str:
        before, _, after = row.path.partition(f"{{{name}}}")
        return "".join(
            (quote(world.path(row.port, before), safe="/:"), quote(bad, safe=""), world.path(row.port, after))
        )

    bad = st.one_of(st.sampled_from([t for t in TEXTS if t]), st.text(min_size=1, max_size=20))
    return st.one_of(st.just(good), st.just(good), st.builds(spoil, st.sampled_from(names), bad))


def _query(pairs: list[Any]) -> str:
    texts = [(str(k), v if isinstance(v, str) else str(v)) for k, v in pairs]
    return f"?{urlencode(texts, errors='replace')}" if texts else ""


def _versions(row: Row) -> st.SearchStrategy[dict[str, str]]:
    """Headers with the first or last version that has the row, or the whole API's newest."""
    if row.version is None:
        return st.just({})
    first = row.endpoint.versions[0]
    wanted = [text(row.version), "latest", *([text(first)] if first > (0, 0) else [])]
    lowest = [{}] if first == (0, 0) else []
    return st.sampled_from([*({"OpenStack-API-Version": f"{row.port} {v}"} for v in wanted), *lowest])


def _short(asked: Asked) -> Asked:
    """A poll that waits is no hang: this one does not wait, as the last parameter of a name counts."""
    return msgspec.structs.replace(asked, url=f"{asked.url}{'&' if '?' in asked.url else '?'}wait=0")


def _unmarked(asked: Asked) -> Asked:
    return msgspec.structs.replace(asked, url=asked.url.replace(MARK, "plain"))
