"""One cloud for the whole folder, behind its real listeners, in a loop of its own: hypothesis' tests are synchronous."""

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

from moorage.agent import identity as agent_identity
from moorage.store.embedded import EmbeddedPostgres
from moorage.wire.tickets import CONTROL_NAME, Ticket
from tests.fuzz.asks import Asked
from tests.support.cloud import TestCloud, running_cloud
from tests.support.identity import Identity
from tests.support.roles import USERS, credentials_of
from tests.support.undo import UNDO, UndoCloud, UndoDatabase
from tests.support.world import World, make_world

_HANGS = 120.0  # seconds after which a request counts as hanging
# Agents know the control plane by this name, wherever it is.
_AGENTS = {"sni_hostname": CONTROL_NAME}
CALLERS = ("nobody", *USERS, "host")


class Target:
    """A running cloud with a world in it. ``send`` answers one request; whatever it writes is rolled back, unless it
    is to be kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.database: UndoDatabase
        self.cloud: TestCloud
        self.world: World
        self.credentials: dict[str, dict[str, str]]
        self._client: httpx.AsyncClient
        self._host: httpx.AsyncClient

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def send(self, port: str, asked: Asked, caller: str, *, keep: bool = False) -> httpx.Response:
        return self.run(self._send(port, asked, caller, keep=keep))

    async def _send(self, port: str, asked: Asked, caller: str, *, keep: bool) -> httpx.Response:
        headers = {**asked.headers, **(self.credentials[caller] if caller != "host" else {})}
        content = None if asked.body is msgspec.UNSET else _encoded(asked.body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        # The console is asked of the host, over the host's own connection: a question undone has no answer.
        asks_host = isinstance(asked.body, dict) and "os-getConsoleOutput" in asked.body
        if not keep and not asks_host:
            headers[UNDO] = "1"
        client = self._host if caller == "host" and port == "agent" else self._client
        async with asyncio.timeout(_HANGS):
            url = self.cloud.cloud.url(port) + asked.url
            return await client.request(
                asked.method,
                url,
                headers=headers,
                content=content,
                extensions=_AGENTS if port == "agent" else {},
            )

    async def start(
        self, stack: contextlib.AsyncExitStack, postgres: EmbeddedPostgres, identity: Identity, image: str
    ) -> None:
        """The cloud, its world, and a client for each kind of credential."""
        self.database = UndoDatabase(postgres.url("fuzz"))
        await self.database.open()
        stack.push_async_callback(self.database.close)
        self.cloud = await stack.enter_async_context(
            running_cloud(self.database, identity, hosts=2, kind=UndoCloud)
        )
        self.world = await make_world(self.cloud, self.database, image)
        self.credentials = await credentials_of(self.cloud)
        known = agent_identity.load(next(iter(self.cloud.fleet.agents.values())).settings.state_dir)
        assert known is not None
        for name, context in (
            ("_client", agent_identity.trusting(Ticket.parse(self.world.ticket))),
            ("_host", agent_identity.context_of(known)),
        ):
            made = httpx.AsyncClient(verify=context, trust_env=False, timeout=_HANGS)
            setattr(self, name, await stack.enter_async_context(made))


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
        await found.start(stack, postgres, identity, image_id)

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
