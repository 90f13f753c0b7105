"""Requests that hold only if nothing has changed: every endpoint whose document has If-Match."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.api.requests import prepare
from tests.support.cloud import TestCloud, running_cloud
from tests.support.documents import operation
from tests.support.faces import Row, app_of, rows_of
from tests.support.identity import Identity
from tests.support.undo import UndoDatabase, undoing
from tests.support.world import World, make_world


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


async def test_what_was_read_at_another_revision_is_not_changed(
    cloud: TestCloud, database: UndoDatabase, image_id: str
) -> None:
    world = await make_world(cloud, database, image_id)
    rows = [row for row in rows_of(cloud.cloud) if "412" in operation(row)["responses"]]
    # Every resource of Networking can be changed and deleted so; rules of security groups are never changed.
    assert [f"{row.endpoint.method} {row.path}" for row in rows] == [
        f"{method} /v2.0/{plural}/{{id}}"
        for plural in ("networks", "subnets", "ports", "security-groups", "security-group-rules")
        for method in ("PUT", "DELETE")
        if (method, plural) != ("PUT", "security-group-rules")
    ]
    for row in rows:
        revision = await _revision(cloud, world, row)
        assert [
            await _asked(cloud, world, row, given)
            for given in (f"revision_number={revision + 1}", f"revision_number={revision}", f'"{revision}"')
        ] == [412, 204 if row.endpoint.method == "DELETE" else 200, 400], row.name


async def _revision(cloud: TestCloud, world: World, row: Row) -> int:
    path = prepare(world, row).url.removeprefix("/v2.0")
    shown: dict[str, Any] = await (await cloud.client("demo")).get("network", path)
    return int(next(iter(shown.values()))["revision_number"])


async def _asked(cloud: TestCloud, world: World, row: Row, condition: str) -> int:
    sent = prepare(world, row)
    headers = {"X-Auth-Token": await cloud.identity.token("demo"), "If-Match": condition}
    transport = httpx.ASGITransport(app_of(cloud.cloud, row))
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud", trust_env=False) as client:
        with undoing():
            answer = await client.request(sent.method, sent.url, headers=headers, json=sent.body)
    return answer.status_code
