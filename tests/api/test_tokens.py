"""Tokens are checked by Keystone, and what it said is remembered: how often it is asked, and for how long it is believed.

Keystone is played by a server that counts, over real HTTP: the real one cannot be held in the middle of an answer.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from moorage.api.auth import KeystoneAuthenticator, ServiceToken
from moorage.core.errors import Unauthorized, Unavailable

PATIENCE = 60.0


class Keystone:
    """Tokens that begin with ``good`` are of the project of that name; ``asked`` counts the questions for each.

    expires     how long tokens are still valid, by token
    status      what it answers instead, while it is not None
    refused     tokens of the service user that count no more
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.logins = 0
        self.expires: dict[str, timedelta] = {}
        self.status: int | None = None
        self.refused: set[str] = set()
        self.open = asyncio.Event()
        self.open.set()

    async def login(self, _request: web.Request) -> web.Response:
        self.logins += 1
        name = f"service-{self.logins}"
        await self.open.wait()
        until = datetime.now(UTC) + timedelta(hours=1)
        body = {"token": {"expires_at": until.isoformat()}}
        return web.json_response(body, status=201, headers={"X-Subject-Token": name})

    async def show(self, request: web.Request) -> web.Response:
        if request.headers["X-Auth-Token"] in self.refused:
            return web.json_response({}, status=401)
        token = request.headers["X-Subject-Token"]
        self.asked[token] += 1
        await self.open.wait()
        if self.status is not None:
            return web.json_response({}, status=self.status)
        if not token.startswith("good"):
            return web.json_response({}, status=404)
        until = datetime.now(UTC) + self.expires.get(token, timedelta(hours=1))
        user = {"id": "u", "name": "u", "domain": {"id": "default"}}
        project = {"id": token, "name": token, "domain": {"id": "default"}}
        found = {
            "expires_at": until.isoformat(),
            "user": user,
            "project": project,
            "roles": [{"name": "member"}],
        }
        return web.json_response({"token": found})


@pytest.fixture
def keystone() -> Keystone:
    return Keystone()


@pytest.fixture
async def service(keystone: Keystone) -> AsyncIterator[ServiceToken]:
    app = web.Application()
    app.router.add_post("/v3/auth/tokens", keystone.login)
    app.router.add_get("/v3/auth/tokens", keystone.show)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    found = ServiceToken(f"http://127.0.0.1:{port}/v3", username="moorage", password="secret")
    yield found
    await found.close()
    await runner.cleanup()


async def project(authenticate: KeystoneAuthenticator, token: str) -> str | None:
    return (await authenticate({"x-auth-token": token}, "req-1")).project_id


async def asked(keystone: Keystone, token: str, times: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while keystone.asked[token] < times:
            await asyncio.sleep(0.01)


async def test_many_requests_with_one_new_token_ask_once(keystone: Keystone, service: ServiceToken) -> None:
    authenticate = KeystoneAuthenticator(service)
    await project(authenticate, "good-0")
    keystone.open.clear()
    requests = [asyncio.create_task(project(authenticate, "good")) for _ in range(50)]
    await asked(keystone, "good", 1)
    keystone.open.set()
    assert await asyncio.gather(*requests) == ["good"] * 50
    assert await project(authenticate, "good") == "good"
    assert keystone.asked["good"] == 1


async def test_many_new_tokens_at_once_need_one_token_of_the_service_user(
    keystone: Keystone, service: ServiceToken
) -> None:
    authenticate = KeystoneAuthenticator(service)
    names = [f"good-{n}" for n in range(20)]
    assert await asyncio.gather(*(project(authenticate, name) for name in names)) == names
    assert keystone.logins == 1
    assert set(keystone.asked.values()) == {1}


async def test_a_request_that_ends_early_does_not_take_the_others_with_it(
    keystone: Keystone, service: ServiceToken
) -> None:
    authenticate = KeystoneAuthenticator(service)
    keystone.open.clear()
    first = asyncio.create_task(project(authenticate, "good"))
    async with asyncio.timeout(PATIENCE):
        while not keystone.logins:
            await asyncio.sleep(0.01)
    second = asyncio.create_task(project(authenticate, "good"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    keystone.open.set()
    assert await second == "good"
    assert keystone.asked["good"] == 1


async def test_no_more_tokens_are_remembered_than_the_cache_holds_and_those_used_last_stay(
    keystone: Keystone, service: ServiceToken
) -> None:
    authenticate = KeystoneAuthenticator(service, cache_size=3)
    for token in ("good-a", "good-b", "bad-c", "good-a", "good-d", "good-a"):
        if token.startswith("bad"):
            with pytest.raises(Unauthorized):
                await project(authenticate, token)
        else:
            assert await project(authenticate, token) == token
    assert keystone.asked == {"good-a": 1, "good-b": 1, "bad-c": 1, "good-d": 1}
    # Of the three, b was the one that was not used for the longest time.
    await project(authenticate, "good-b")
    assert keystone.asked["good-b"] == 2
    for n in range(100):
        await project(authenticate, f"good-{n}")
    for n in range(97):
        await project(authenticate, f"good-{n}")
    assert {keystone.asked[f"good-{n}"] for n in range(97)} == {2}


@pytest.mark.parametrize("token", ["good", "bad"])
async def test_an_answer_is_believed_for_as_long_as_it_is_kept_and_then_asked_for_again(
    keystone: Keystone, service: ServiceToken, token: str
) -> None:
    async def ask(authenticate: KeystoneAuthenticator) -> None:
        if token == "bad":
            with pytest.raises(Unauthorized):
                await project(authenticate, token)
        else:
            await project(authenticate, token)

    long = KeystoneAuthenticator(service, cache_seconds=3600)
    for _ in range(3):
        await ask(long)
    assert keystone.asked[token] == 1
    short = KeystoneAuthenticator(service, cache_seconds=0.05)
    async with asyncio.timeout(PATIENCE):
        while keystone.asked[token] < 3:
            await ask(short)
            await asyncio.sleep(0.01)


async def test_no_token_is_believed_beyond_its_end(keystone: Keystone, service: ServiceToken) -> None:
    authenticate = KeystoneAuthenticator(service, cache_seconds=3600)
    keystone.expires = {"good-past": timedelta(seconds=-1), "good-soon": timedelta(seconds=0.2)}
    for _ in range(3):
        await project(authenticate, "good-past")
    assert keystone.asked["good-past"] == 3
    async with asyncio.timeout(PATIENCE):
        while keystone.asked["good-soon"] < 2:
            await project(authenticate, "good-soon")
            await asyncio.sleep(0.01)


async def test_a_keystone_that_fails_is_said_to_and_asked_again(
    keystone: Keystone, service: ServiceToken
) -> None:
    authenticate = KeystoneAuthenticator(service)
    keystone.status = 500
    with pytest.raises(Unavailable):
        await project(authenticate, "good")
    keystone.status = None
    assert await project(authenticate, "good") == "good"


async def test_a_token_of_the_service_user_that_is_refused_is_replaced(
    keystone: Keystone, service: ServiceToken
) -> None:
    authenticate = KeystoneAuthenticator(service)
    await project(authenticate, "good-0")
    keystone.refused.add("service-1")
    assert await asyncio.gather(*(project(authenticate, f"good-{n}") for n in range(1, 9))) == [
        f"good-{n}" for n in range(1, 9)
    ]
    assert keystone.logins == 2
