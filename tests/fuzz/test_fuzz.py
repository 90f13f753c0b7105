"""Every operation of every API, sent what no client should send, by several callers.

No answer is a 5xx, none takes for ever, all have headers that HTTP allows, and none that another project gets has the
first one's data in it: its things' free texts carry a mark, and their ids are known. What is found is mended and gets a test
of its kind where the rule is: `tests/api/test_kit.py`, `tests/store`, the API's own.

`make test` sends the same few each time; `make fuzz EXAMPLES=n` more, and others.
"""

import re
from functools import cache

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.server.documents import FACES, openapi
from tests.fuzz.asks import Asked, Operation, asks, operations
from tests.fuzz.conftest import Target
from tests.support.faces import rows_of
from tests.support.world import MARK

STRANGERS = ("other reader", "other member")
CALLERS = {
    "agent": ("host", "nobody"),
    "control": (*STRANGERS, "admin"),
    "placement": (*STRANGERS, "member", "service"),
    "compute": (*STRANGERS, "member", "member", "admin"),
    "network": (*STRANGERS, "member", "member", "admin"),
}
LABELS = [
    f"{api} {method.upper()} {path}"
    for api in FACES
    for path, methods in openapi(api)["paths"].items()
    for method in methods
]
_HEADER = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")


@cache
def _operations(target: Target) -> dict[str, Operation]:
    return {f"{each.api} {each.label}": each for each in operations(rows_of(target.cloud.cloud))}


def _secrets(target: Target) -> set[str]:
    """What a stranger never reads: the mark, and the ids of the project's and the operator's things."""
    world = target.world
    public = {world.flavor, world.image}
    values = {getattr(world, name) for name in world.__struct_fields__}
    return {MARK, *(v for v in values if len(v) > 8)} - public


def check(target: Target, asked: Asked, caller: str, answer: httpx.Response, statuses: set[str]) -> None:
    sent = f"{caller} sent {asked.method} {asked.url[:500]} {asked.headers} {str(asked.body)[:1000]}"
    assert answer.status_code < 500, f"{sent}: {answer.text[:500]}"
    for name, value in answer.headers.items():
        assert _HEADER.match(value), f"{sent}: {name}: {value!r}"
    if answer.is_success:
        assert str(answer.status_code) in statuses, f"{sent}: the document has no {answer.status_code}"
    elif asked.method != "HEAD":
        assert answer.headers["content-type"] == "application/json", sent
    if caller in STRANGERS:
        given_ = f"{asked.url} {asked.body}"
        leaked = [s for s in _secrets(target) if s in answer.text and s not in given_]
        assert not leaked, f"{sent}: {leaked} in {answer.text[:2000]}"


@pytest.mark.parametrize("label", LABELS)
def test_no_request_breaks_an_endpoint_or_shows_anothers_things(
    label: str, target: Target, request: pytest.FixtureRequest
) -> None:
    operation = _operations(target)[label]
    statuses = set(
        openapi(operation.api)["paths"][label.split(" ", 2)[2]][label.split(" ")[1].lower()]["responses"]
    )
    examples = request.config.getoption("--fuzz-examples")

    def asked_by(caller: str) -> st.SearchStrategy[tuple[str, Asked]]:
        found = asks(operation, target.world, marked=caller not in STRANGERS)
        return found.map(lambda asked: (caller, asked))

    callers = dict.fromkeys(CALLERS[operation.api])

    @settings(
        max_examples=examples or 15,
        derandomize=not examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(*(asked_by(caller) for caller in callers)))
    def run(sent: tuple[str, Asked]) -> None:
        caller, asked = sent
        check(target, asked, caller, target.send(operation.port, asked, caller), statuses)

    run()
