"""A Keystone and a Glance for the whole session, with one small image."""

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import aiohttp
import pytest

from moorage.store.embedded import EmbeddedPostgres
from tests.support.identity import Identity
from tests.support.identity import identity as running_identity


@pytest.fixture(scope="session")
def identity(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Identity]:
    """They live in a loop of their own, as each test has its own."""
    ready: Future[Identity] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        try:
            async with running_identity(
                postgres.url(), Path(tmp_path_factory.mktemp("upstream")), images=True
            ) as found:
                ready.set_result(found)
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    def run() -> None:
        with contextlib.suppress(BaseException):
            loop.run_until_complete(main())

    thread = threading.Thread(target=run, name="upstreams")
    thread.start()
    yield ready.result(180)
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


@pytest.fixture(scope="session")
def image_id(identity: Identity) -> str:
    """A 1 KiB raw image that everybody may boot."""

    async def upload() -> str:
        headers = {"X-Auth-Token": await identity.token("admin")}
        async with aiohttp.ClientSession(headers=headers) as session:
            body = {"name": "tiny", "disk_format": "raw", "container_format": "bare", "visibility": "public"}
            async with session.post(f"{identity.image_url}/v2/images", json=body) as answer:
                found = str((await answer.json())["id"])
            data = hashlib.sha256(b"tiny").digest() * 32
            octets = {"Content-Type": "application/octet-stream"}
            async with session.put(
                f"{identity.image_url}/v2/images/{found}/file", data=data, headers=octets
            ) as answer:
                assert answer.status == 204
            return found

    return asyncio.run(upload())
