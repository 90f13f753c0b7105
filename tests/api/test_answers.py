"""The OpenAPI documents are true: real answers of every endpoint are of the types that they say, at every version."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from moorage.api.versions import Version, text
from tests.api.requests import prepare
from tests.support.cloud import TestCloud, running_cloud
from tests.support.documents import answer_of, seen, versions_of
from tests.support.faces import Row, app_of, rows_of
from tests.support.identity import Identity
from tests.support.roles import credentials_of, shown
from tests.support.undo import UndoDatabase, undoing
from tests.support.world import World, make_world

CALLERS = ("host", "admin", "member")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[UndoDatabase]:
    found = UndoDatabase(database_url)
    await found.open()
    yield found
    await found.close()


@pytest.fixture
async def cloud(database: UndoDatabase, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity, hosts=2) as found:
        yield found


async def ask(
    app: Any, world: World, row: Row, version: Version, credential: dict[str, str]
) -> httpx.Response:
    """Send the endpoint's request at a version; it changes nothing."""
    sent = prepare(world, row, version)
    headers = {**sent.headers, **credential}
    if row.version is not None:
        headers["OpenStack-API-Version"] = f"{row.port} {text(version)}"
    transport = httpx.ASGITransport(shown(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud", trust_env=False) as client:
        message = client.build_request(sent.method, sent.url, headers=headers, json=sent.body)
        if not sent.undone:
            return await client.send(message)
        with undoing():
            return await client.send(message)


def _body(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()
    return answer.text


async def test_every_answer_is_of_the_type_that_the_document_says(
    cloud: TestCloud, database: UndoDatabase, image_id: str
) -> None:
    world = await make_world(cloud, database, image_id)
    callers = await credentials_of(cloud)
    wrong: list[str] = []
    fields: set[tuple[str, str]] = set()
    for row in rows_of(cloud.cloud):
        app = app_of(cloud.cloud, row)
        for version in versions_of(row):
            good = 0
            for caller in CALLERS:
                answer = await ask(app, world, row, version, callers[caller])
                if not answer.is_success:
                    last = answer.text[:200]
                    continue
                good += 1
                said = answer_of(row, answer.status_code, version)
                body = _body(answer)
                wrong += [f"{row.name} at {text(version)}: {fault}" for fault in said.faults(body)]
                if said.schema is not None:
                    fields |= set(seen(said.schema, body))
            if not good:
                wrong.append(f"{row.name} at {text(version)}: nobody had a good answer: {last}")
    assert not wrong, "\n".join(wrong)
