"""Who may do what: every endpoint of the running application, asked by every kind of caller with a real credential.

The answers are `authorisation.txt`. A new endpoint, or another answer, shows in its difference; `make generated` writes
it anew, and the difference is what a reviewer reads.
"""

from pathlib import Path

import pytest

from tests.api.requests import ASKS, prepare, send
from tests.support.cloud import TestCloud
from tests.support.faces import app_of, rows_of
from tests.support.generated import compare
from tests.support.roles import CALLERS, credentials_of
from tests.support.undo import UndoDatabase
from tests.support.world import make_world

FILE = Path(__file__).with_name("authorisation.txt")
HEAD = f"""\
# Who may do what. Made by `make generated` from what the running application answers; compared by test_authorisation.py.
# All things belong to one project. Its own users are reader, member, manager and admin; "other" are another project's.
# Lists and creations of others are about their own project. ok: an answer of 2xx; otherwise the status.
# Columns: {", ".join(CALLERS)}.
"""
Answers = dict[str, tuple[int, ...]]


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
        answers[row.name] = tuple(
            [(await send(app, prepare(world, row), callers[name])).status_code for name in CALLERS]
        )
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
