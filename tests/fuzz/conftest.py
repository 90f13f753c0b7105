"""One cloud for the whole folder, in a loop of its own: the tests here are driven by hypothesis, which is synchronous."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from moorage.store.embedded import EmbeddedPostgres
from tests.fuzz.asks import Asked
from tests.support.cloud import TestCloud, running_cloud
from tests.support.identity import Identity
from tests.support.roles import credentials_of
from tests.support.undo import UndoDatabase, undoing
from tests.support.world import World, make_world

_HANGS = 120.0  # seconds after which a request counts as hanging


class Target:
    """A running cloud with a world in it. ``send`` answers one request; whatever it writes is rolled back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.cloud: TestCloud
        self.world: World
        self.credentials: dict[str, dict[str, str]]
        self.clients: dict[str, httpx.AsyncClient]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def send(self, port: str, asked: Asked, caller: str) -> httpx.Response:
        return self.run(self._send(port, asked, caller))

    async def _send(self, port: str, asked: Asked, caller: str) -> httpx.Response:
        headers = {**asked.headers, **self.credentials[caller]}
        content = None if asked.body is msgspec.UNSET else _encoded(asked.body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        # The console is asked of the host, over the host's own connection: a question undone has no answer.
        asks_host = isinstance(asked.body, dict) and "os-getConsoleOutput" in asked.body
        async with asyncio.timeout(_HANGS):
            with contextlib.nullcontext() if asks_host else undoing():
                client = self.clients[port]
                return await client.request(asked.method, asked.url, headers=headers, content=content)


def _encoded(body: Any) -> bytes:
    # Python's encoder, as msgspec's refuses what a hostile client may send: lone surrogates, huge integers.
    return json.dumps(body).encode()


@pytest.fixture(scope="session")
def target(postgres: EmbeddedPostgres, template: str, identity: Identity, image_id: str) -> Iterator[Target]:
    loop = asyncio.new_event_loop()
    found = Target(loop)
    stack = contextlib.AsyncExitStack()

    async def start() -> None:
        admin = await asyncpg.connect(postgres.url())
        await admin.execute(f'CREATE DATABASE "fuzz" TEMPLATE "{template}" STRATEGY file_copy')
        await admin.close()
        database = UndoDatabase(postgres.url("fuzz"))
        await database.open()
        stack.push_async_callback(database.close)
        found.cloud = await stack.enter_async_context(running_cloud(database, identity, hosts=2))
        found.world = await make_world(found.cloud, database, image_id)
        found.credentials = await credentials_of(found.cloud)
        found.clients = {
            port: httpx.AsyncClient(
                transport=httpx.ASGITransport(found.cloud.cloud.front(app)),
                base_url="http://cloud",
                trust_env=False,
            )
            for port, app in found.cloud.cloud.apps.items()
        }

    thread = threading.Thread(target=loop.run_forever, name="fuzzed-cloud")
    thread.start()
    try:
        found.run(start())
        yield found
    finally:
        found.run(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
