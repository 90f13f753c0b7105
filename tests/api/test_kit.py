"""The API kit over real HTTP semantics: routes, versions, faults, bodies."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest
import structlog
from starlette.testclient import TestClient

from moorage.api import ALWAYS, Api, Call, Endpoint, Reply, RequestContext, VersionScheme, names, since
from moorage.api.policy import Policies
from moorage.core.errors import NotFound, Unauthorized


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size: int = 1


class Create(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    thing: Thing


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: int | None = None
    tag: list[str] = []


async def create(call: Call[Any]) -> Any:
    return {"thing": {"name": call.body.thing.name, "project": call.context.project_id}}


async def listing(call: Call[Any]) -> Any:
    return {"limit": call.query.limit, "tags": call.query.tag}


async def echo(call: Call[Any]) -> Any:
    return call.query


async def logged(_call: Call[Any]) -> Any:
    return structlog.contextvars.get_contextvars()


async def show(call: Call[Any]) -> Any:
    if call.path["id"] == "none":
        raise NotFound("no such thing")
    if call.path["id"] == "bug":
        raise ZeroDivisionError
    return Reply({"id": call.path["id"]}, headers={"Location": f"/things/{call.path['id']}?a=b%20c"})


async def act(call: Call[Any]) -> Any:
    return {"got": call.body.size}


async def check(headers: Mapping[str, str], request_id: str) -> RequestContext:
    token = headers.get("x-auth-token")
    if token is None:
        raise Unauthorized("who?")
    project = headers.get("x-test-project", "p1") or None
    system = "x-test-system" in headers
    roles = frozenset(token.split("+"))
    return RequestContext(
        request_id=request_id, project_id=project, user_id="u", roles=roles, system_scope=system
    )


class Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int


TABLE = (
    Endpoint("GET", "/", listing, None, query=Query),
    Endpoint("POST", "/things", create, "things:create", body=Create, status=202),
    Endpoint("GET", "/things", echo, "things:show", query=names("name", strict="2.4", later={"size": "2.3"})),
    Endpoint("GET", "/logged", logged, "things:show"),
    Endpoint("GET", "/things/{id}", show, "things:show"),
    Endpoint("PUT", "/things/{id}", show, "things:show", versions=since("2.5")),
    Endpoint("POST", "/things/{id}/later", show, "things:show", versions=since("2.5")),
    Endpoint("POST", "/things/{id}/action", act, "things:create", body=Act, action="grow"),
    Endpoint("POST", "/things/{id}/action", act, "things:admin", body=Act, action="shrink", versions=ALWAYS),
)


@pytest.fixture
def client() -> TestClient:
    rules = {
        "things:create": "rule:project_member",
        "things:show": "rule:project_reader",
        "things:admin": "role:admin",
    }
    api = Api(
        "things",
        None,
        TABLE,
        "compute",
        VersionScheme("compute", (2, 1), (2, 9), "X-OpenStack-Nova-API-Version"),
        policies=Policies(rules),
        authenticate=check,
        max_body=1000,
    )
    return TestClient(api, headers={"X-Auth-Token": "member+reader"}, raise_server_exceptions=False)


def test_a_body_is_decoded_and_answered(client: TestClient) -> None:
    answer = client.post("/things", json={"thing": {"name": "a"}})
    assert (answer.status_code, answer.json()) == (202, {"thing": {"name": "a", "project": "p1"}})
    assert answer.headers["openstack-api-version"] == "compute 2.1"
    assert answer.headers["x-openstack-request-id"].startswith("req-")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"thing": {"name": 1}}, "thing.name"),
        ({"thing": {}}, "thing.name"),
        ({"thing": {"name": "a", "colour": 1}}, "thing.colour"),
        ({}, "thing"),
        ([], "the body"),
    ],
)
def test_a_wrong_body_names_its_field(client: TestClient, body: Any, field: str) -> None:
    answer = client.post("/things", json=body)
    assert answer.status_code == 400
    assert field in answer.json()["badRequest"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/none", {}, 404),
        ("DELETE", "/things/a", {}, 405),
        ("PUT", "/things/a", {}, 405),
        ("POST", "/things/a/later", {}, 404),
        ("GET", "/things/a/later", {}, 405),
        ("PUT", "/things/a", {"OpenStack-API-Version": "compute 2.5"}, 200),
        ("GET", "/things/a", {"OpenStack-API-Version": "compute 3.0"}, 406),
        ("GET", "/things/a", {"OpenStack-API-Version": "compute x"}, 400),
        ("GET", "/things/none", {}, 404),
        ("GET", "/things/bug", {}, 500),
        ("GET", "/things/a", {"X-Auth-Token": "nobody"}, 403),
    ],
)
def test_statuses(client: TestClient, method: str, path: str, headers: dict[str, str], status: int) -> None:
    assert client.request(method, path, headers=headers).status_code == status


@pytest.mark.parametrize("name", ["a", "a\r\nX-Injected: 1", "\u00e9\U0001f600", "a b"])
def test_a_name_in_a_header_cannot_end_its_line_or_break_it(client: TestClient, name: str) -> None:
    answer = client.get(f"/things/{quote(name)}")
    assert answer.status_code == 200
    assert "x-injected" not in answer.headers
    assert answer.headers["location"].isascii()
    assert unquote(answer.headers["location"]) == f"/things/{name}?a=b c"


def test_answers_faults_and_logs_carry_one_id_and_the_callers_where_it_is_one(client: TestClient) -> None:
    theirs = "req-12345678-1234-1234-1234-123456789abc"
    answer = client.get("/logged", headers={"X-OpenStack-Request-ID": theirs})
    own = answer.headers["x-openstack-request-id"]
    assert own != theirs
    assert answer.json()["request_id"] == own
    assert answer.json()["global_request_id"] == theirs
    for wrong in ("req-" + "-" * 36, theirs.upper(), f"{theirs} x", "x" * 40, "req-"):
        answer = client.get("/logged", headers={"X-OpenStack-Request-ID": wrong})
        assert "global_request_id" not in answer.json(), wrong
    fault = client.get("/things/bug")
    assert fault.headers["x-openstack-request-id"] in fault.text


def test_405_says_what_is_allowed(client: TestClient) -> None:
    assert client.delete("/things/a").headers["allow"] == "GET"


def test_actions_choose_their_row_and_policy(client: TestClient) -> None:
    assert client.post("/things/a/action", json={"grow": {"size": 2}}).json() == {"got": 2}
    assert client.post("/things/a/action", json={"shrink": {"size": 2}}).status_code == 403
    assert client.post("/things/a/action", json={"none": {}}).status_code == 400
    assert "grow.size" in client.post("/things/a/action", json={"grow": {"size": "x"}}).text


@pytest.mark.parametrize("scope", [{}, {"X-Test-System": "all"}])
def test_a_token_without_a_project_is_let_in_nowhere(client: TestClient, scope: dict[str, str]) -> None:
    headers = {"X-Auth-Token": "admin+member+reader", "X-Test-Project": "", **scope}
    assert client.get("/things/a", headers=headers).status_code == 403
    assert client.get("/", headers=headers).status_code == 200


def test_queries_are_typed(client: TestClient) -> None:
    assert client.get("/?limit=3&tag=a&tag=b").json() == {"limit": 3, "tags": ["a", "b"]}
    assert client.get("/?limit=x").status_code == 400
    assert client.get("/?colour=x").status_code == 400


@pytest.mark.parametrize(
    ("version", "query", "status"),
    [
        ("2.1", "colour=1", 200),
        ("2.4", "colour=1", 400),
        ("2.4", "name=1&size=2", 200),
        ("2.4", "name=1", 200),
    ],
)
def test_unknown_parameters_are_refused_from_their_version_on(
    client: TestClient, version: str, query: str, status: int
) -> None:
    answer = client.get(f"/things?{query}", headers={"OpenStack-API-Version": f"compute {version}"})
    assert answer.status_code == status
    assert status == 200 or "colour" in answer.text


def test_a_nul_character_is_refused_wherever_it_is(client: TestClient) -> None:
    for body in ({"thing": {"name": "a\0"}}, {"thing": {"name": "a", "size\0": 1}}):
        assert client.post("/things", json=body).status_code == 400
    assert client.post("/things/a/action", json={"grow": {"size": 1, "\0": 1}}).status_code == 400
    assert "name" in client.get("/things?name=%00").json()["badRequest"]["message"]
    assert client.get("/things/a%00").status_code == 404
    # An escaped backslash is none.
    assert client.post("/things", json={"thing": {"name": r"\u0000"}}).status_code == 202


def test_too_large_and_wrong_media(client: TestClient) -> None:
    assert client.post("/things", content=b"x" * 2000).status_code == 413
    assert client.post("/things", content=b"<a/>", headers={"Content-Type": "text/xml"}).status_code == 415
