"""The rate of each project: what a noisy one may do, and that others do not notice."""

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from moorage.api import Api, Call, Endpoint, RequestContext
from moorage.api.faults import STYLES
from moorage.api.policy import Policies
from moorage.api.rates import ProjectRates, Rate, rated
from moorage.core.errors import TooManyRequests, Unavailable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def caller(project: str, *roles: str) -> RequestContext:
    return RequestContext(request_id="", project_id=project, roles=frozenset(roles))


def refused(rates: ProjectRates, who: RequestContext) -> int | None:
    """The seconds to wait, or None where the request is let in."""
    try:
        rates.take(who)
    except TooManyRequests as error:
        return error.retry_after
    return None


def test_a_burst_is_let_in_then_requests_at_the_rate() -> None:
    clock = Clock()
    rates = ProjectRates(Rate(requests=0.5, burst=3), clock=clock)
    noisy, other = caller("noisy"), caller("other")
    assert [refused(rates, noisy) for _ in range(5)] == [None, None, None, 2, 2]
    assert refused(rates, other) is None
    clock.now += 1
    assert refused(rates, noisy) == 1
    clock.now += 1
    assert [refused(rates, noisy) for _ in range(2)] == [None, 2]
    clock.now += 1000
    assert [refused(rates, noisy) for _ in range(4)] == [None, None, None, 2]


def test_exempt_roles_are_not_counted_and_a_caller_without_project_counts_for_itself() -> None:
    rates = ProjectRates(Rate(requests=1, burst=1, exempt_roles=frozenset({"admin"})), clock=Clock())
    assert [refused(rates, caller("p", "admin")) for _ in range(5)] == [None] * 5
    assert len(rates) == 0
    first, second = (RequestContext(request_id="", user_id=user) for user in "ab")
    assert [refused(rates, who) for who in (first, first, second)] == [None, 1, None]


def test_the_table_of_projects_is_bounded() -> None:
    rates = ProjectRates(Rate(requests=1, burst=1), size=100, clock=Clock())
    for n in range(1000):
        assert refused(rates, caller(f"p{n}")) is None
    assert len(rates) == 100
    assert refused(rates, caller("p999")) == 1


async def show(call: Call[Any]) -> Any:
    return {}


async def lost(call: Call[Any]) -> Any:
    raise Unavailable("the database does not answer", retry_after=7)


async def by_header(headers: Mapping[str, str], request_id: str) -> RequestContext:
    return caller(headers["x-auth-token"])


@pytest.mark.parametrize("style", sorted(STYLES))
def test_the_answer_says_when_to_try_again_in_each_apis_shape(style: str) -> None:
    authenticate = rated(by_header, ProjectRates(Rate(requests=0.001, burst=2)))
    policies = Policies({"see": "@"})
    table = (Endpoint("GET", "/things", show, "see"), Endpoint("GET", "/lost", lost))
    api = Api("things", None, table, style, None, policies=policies, authenticate=authenticate)
    client = TestClient(api)
    answers = [client.get("/things", headers={"X-Auth-Token": "noisy"}) for _ in range(3)]
    assert [a.status_code for a in answers] == [200, 200, 429]
    assert 900 <= int(answers[-1].headers["retry-after"]) <= 1000
    assert "slow down" in answers[-1].text
    assert client.get("/things", headers={"X-Auth-Token": "other"}).status_code == 200
    unavailable = client.get("/lost")
    assert (unavailable.status_code, unavailable.headers["retry-after"]) == (503, "7")
