"""Parameters that our own routes do not have: a client that misspells one is told, and not answered something else."""

from moorage.server.control import PREFIX
from tests.api.requests import Ask, prepare, send
from tests.support.cloud import TestCloud
from tests.support.faces import app_of, rows_of
from tests.support.roles import credentials_of
from tests.support.undo import UndoDatabase
from tests.support.world import make_world


async def test_every_route_of_our_own_refuses_a_parameter_that_it_does_not_have(
    cloud: TestCloud, database: UndoDatabase, image_id: str
) -> None:
    world = await make_world(cloud, database, image_id)
    admin = (await credentials_of(cloud))["admin"]
    rows = [row for row in rows_of(cloud.cloud) if row.path.startswith(PREFIX)]
    wrong = []
    for row in rows:
        answer = await send(app_of(cloud.cloud, row), prepare(world, row, Ask(query="colour=red")), admin)
        if answer.status_code != 400 or "colour" not in answer.text:
            wrong.append(f"{row.name}: {answer.status_code} {answer.text[:100]}")
    assert f"control GET {PREFIX}/audit" in [row.name for row in rows]
    assert not wrong, "\n".join(wrong)
