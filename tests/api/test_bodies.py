"""Fields of requests' bodies, microversion by microversion, as the OpenAPI documents have them.

Each field of each body is sent on both sides of every version at which something of that body changes: where the
document has it the body is taken, elsewhere it is refused with 400, naming the field. So is a field that no version has.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from moorage.api import Api, Call
from moorage.api.openapi import Face
from moorage.api.policy import Policies
from moorage.api.versions import Version, text
from moorage.server.documents import FACES, openapi
from tests.support.documents import KEY, Json, edges, narrowed, within

Path = tuple[str, ...]
UNKNOWN = "no_such_field"
# Of the forms that texts have in the types of bodies.
TEXTS = ("a", "CUSTOM_A", "VCPU", "0f6a4d3e-7a52-4f4b-9a39-0d1f6f3c2b1a")


async def taken(call: Call[None]) -> dict[str, bool]:
    return {"taken": True}


async def nobody(*_: object) -> None:
    raise AssertionError


def client_of(face: Face) -> TestClient:
    """The kit over an API's own table, with handlers that say that the body was taken."""
    rows = [
        msgspec.structs.replace(
            row, handler=taken, policy=None, query=None, status=200, path=path, media=("application/json",)
        )
        for path, row in face.rows
    ]
    api = Api("x", None, rows, face.style, face.versions, policies=Policies({}), authenticate=nobody)  # type: ignore[arg-type]
    return TestClient(api)


class Body(msgspec.Struct, frozen=True):
    """One body of an operation: that of an action, or the only one. ``forms``: its schemas with their versions."""

    api: str
    method: str
    path: str
    action: str | None
    forms: tuple[tuple[Json, Json], ...]

    def form(self, version: Version) -> Json | None:
        """The schema at a version."""
        return next((schema for limits, schema in self.forms if within(limits, version)), None)


def bodies() -> Iterator[Body]:
    for api in FACES:
        for path, methods in openapi(api)["paths"].items():
            for method, operation in methods.items():
                if "requestBody" in operation:
                    yield from _bodies(api, method.upper(), path, operation["requestBody"]["content"])


def _bodies(api: str, method: str, path: str, content: Json) -> Iterator[Body]:
    schema = next(iter(content.values()))["schema"]
    found: dict[str | None, list[tuple[Json, Json]]] = {}
    # A list of forms says of each when it holds; anything else is a body that may be of several types.
    forms = schema["anyOf"] if all(KEY in each for each in schema.get("anyOf", [{}])) else [schema]
    for each in forms:
        limits = each.get(KEY, {})
        found.setdefault(limits.get("action-name"), []).append((limits, each))
    for action, of in found.items():
        yield Body(api, method, path, action, tuple(of))


