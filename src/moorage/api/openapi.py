"""The OpenAPI 3.1 document of an API, from its table: what the router, the decoder and the faults do, written down.

Rows that share method and path (actions, ranges of microversions) are one operation there; what tells them apart is
under ``x-openstack`` as OpenStack's own documents have it: ``min-ver``, ``max-ver``, ``action-name``. So are the
versions of a field that not all have (``ranges`` where it went and came back), and ``required`` there, if it is.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api import faults
from moorage.api.endpoint import Endpoint, Header, Query
from moorage.api.fields import KEY, limits
from moorage.api.versions import Version, VersionScheme, text

Json = dict[str, Any]
_SCHEMAS = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_WRITES = ("POST", "PUT", "PATCH")


class Face(msgspec.Struct, frozen=True, kw_only=True):
    """What a document is about.

    prefix   stands before the paths of the table
    root     rows that are served without it
    hosts    callers are hosts, with certificates
    """

    title: str
    endpoints: tuple[Endpoint, ...]
    style: str
    versions: VersionScheme | None = None
    prefix: str = ""
    root: tuple[Endpoint, ...] = ()
    hosts: bool = False

    @property
    def rows(self) -> Iterator[tuple[str, Endpoint]]:
        """Every row with its whole path."""
        yield from ((row.path, row) for row in self.root)
        yield from ((self.prefix + row.path, row) for row in self.endpoints)


def document(face: Face) -> Json:
    """The document, as plain data."""
    schemas = _Schemas((*face.root, *face.endpoints))
    paths: dict[str, Json] = {}
    for (path, method), rows in _operations(face).items():
        paths.setdefault(path, {})[method.lower()] = _operation(face, rows, schemas)
    found: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": face.title,
            "version": text(face.versions.maximum) if face.versions else "1",
            **({KEY: limits((face.versions.minimum, face.versions.maximum))} if face.versions else {}),
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas.components, "Fault": faults.SHAPES[face.style]},
            "responses": {
                "Fault": _response(
                    "What went wrong.",
                    {"$ref": _SCHEMAS.format(name="Fault")},
                    faults.MEDIA.get(face.style, "application/json"),
                )
            },
            "securitySchemes": {"credential": _CERTIFICATE if face.hosts else _TOKEN},
        },
    }
    plain: Json = msgspec.json.decode(msgspec.json.encode(found))
    return plain


_TOKEN = {"type": "apiKey", "in": "header", "name": "X-Auth-Token", "description": "A Keystone token."}
_CERTIFICATE = {"type": "mutualTLS", "description": "The certificate of a host."}


class _Schemas:
    """The JSON Schemas of every type in a table; those with names are shared."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        types: list[Any] = []
        for row in endpoints:
            given = (row.body, row.response, None if isinstance(row.query, Query) else row.query)
            types += [t for t in given if t is not None and t not in types]
        found, self.components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
        self._found = list(zip(types, found, strict=True))
        for each in self.components.values():
            _plain(each)
            _require_by_version(each)

    def of(self, wanted: Any) -> Json:
        """The schema of a type; anything at all for None, and for bytes."""
        if wanted is bytes:
            return {}
        return next((_plain(dict(schema)) for type_, schema in self._found if type_ == wanted), {})

    def properties(self, wanted: Any) -> tuple[Json, list[str]]:
        """The fields of a struct and which are required."""
        schema = self.components[self.of(wanted)["$ref"].rpartition("/")[2]]
        return schema["properties"], schema.get("required", [])


