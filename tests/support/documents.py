"""The OpenAPI documents as a reader at one microversion has them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from moorage.api.endpoint import Endpoint
from moorage.api.versions import Version, parse
from moorage.server.documents import FACES, openapi
from tests.support.faces import Row

Json = dict[str, Any]
KEY = "x-openstack"


class Answer(msgspec.Struct, frozen=True):
    """What a document says of an answer. ``schema``: None for one without a body; ``headers``: the schema of each."""

    schema: Json | None
    headers: dict[str, Json] = {}

    def faults(self, body: Any) -> list[str]:
        """What is wrong with a body, in sentences."""
        if self.schema is None:
            return [] if body is None else [f"there is a body: {body}"]
        found = Draft202012Validator(self.schema).iter_errors(body)
        return [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in found]

    def wrong_headers(self, given: Mapping[str, str]) -> list[str]:
        """The headers that an answer must have and has not, or not in their form."""
        return [
            f"{name} is {given.get(name)}"
            for name, schema in self.headers.items()
            if not re.search(schema["pattern"], given.get(name, ""))
        ]


def operation(row: Row) -> Json:
    """The document's operation of a row; raises KeyError where it has none."""
    found: Json = openapi(row.api)["paths"][row.path][row.endpoint.method.lower()]
    return found


def answer_of(row: Row, status: int, version: Version) -> Answer:
    """What a row answers at a version."""
    responses = operation(row)["responses"]
    if str(status) not in responses:
        return Answer({"not": {}, "description": f"the document has no {status}"})
    headers = {name: each["schema"] for name, each in responses[str(status)].get("headers", {}).items()}
    content = responses[str(status)].get("content")
    if content is None or status == 204:
        return Answer(None, headers)
    schema = next(iter(content.values()))["schema"]
    if KEY in schema or any(KEY in each for each in schema.get("anyOf", ())):
        choice = [s for s in schema.get("anyOf", [schema]) if _is_of(s[KEY], row.endpoint, version)]
        if not choice:
            return Answer(None, headers)
        schema = choice[0]
    return Answer(narrowed(schema, row.api, version, closed=True), headers)


def _is_of(limits: Json, endpoint: Endpoint, version: Version) -> bool:
    return within(limits, version) and limits.get("action-name") == endpoint.action


def within(limits: Json, version: Version) -> bool:
    """Whether a version is in what ``x-openstack`` says."""
    return any(
        ("min-ver" not in each or parse(each["min-ver"]) <= version)
        and ("max-ver" not in each or version <= parse(each["max-ver"]))
        for each in limits.get("ranges", [limits])
    )


def narrowed(schema: Any, api: str, version: Version, *, closed: bool) -> Any:
    """A schema with its references in place and the fields of one version; ``closed``: and no others."""
    if isinstance(schema, list):
        return [narrowed(each, api, version, closed=closed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        found = narrowed(openapi(api)["components"]["schemas"][name], api, version, closed=closed)
        return {**found, "title": name}
    found = {
        k: narrowed(v, api, version, closed=closed) for k, v in schema.items() if k not in ("properties", KEY)
    }
    if "properties" in schema:
        there = {k: v for k, v in schema["properties"].items() if within(v.get(KEY, {}), version)}
        found["properties"] = narrowed_each(there, api, version, closed=closed)
        later = [name for name, each in there.items() if each.get(KEY, {}).get("required")]
        found["required"] = [*schema.get("required", ()), *later]
        if closed:
            found.setdefault("additionalProperties", False)
    return found


def narrowed_each(properties: Json, api: str, version: Version, *, closed: bool) -> Json:
    return {k: narrowed(v, api, version, closed=closed) for k, v in properties.items()}


def edges(schema: Any, api: str) -> set[Version]:
    """The versions at which something in a schema comes, and the first after it has gone."""
    found: set[Version] = set()
    for limits in _limits(schema, api):
        for each in limits.get("ranges", [limits]):
            if "min-ver" in each:
                found.add(parse(each["min-ver"]))
            if "max-ver" in each:
                major, minor = parse(each["max-ver"])
                found.add((major, minor + 1))
    return found


def _limits(schema: Any, api: str) -> Iterator[Json]:
    if isinstance(schema, list):
        for each in schema:
            yield from _limits(each, api)
    elif isinstance(schema, dict):
        if isinstance(schema.get(KEY), dict):
            yield schema[KEY]
        if "$ref" in schema:
            yield from _limits(openapi(api)["components"]["schemas"][schema["$ref"].rpartition("/")[2]], api)
        for key, each in schema.items():
            if key != KEY:
                yield from _limits(each, api)


def versions_of(row: Row) -> list[Version]:
    """The versions of a row on both sides of each change of its answer, by the document; its first and last besides."""
    scheme = FACES[row.api].versions
    if scheme is None or row.version is None:
        return [(0, 0)]
    first, last = max(row.endpoint.versions[0], scheme.minimum), row.version
    content = [each["content"] for each in operation(row)["responses"].values() if "content" in each]
    found = edges(content, row.api)
    before = {(major, minor - 1) for major, minor in found}
    return sorted({v for v in found | before if first <= v <= last} | {first, last})


def declared(schema: Any) -> set[tuple[str, str]]:
    """The type and name of each field that a narrowed schema has."""
    if isinstance(schema, list):
        return {found for each in schema for found in declared(each)}
    if not isinstance(schema, dict):
        return set()
    properties = schema.get("properties", {})
    own = {(str(schema.get("title", "")), name) for name in properties}
    return own.union(
        *map(declared, properties.values()), *(declared(v) for k, v in schema.items() if k != "properties")
    )


def seen(schema: Any, value: Any) -> Iterator[tuple[str, str]]:
    """The type and name of each field of a narrowed schema that a value has."""
    for each in schema.get("anyOf", ()):
        yield from seen(each, value)
    if isinstance(value, dict):
        for name, inner in value.items():
            field = schema.get("properties", {}).get(name)
            if field is not None:
                yield schema.get("title", ""), name
                yield from seen(field, inner)
            elif isinstance(schema.get("additionalProperties"), dict):
                yield from seen(schema["additionalProperties"], inner)
    elif isinstance(value, list) and "items" in schema:
        for each in value:
            yield from seen(schema["items"], each)