def whole(body: Body, schema: Any) -> Any:
    """The schema with its references in place, fields of all versions."""
    if isinstance(schema, list):
        return [whole(body, each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = openapi(body.api)["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return {**whole(body, target), **({KEY: schema[KEY]} if KEY in schema else {})}
    return {k: v if k == KEY else whole(body, v) for k, v in schema.items()}


def fields(schema: Json, at: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Every field by its path; ``[]`` and ``{}`` stand for an item of a list and a value under any key."""
    for each in schema.get("anyOf", ()):
        yield from fields(each, at)
    for name, inner in schema.get("properties", {}).items():
        yield (*at, name), inner
        yield from fields(inner, (*at, name))
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], (*at, "[]"))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], (*at, "{}"))


def branch(schema: Json, step: str | None) -> Json | None:
    """The one of several types that a path goes through."""
    if "anyOf" in schema:
        return next((f for each in schema["anyOf"] if (f := branch(each, step)) is not None), None)
    fits = {
        None: schema.get("type") != "null",
        "[]": isinstance(schema.get("items"), dict),
        "{}": isinstance(schema.get("additionalProperties"), dict),
    }
    return schema if fits.get(step, "properties" in schema) else None


def sample(schema: Json, path: Path = ()) -> Any:
    """A value of a type with no more than it must have, and what a path leads to."""
    step = path[0] if path else None
    if schema.get("type") == "null":
        return None
    found = branch(schema, step)
    assert found is not None, (schema, path)
    if "enum" in found:
        return found["enum"][0]
    kind = found.get("type")
    if kind == "object":
        return _object(found, path)
    if kind == "array":
        items = found["items"] if isinstance(found.get("items"), dict) else {}
        return [sample(items, path[1:])] if path or found.get("minItems") else []
    if kind == "string":
        pattern = found.get("pattern", "")
        return next(each for each in TEXTS if re.search(pattern, each))
    return {"integer": max(1, found.get("minimum", 1)), "number": 1.5, "boolean": True}.get(kind, {})


def _object(schema: Json, path: Path) -> Json:
    properties = schema.get("properties", {})
    made = {name: sample(properties[name]) for name in schema.get("required", ())}
    if (path and path[0] == "{}") or schema.get("minProperties"):
        key = next(e for e in TEXTS if re.search(schema.get("propertyNames", {}).get("pattern", ""), e))
        made[key] = sample(schema["additionalProperties"], path[1:])
    elif len(path) > 1:
        made[path[0]] = sample(properties[path[0]], path[1:])
    return made


def put(value: Any, path: Path, field: Any) -> None:
    """Set the field at the end of a path."""
    for step in path[:-1]:
        value = value[0] if step == "[]" else next(iter(value.values())) if step == "{}" else value[step]
    value[path[-1]] = field


def versions_of(body: Body, face: Face) -> list[Version]:
    """Both sides of every change of the body."""
    if face.versions is None:
        return [(0, 0)]
    found = edges([schema for _, schema in body.forms], body.api)
    found |= {(major, minor - 1) for major, minor in found} | {face.versions.minimum, face.versions.maximum}
    return sorted(v for v in found if face.versions.minimum <= v <= face.versions.maximum)


BODIES = list(bodies())


@pytest.mark.parametrize("body", BODIES, ids=lambda b: f"{b.method} {b.path} {b.action or ''}".strip())
def test_a_field_is_taken_in_the_versions_that_have_it_and_refused_by_name_in_others(body: Body) -> None:
    face = FACES[body.api]
    client = client_of(face)
    every = {path: schema for _, form in body.forms for path, schema in fields(whole(body, form))}
    wrong = []
    for version in versions_of(body, face):
        form = body.form(version)
        if form is None:
            continue
        here = narrowed(form, body.api, version, closed=False)
        known = dict(fields(here))
        # An unknown field beside an action is another action.
        parents = {path[:-1] for path in known} - ({()} if body.action else set())
        for path in [*every, *((*parent, UNKNOWN) for parent in sorted(parents))]:
            if not _closed(here, path[:-1]):
                continue  # what it is a field of is not there, or takes anything
            sent = sample(here, path)
            put(sent, path, sample(known.get(path) or every.get(path, {"type": "string"})))
            answer = client.request(
                body.method,
                re.sub(r"\{\w+\}", "x", body.path),
                content=json.dumps(sent),
                headers={
                    "content-type": "application/json",
                    **(
                        {"OpenStack-API-Version": f"{face.versions.service} {text(version)}"}
                        if face.versions
                        else {}
                    ),
                },
            )
            good = answer.status_code == 200
            named = answer.status_code == 400 and path[-1] in answer.text
            if not (good if path in known else named):
                wrong.append(f"{'.'.join(path)} at {text(version)}: {answer.status_code} {answer.text[:200]}")
    assert not wrong, "\n".join(wrong)


def _closed(schema: Json, path: Path) -> bool:
    """Whether a path leads to an object of fields that takes no others."""
    found: Json | None = schema
    for step in path:
        found = branch(found, step) if found else None
        if found is None:
            return False
        if step == "[]":
            found = found["items"]
        elif step == "{}":
            found = found["additionalProperties"]
        else:
            found = found.get("properties", {}).get(step)
    found = branch(found, "") if found else None
    return found is not None and found.get("additionalProperties") is False


@pytest.mark.parametrize(
    ("where", "field", "versions"),
    [
        ("POST /v2.1/servers", "server.description", ["2.19-"]),
        ("POST /v2.1/servers", "server.tags", ["2.52-"]),
        ("POST /v2.1/servers", "server.personality", ["2.1-2.56"]),
        ("POST /v2.1/servers", "server.trusted_image_certificates", ["2.63-"]),
        ("POST /v2.1/servers", "server.host", ["2.74-"]),
        ("POST /v2.1/servers", "server.hypervisor_hostname", ["2.74-"]),
        ("POST /v2.1/servers", "server.hostname", ["2.90-"]),
        ("POST /v2.1/servers", "server.networks.[].tag", ["2.32-2.36", "2.42-"]),
        ("POST /v2.1/servers", "server.block_device_mapping_v2.[].tag", ["2.32-2.32", "2.42-"]),
        ("POST /v2.1/servers", "server.block_device_mapping_v2.[].volume_type", ["2.67-"]),
        ("PUT /v2.1/servers/{server_id}", "server.description", ["2.19-"]),
        ("PUT /v2.1/servers/{server_id}", "server.hostname", ["2.90-"]),
        ("POST /v2.1/flavors", "flavor.description", ["2.55-"]),
        ("POST /v2.1/os-keypairs", "keypair.type", ["2.2-"]),
        ("POST /v2.1/os-keypairs", "keypair.user_id", ["2.10-"]),
        ("POST /v2.1/os-server-groups", "server_group.policies", ["2.1-2.63"]),
        ("POST /v2.1/os-server-groups", "server_group.policy", ["2.64-"]),
        ("POST /v2.1/os-server-groups", "server_group.rules", ["2.64-"]),
        ("PUT /v2.1/os-services/{service_id}", "binary", ["2.1-2.52"]),
        ("PUT /v2.1/os-services/{service_id}", "status", ["2.53-"]),
        ("PUT /v2.1/os-services/{service_id}", "forced_down", ["2.11-"]),
        ("PUT /v2.1/os-quota-sets/{project_id}", "quota_set.floating_ips", ["2.1-2.35"]),
        ("PUT /v2.1/os-quota-sets/{project_id}", "quota_set.injected_files", ["2.1-2.56"]),
        ("PUT /v2.1/os-quota-class-sets/{class_id}", "quota_class_set.floating_ips", ["2.1-2.49"]),
        ("PUT /v2.1/os-quota-class-sets/{class_id}", "quota_class_set.injected_files", ["2.1-2.56"]),
        ("POST /v2.1/servers/{server_id}/action", "lock.locked_reason", ["2.73-"]),
        ("POST /resource_providers", "parent_provider_uuid", ["1.14-"]),
        ("PUT /resource_providers/{uuid}", "parent_provider_uuid", ["1.14-"]),
        ("PUT /resource_providers/{uuid}/aggregates", "resource_provider_generation", ["1.19-"]),
        ("PUT /allocations/{consumer}", "project_id", ["1.8-"]),
        ("PUT /allocations/{consumer}", "allocations.[].resource_provider", ["1.0-1.11"]),
        ("PUT /allocations/{consumer}", "allocations.{}.resources", ["1.12-"]),
        ("PUT /allocations/{consumer}", "consumer_generation", ["1.28-"]),
        ("PUT /allocations/{consumer}", "mappings", ["1.34-"]),
        ("PUT /allocations/{consumer}", "consumer_type", ["1.38-"]),
        ("POST /allocations", "{}.consumer_generation", ["1.28-"]),
        ("POST /reshaper", "allocations.{}.mappings", ["1.34-"]),
    ],
)
def test_fields_have_the_versions_that_openstack_gives_them(
    where: str, field: str, versions: list[str]
) -> None:
    path = tuple(field.split("."))
    forms = [
        body for body in BODIES if f"{body.method} {body.path}" == where and body.action in (None, path[0])
    ]
    api = forms[0].api
    face = FACES[api]
    assert face.versions is not None
    (major, first), (_, last) = face.versions.minimum, face.versions.maximum
    found = []
    for minor in range(first, last + 1):
        form = next((f for body in forms if (f := body.form((major, minor))) is not None), None)
        if form is not None and path in dict(fields(narrowed(form, api, (major, minor), closed=False))):
            found.append(minor)
    starts = [m for m in found if m - 1 not in found]
    ends = [m for m in found if m + 1 not in found]
    said = [f"{major}.{s}-{'' if e == last else f'{major}.{e}'}" for s, e in zip(starts, ends, strict=True)]
    assert said == versions