def _plain(schema: Any) -> Any:
    """Python's end of a text in patterns is JavaScript's ``$``."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            schema[key] = value.replace(r"\Z", "$") if key == "pattern" else _plain(value)
    elif isinstance(schema, list):
        for value in schema:
            _plain(value)
    return schema


def _require_by_version(schema: Json) -> None:
    """A field that not every version has is required in those that have it: its own ``x-openstack`` says so."""
    for name in list(schema.get("required", ())):
        found = schema["properties"][name]
        if KEY in found:
            schema["required"].remove(name)
            found[KEY] = {**found[KEY], "required": True}


def _operations(face: Face) -> dict[tuple[str, str], list[Endpoint]]:
    found: dict[tuple[str, str], list[Endpoint]] = {}
    for path, row in face.rows:
        found.setdefault((path, row.method), []).append(row)
    return found


def _operation(face: Face, rows: list[Endpoint], schemas: _Schemas) -> Json:
    first = rows[0]
    found: Json = {"operationId": _name(face, first), "tags": [_tag(first.path)]}
    summary = (first.handler.__doc__ or "").strip().partition("\n")[0]
    if summary and len(rows) == 1:
        found["summary"] = summary
    if len(rows) == 1 and (limited := _limits(first)):
        found[KEY] = limited
    found["x-policy"] = first.policy if len(rows) == 1 else {_variant(row): row.policy for row in rows}
    found["security"] = [] if all(row.policy is None for row in rows) else [{"credential": []}]
    found["parameters"] = [*_path_parameters(first.path), *_query(rows, schemas), *_headers(face, rows)]
    body = _body(rows, schemas)
    if body is not None:
        found["requestBody"] = {"required": True, "content": body}
    found["responses"] = _responses(rows, schemas)
    return found


def _name(face: Face, row: Endpoint) -> str:
    prefix = "" if row in face.root else face.prefix.rpartition("/")[2]
    words = re.findall(r"\w+", prefix + row.path)
    return "_".join([row.method.lower(), *words]) if words else f"{row.method.lower()}_root"


def _tag(path: str) -> str:
    words = [w for w in path.split("/") if w and not w.startswith("v2.")]
    return words[0] if words else "root"


def _limits(row: Endpoint) -> Json:
    return {**limits(row.versions), **({"action-name": row.action} if row.action else {})}


def _variant(row: Endpoint) -> str:
    first, last = row.versions
    versions = f"{text(first) if first > (0, 0) else ''}-{text(last) if last else ''}"
    return " ".join(w for w in (row.action or "", versions) if w not in ("", "-")) or "always"


def _path_parameters(path: str) -> list[Json]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema} for name in _PARAMETER.findall(path)
    ]


def _query(rows: list[Endpoint], schemas: _Schemas) -> list[Json]:
    found: dict[str, Json] = {}
    for row in rows:
        if isinstance(row.query, Query):
            for name, first in row.query.names.items():
                found[name] = _listed(name, first)
        elif row.query is not None:
            properties, required = schemas.properties(row.query)
            for name, schema in properties.items():
                found[name] = {"name": name, "in": "query", "required": name in required, "schema": schema}
    return list(found.values())


def _listed(name: str, first: Version) -> Json:
    found: Json = {
        "name": name,
        "in": "query",
        "schema": {"type": "array", "items": {"type": "string"}},
        "explode": True,
    }
    return {**found, KEY: limits((first, None))} if first > (0, 0) else found


def _headers(face: Face, rows: list[Endpoint]) -> list[Json]:
    found = [
        {"name": header.name, "in": "header", **_header(header)}
        for header in dict.fromkeys(header for row in rows for header in row.headers)
    ]
    if face.versions is None:
        return found
    schema = {
        "type": "string",
        "pattern": rf"^{face.versions.service} ([1-9]\d*\.(0|[1-9]\d*)|latest)$",
        "default": f"{face.versions.service} {text(face.versions.minimum)}",
    }
    return [*found, {"name": "OpenStack-API-Version", "in": "header", "schema": schema}]


def _header(header: Header) -> Json:
    return {"description": header.about, "schema": {"type": "string", "pattern": header.pattern}}


def _body(rows: list[Endpoint], schemas: _Schemas) -> Json | None:
    found = [(row, _body_of(row, schemas)) for row in rows if row.body is not None or row.action is not None]
    if not found or rows[0].method not in _WRITES:
        return None
    return {media: {"schema": _any_of(found)} for media in rows[0].media}


def _body_of(row: Endpoint, schemas: _Schemas) -> Json:
    schema = schemas.of(row.body)
    if row.action is None:
        return schema
    return {
        "type": "object",
        "properties": {row.action: schema},
        "required": [row.action],
        "additionalProperties": False,
    }


def _any_of(found: list[tuple[Endpoint, Json]]) -> Json:
    """The schema of one row, or those of several with what tells the rows apart."""
    if len(found) == 1:
        row, schema = found[0]
        return {**schema, KEY: limited} if (limited := _limits(row)) else schema
    return {"anyOf": [{**schema, KEY: _limits(row)} for row, schema in found]}


def _responses(rows: list[Endpoint], schemas: _Schemas) -> Json:
    found: Json = {}
    for status in {status for row in rows for status in (row.status, *row.statuses)}:
        with_body = [
            (row, schemas.of(row.response))
            for row in rows
            if status in (row.status, *row.statuses) and row.response is not None and status != 204
        ]
        found[str(status)] = {"description": "Done."}
        if with_body:
            found[str(status)] = _response("Done.", _any_of(with_body), with_body[0][0].produces)
    for row in rows:
        if row.tells:
            found[str(row.status)]["headers"] = {header.name: _header(header) for header in row.tells}
    fault = {"$ref": "#/components/responses/Fault"}
    refused = {str(header.refused): fault for row in rows for header in row.headers if header.refused}
    return {**dict(sorted({**found, **refused}.items())), "default": fault}


def _response(description: str, schema: Json, media: str = "application/json") -> Json:
    return {"description": description, "content": {media: {"schema": schema}}}
