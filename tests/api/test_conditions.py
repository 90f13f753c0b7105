"""Requests that hold only if nothing has changed: every endpoint whose document has If-Match."""

from typing import Any

from tests.api.requests import prepare, send
from tests.support.cloud import TestCloud
from tests.support.documents import operation
from tests.support.faces import Row, app_of, rows_of
from tests.support.undo import UndoDatabase
from tests.support.world import World, make_world


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
    headers = {"X-Auth-Token": await cloud.identity.token("demo"), "If-Match": condition}
    return (await send(app_of(cloud.cloud, row), prepare(world, row), headers)).status_code
