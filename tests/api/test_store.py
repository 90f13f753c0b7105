"""What the store's failures become over HTTP: tried again where that is safe, otherwise told in bounded time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from moorage.api import Api, Call, Endpoint, RequestContext
from moorage.api.policy import Policies
from moorage.core.errors import Unavailable
from moorage.store.database import Database, Tx

_MEETS = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{}'; END $$"


class App:
    """``meets``: how many transactions meet a concurrent one, and with which of PostgreSQL's codes."""

    def __init__(self, database: Database, meets: int, code: str) -> None:
        self.database = database
        self.meets = meets
        self.code = code
        self.begun = 0

    async def write(self, tx: Tx) -> None:
        self.begun += 1
        await tx.execute("INSERT INTO done VALUES ($1)", (self.begun,))
        if self.begun <= self.meets:
            await tx.execute(_MEETS.format(self.code))


async def once(call: Call[App]) -> Any:
    async with call.app.database.transaction() as tx:
        await call.app.write(tx)


async def twice(call: Call[App]) -> Any:
    async with call.app.database.transaction() as tx:
        await tx.execute("INSERT INTO done VALUES (0)")
    await once(call)


async def check(headers: Mapping[str, str], request_id: str) -> RequestContext:
    return RequestContext(request_id=request_id)


def client(app: App) -> httpx.AsyncClient:
    table = (Endpoint("POST", "/once", once), Endpoint("POST", "/twice", twice))
    api = Api("test", app, table, "control", None, policies=Policies({}), authenticate=check)
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test")


@pytest.fixture
async def done(database: Database) -> Database:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE done (n integer)")
    return database


async def rows(database: Database) -> list[int]:
    async with database.read() as tx:
        return [r[0] for r in await tx.fetch("SELECT n FROM done ORDER BY n")]


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_request_that_met_a_concurrent_one_is_begun_again(done: Database, code: str) -> None:
    async with client(App(done, 2, code)) as http:
        assert (await http.post("/once")).is_success
    assert await rows(done) == [3]


async def test_one_that_always_meets_another_is_told_so(done: Database) -> None:
    app = App(done, 1000, "40P01")
    async with client(app) as http:
        answer = await http.post("/once")
    assert answer.status_code == 409
    assert "again" in answer.text
    assert await rows(done) == []
    assert app.begun > 1


async def test_what_has_committed_something_is_not_begun_again(done: Database) -> None:
    async with client(App(done, 1, "40P01")) as http:
        assert (await http.post("/twice")).status_code == 409
    assert await rows(done) == [0]


async def test_when_every_connection_is_taken_the_answer_is_503_and_says_when_to_try_again(
    done: Database, database_url: str
) -> None:
    small = Database(database_url, size=2, acquire_timeout=1.0)
    await small.open()
    async with client(App(small, 0, "")) as http, small.read(), small.read():
        async with asyncio.timeout(120):
            answers = await asyncio.gather(*(http.post("/once") for _ in range(20)))
    assert {a.status_code for a in answers} == {Unavailable.status}
    assert all(int(a.headers["Retry-After"]) > 0 for a in answers)
    async with client(App(small, 0, "")) as http:
        assert (await http.post("/once")).is_success
    await small.close()
