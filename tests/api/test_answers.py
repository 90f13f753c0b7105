"""The OpenAPI documents are true: real answers of every endpoint are of the types that they say, at every version."""

from typing import Any

import httpx
import msgspec

from moorage.api.versions import Version, text
from tests.api.requests import Ask, ask_of, more_of, prepare, send
from tests.support.cloud import TestCloud
from tests.support.documents import answer_of, declared, seen, versions_of
from tests.support.faces import Row, app_of, rows_of
from tests.support.roles import credentials_of
from tests.support.undo import UndoDatabase
from tests.support.world import World, make_world

CALLERS = ("host", "admin", "member")


async def ask(
    app: Any, world: World, row: Row, version: Version, credential: dict[str, str], what: Ask
) -> httpx.Response:
    """Send the endpoint's request at a version; it changes nothing."""
    headers = dict(credential)
    if row.version is not None:
        headers["OpenStack-API-Version"] = f"{row.port} {text(version)}"
    return await send(app, prepare(world, row, what), headers)


def _body(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()
    return answer.text


class Found(msgspec.Struct):
    """What was wrong with answers, the fields that they may have, and those that they had."""

    wrong: list[str] = []
    declared: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()

    def add(self, row: Row, version: Version, answer: httpx.Response) -> None:
        said, body = answer_of(row, answer.status_code, version), _body(answer)
        faults = [*said.faults(body), *said.wrong_headers(answer.headers)]
        self.wrong += [f"{row.name} at {text(version)}: {fault}" for fault in faults]
        if said.schema is not None:
            self.declared |= declared(said.schema)
            self.seen |= set(seen(said.schema, body))


# Values that handlers answer as they are, so that their types are theirs; what is in them depends on what went wrong.
AS_THEY_ARE = {
    "Command", "FailedCondition", "Failure", "HostSpec", "ProviderSpec", "Reason", "Refusal", "Stock", "StepView", "Undone", "Wait",
}  # fmt: skip
# In no answer here: they need a server that failed, or a host that has told of its guests since it has some.
RARE = {
    (of, field)
    for fields, types in {
        ("fault",): ("DetailedServer", "ShownServer", "ServerAsChanged"),
        ("code", "message", "created", "details"): ("ServerFault",),
        ("server_id", "power_state", "verdict"): ("JudgedGuest",),
    }.items()
    for field in fields
    for of in types
}


async def test_every_answer_is_of_the_type_that_the_document_says(
    cloud: TestCloud, database: UndoDatabase, image_id: str
) -> None:
    world = await make_world(cloud, database, image_id)
    callers = await credentials_of(cloud)
    found = Found()
    for row in rows_of(cloud.cloud):
        app = app_of(cloud.cloud, row)
        for version in versions_of(row):
            usual = ask_of(world, row, version)
            answers = [await ask(app, world, row, version, callers[caller], usual) for caller in CALLERS]
            if not any(answer.is_success for answer in answers):
                found.wrong.append(
                    f"{row.name} at {text(version)}: nobody had a good answer: {answers[-1].text}"
                )
            answers += [
                await ask(app, world, row, version, callers[caller], more)
                for more in more_of(world, row)
                for caller in ("admin", "member")
            ]
            for answer in answers:
                if answer.is_success:
                    found.add(row, version, answer)
    assert not found.wrong, "\n".join(found.wrong)
    never = {
        (of, name) for of, name in found.declared - found.seen if of.rpartition(".")[2] not in AS_THEY_ARE
    }
    assert not never - RARE, (
        f"no answer has these, give them a request in tests/api/requests.py: {sorted(never - RARE)}"
    )
