"""Every operation of every API over its real listener, sent what no client should send, by every kind of caller.

No answer is a 5xx, none takes for ever, each has a status and a body that the operation's document has, all have headers
that HTTP allows, and none that another project gets has the first one's data in it: its things' free texts carry a mark,
and their ids are known. What is found is mended and gets a test of its kind where the rule is: `tests/api/test_kit.py`,
`tests/store`, the API's own.

`make test` sends the same few each time; `make fuzz EXAMPLES=n` more, and others.
"""

import asyncio
import re
from functools import cache

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.server.documents import FACES, openapi
from tests.fuzz.asks import Asked, Operation, asks, operations
from tests.fuzz.conftest import CALLERS, Target
from tests.support.cloud import whole
from tests.support.faces import rows_of
from tests.support.world import MARK

STRANGERS = ("other reader", "other member", "nobody")
# Those who get furthest are asked most; beside them, everybody.
OFTEN = {
    "agent": ("host", "host", "nobody"),
    "control": ("other reader", "other member", "admin"),
    "placement": ("other member", "admin", "service"),
    "compute": ("other reader", "other member", "member", "member", "admin"),
    "network": ("other reader", "other member", "member", "member", "admin"),
    "service": ("nobody",),
}
# What any operation may answer beside what its document names: the request's fault, never the server's.
COMMON = {400, 401, 403, 404, 405, 406, 409, 412, 413, 414, 415, 429, 431}
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


def check(target: Target, operation: Operation, asked: Asked, caller: str, answer: httpx.Response) -> None:
    sent = f"{caller} sent {asked.method} {asked.url[:500]} {asked.headers} {str(asked.body)[:1000]}"
    named = str(answer.status_code) in operation.statuses
    # Only /healthcheck names one, for a process that is not ready: a machine under load may have one for a moment.
    assert answer.status_code < 500 or named, f"{sent}: {answer.text[:500]}"
    for name, value in answer.headers.items():
        assert _HEADER.match(value), f"{sent}: {name}: {value!r}"
    assert named or answer.status_code in COMMON, f"{sent}: the document has no {answer.status_code}"
    if "fields=" not in asked.url:  # Networking's, which picks attributes of an answer
        operation.schema.validate_response(answer)
    if caller in STRANGERS:
        given_ = f"{asked.url} {asked.body}"
        told = f"{answer.headers} {answer.text}"
        leaked = [s for s in _secrets(target) if s in told and s not in given_]
        assert not leaked, f"{sent}: {leaked} in {told[:2000]}"


def requests_of(target: Target, operation: Operation) -> st.SearchStrategy[tuple[str, Asked]]:
    """Who sends what."""
    often = OFTEN[operation.api]
    callers = st.one_of(*([st.sampled_from(often)] * 4), st.sampled_from(CALLERS))

    def asked_by(caller: str) -> st.SearchStrategy[tuple[str, Asked]]:
        found = asks(operation, target.world, marked=caller not in STRANGERS)
        return found.map(lambda asked: (caller, asked))

    return callers.flatmap(asked_by)


def examples(request: pytest.FixtureRequest, usual: int) -> settings:
    number = request.config.getoption("--fuzz-examples")
    return settings(
        max_examples=number or usual,
        derandomize=not number,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("label", LABELS)
def test_no_request_breaks_an_endpoint_or_shows_anothers_things(
    label: str, target: Target, request: pytest.FixtureRequest
) -> None:
    operation = _operations(target)[label]

    @examples(request, 8)
    @given(requests_of(target, operation))
    def run(sent: tuple[str, Asked]) -> None:
        caller, asked = sent
        check(target, operation, asked, caller, target.send(operation.port, asked, caller))

    run()


# What a user may write and does not end the things that the world is made of.
KEPT = [
    label
    for label in LABELS
    if label.split(" ")[:2]
    in (["compute", "POST"], ["compute", "PUT"], ["network", "POST"], ["network", "PUT"])
]
LISTS = {
    "compute": ("/servers/detail", "/os-keypairs", "/os-server-groups", "/flavors/detail"),
    "network": ("/networks", "/subnets", "/ports", "/security-groups", "/security-group-rules"),
}


def test_what_was_accepted_is_read_without_fault_and_leaves_the_cloud_whole(
    target: Target, request: pytest.FixtureRequest
) -> None:
    operations_ = [_operations(target)[label] for label in KEPT]
    tried = st.sampled_from(operations_).flatmap(
        lambda operation: st.tuples(st.just(operation), asks(operation, target.world, marked=True))
    )

    @examples(request, 150)
    @given(tried)
    def run(sent: tuple[Operation, Asked]) -> None:
        operation, asked = sent
        keep = not (isinstance(asked.body, dict) and "forceDelete" in asked.body)
        check(target, operation, asked, "member", target.send(operation.port, asked, "member", keep=keep))

    run()
    target.run(_is_whole(target))


async def _is_whole(target: Target) -> None:
    """What was begun comes to its end, everything can be listed, and the audit finds nothing."""
    admin, open_ = await target.cloud.client("admin"), "/moorage/v1/operations?state=open&limit=1000"
    async with asyncio.timeout(180):
        # At one look: between two, an operation may go from a state still to be asked for to one that was.
        while any(each["state"] != "stuck" for each in (await admin.get("compute", open_))["operations"]):
            await asyncio.sleep(0.1)
    for user in ("demo", "admin"):
        client = await target.cloud.client(user)
        for api, paths in LISTS.items():
            for path in paths:
                every = "?all_tenants=1" if user == "admin" and path.startswith("/servers") else ""
                await client.get(api, path + every, version="2.96" if api == "compute" else None)
    # The world has an operation that is stuck about nothing.
    await whole(target.database, but=target.world.stuck)
