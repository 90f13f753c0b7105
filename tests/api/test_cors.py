"""Which pages of other origins may call an API."""

from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from moorage.api.config import options, with_cors
from moorage.core.config import load

GOOD, BAD = "https://dashboard.example.com", "https://elsewhere.example.com"
ASKING = {"access-control-request-method": "PUT", "access-control-request-headers": "x-auth-token"}
ALLOW = "access-control-allow-origin"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await JSONResponse({"method": scope["method"]})(scope, receive, send)


def client(**values: Any) -> TestClient:
    conf = load(options(), overrides={f"cors.{name}": value for name, value in values.items()})
    return TestClient(with_cors(conf, app))


def test_nothing_is_allowed_unless_configured() -> None:
    found = client().options("/", headers={"origin": GOOD, **ASKING})
    assert found.json() == {"method": "OPTIONS"}
    assert ALLOW not in found.headers


def test_a_page_of_an_allowed_origin_is_let_in() -> None:
    http = client(allowed_origin=[GOOD])
    asked = http.options("/", headers={"origin": GOOD, **ASKING})
    assert (asked.status_code, asked.headers[ALLOW]) == (200, GOOD)
    assert asked.headers["access-control-allow-headers"] == "x-auth-token"
    answer = http.get("/", headers={"origin": GOOD})
    assert (answer.json(), answer.headers[ALLOW]) == ({"method": "GET"}, GOOD)
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": BAD, **ASKING},
        {"origin": GOOD, **ASKING, "access-control-request-method": "TRACE"},
        {"origin": GOOD, **ASKING, "access-control-request-headers": "x-other"},
    ],
)
def test_what_is_not_allowed_is_answered_without_a_permission(headers: dict[str, str]) -> None:
    found = client(allowed_origin=[GOOD]).options("/", headers=headers)
    assert found.status_code == 200
    assert ALLOW not in found.headers


def test_other_origins_read_nothing() -> None:
    assert ALLOW not in client(allowed_origin=[GOOD]).get("/", headers={"origin": BAD}).headers
