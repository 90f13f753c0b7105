"""Who may do what: every endpoint of the running application, asked by every kind of caller with a real credential.

The answers are `authorisation.txt`. A new endpoint, or another answer, shows in its difference; `make generated` writes
it anew, and the difference is what a reviewer reads.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.api.requests import ASKS, prepare
from tests.support.cloud import TestCloud, running_cloud
from tests.support.faces import Row, app_of, rows_of
from tests.support.generated import compare
from tests.support.identity import Identity
from tests.support.roles import CALLERS, credentials_of, shown
from tests.support.undo import UndoDatabase, undoing
from tests.support.world import World, make_world

FILE = Path(__file__).with_name("authorisation.txt")
HEAD = f"""\
# Who may do what. Made by `make generated` from what the running application answers; compared by test_authorisation.py.
# All things belong to one project. Its own users are reader, member, manager and admin; "other" are another project's.
# Lists and creations of others are about their own project. ok: an answer of 2xx; otherwise the status.
# Columns: {", ".join(CALLERS)}.
"""
Answers = dict[str, tuple[int, ...]]


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


async def ask(app: object, world: World, row: Row, credential: dict[str, str]) -> int:
    """Send the endpoint's request as one caller; it changes nothing."""
    sent = prepare(world, row)
    transport = httpx.ASGITransport(shown(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud", trust_env=False) as client:
        message = client.build_request(
            sent.method, sent.url, headers={**sent.headers, **credential}, json=sent.body
        )
        if not sent.undone:
            return (await client.send(message)).status_code
        with undoing():
            return (await client.send(message)).status_code


def line(name: str, statuses: tuple[int, ...], width: int) -> str:
    cells = " ".join("ok " if 200 <= s < 300 else str(s) for s in statuses)
    return f"{name:<{width}} {cells}".rstrip()


async def test_every_endpoint_answers_each_caller_as_the_table_says(
    cloud: TestCloud, database: UndoDatabase, image_id: str, request: pytest.FixtureRequest
) -> None:
    world = await make_world(cloud, database, image_id)
    callers = await credentials_of(cloud)
    answers: Answers = {}
    for row in rows_of(cloud.cloud):
        app = app_of(cloud.cloud, row)
        answers[row.name] = tuple([await ask(app, world, row, callers[name]) for name in CALLERS])
    # Each request is one that somebody may send: a refusal says something about the caller, not about the request.
    nobody = [name for name, found in answers.items() if not any(200 <= s < 300 for s in found)]
    assert not nobody, f"give these a request in tests/api/requests.py that can succeed: {nobody}"
    width = max(map(len, answers))
    text = HEAD + "".join(line(name, found, width) + "\n" for name, found in answers.items())
    compare(FILE, text, write=request.config.getoption("--write"))


def test_no_request_is_for_an_endpoint_that_is_gone() -> None:
    known = [each.partition(" ")[2] for each in FILE.read_text().splitlines()]
    gone = [name for name in ASKS if not any(k.startswith(f"{name} ") for k in known)]
    assert not gone, gone
