"""Which microversion a request is answered in: the real ranges of the APIs that have them."""

import pytest
from starlette.testclient import TestClient

from moorage.api import Api, Call, Endpoint, VersionScheme
from moorage.api.policy import Policies
from moorage.api.versions import text
from moorage.compute.http.versions import SCHEME as COMPUTE
from moorage.placement.http.routes import VERSIONS as PLACEMENT

HEADER = "OpenStack-API-Version"
OLDER = "X-OpenStack-Nova-API-Version"


async def which(call: Call[None]) -> dict[str, str]:
    return {"version": text(call.version)}


async def nobody(*_: object) -> None:
    raise AssertionError


def client_of(scheme: VersionScheme) -> TestClient:
    table = (Endpoint("GET", "/", which),)
    return TestClient(
        Api("x", None, table, scheme.service, scheme, policies=Policies({}), authenticate=nobody)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("scheme", [COMPUTE, PLACEMENT], ids=lambda s: s.service)
@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (None, "minimum"),
        ("{service} latest", "maximum"),
        ("{service} LATEST", "maximum"),
        ("{service} {maximum}", "maximum"),
        ("{SERVICE} {maximum}", "maximum"),
        ("other 9.9", "minimum"),
        ("other 9.9, {service} {maximum}", "maximum"),
        ("{service} {minimum}, {service} {maximum}", "maximum"),
        ("{service}", "minimum"),
    ],
)
def test_the_header_chooses_the_version_and_the_answer_says_it(
    scheme: VersionScheme, asked: str | None, wanted: str
) -> None:
    words = {
        "service": scheme.service,
        "SERVICE": scheme.service.upper(),
        "minimum": text(scheme.minimum),
        "maximum": text(scheme.maximum),
    }
    headers = {HEADER: asked.format(**words)} if asked else {}
    answer = client_of(scheme).get("/", headers=headers)
    assert answer.json() == {"version": words[wanted]}
    assert answer.headers[HEADER] == f"{scheme.service} {words[wanted]}"
    assert HEADER.lower() in answer.headers["Vary"].lower()


@pytest.mark.parametrize("scheme", [COMPUTE, PLACEMENT], ids=lambda s: s.service)
@pytest.mark.parametrize("asked", ["x", "2", "2.x", "-1.2", "1.2.3", "2.1\u00b2"])
def test_a_malformed_version_is_refused(scheme: VersionScheme, asked: str) -> None:
    sent = {HEADER: f"{scheme.service} {asked}".encode("latin-1")}
    assert client_of(scheme).get("/", headers=sent).status_code == 400  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", [COMPUTE, PLACEMENT], ids=lambda s: s.service)
@pytest.mark.parametrize("asked", ["1.999", "2.0", "2.999", "3.0", "99999.0"])
def test_a_version_out_of_range_is_not_acceptable_and_the_range_is_said(
    scheme: VersionScheme, asked: str
) -> None:
    answer = client_of(scheme).get("/", headers={HEADER: f"{scheme.service} {asked}"})
    assert answer.status_code == 406
    assert text(scheme.minimum) in answer.text
    assert text(scheme.maximum) in answer.text


def test_several_headers_are_read_as_one() -> None:
    headers = [(HEADER, "compute 2.5"), (HEADER, "placement 1.9")]
    assert client_of(PLACEMENT).get("/", headers=headers).json() == {"version": "1.9"}
    assert client_of(COMPUTE).get("/", headers=headers).json() == {"version": "2.5"}


def test_computes_older_header_is_read_where_the_newer_says_nothing() -> None:
    client = client_of(COMPUTE)
    assert client.get("/", headers={OLDER: "2.5"}).json() == {"version": "2.5"}
    assert client.get("/", headers={OLDER: "2.5"}).headers[OLDER] == "2.5"
    assert client.get("/", headers={OLDER: "2.5", HEADER: "compute 2.9"}).json() == {"version": "2.9"}
    assert client.get("/", headers={OLDER: "2.5", HEADER: "placement 1.9"}).json() == {"version": "2.5"}
    assert OLDER in client.get("/").headers["Vary"]
