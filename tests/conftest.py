"""Fixtures that every suite shares: one PostgreSQL a session, a fresh database a test; a Keystone and a Glance."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import aiohttp
import hypothesis
import psycopg
import pytest

from moorage.core import log
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import FAST, EmbeddedPostgres
from tests.support.identity import Identity
from tests.support.identity import identity as running_identity

log.configure(level="WARNING")
# The same examples each time, so that what fails has been changed; `--hypothesis-profile=explore` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("explore", database=None, deadline=None)
hypothesis.settings.load_profile("same")
_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write", action="store_true", help="write the files that follow from the code, not compare"
    )
    parser.addoption(
        "--fuzz-examples",
        type=int,
        default=0,
        help="requests an operation, random ones; default: the same few",
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """One embedded PostgreSQL for the whole session, without durability."""
    # Unix socket paths are short (107 bytes), so the folder is not below a deep temporary path.
    folder = Path(tempfile.mkdtemp(prefix="moorage-pg-"))
    server = EmbeddedPostgres(folder / "data", FAST)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres) -> str:
    """The name of a database that the migrations made, to be copied."""
    name = f"template_{os.getpid()}"
    postgres.create(name)
    migrations.upgrade(postgres.url(name))
    return name


class Copies:
    """Databases with all tables. The next one is made while a test runs: a copy takes a tenth of a second."""

    def __init__(self, postgres: EmbeddedPostgres, template: str) -> None:
        self._make_one = f'CREATE DATABASE "{{}}" TEMPLATE "{template}" STRATEGY file_copy'
        self._admin = psycopg.connect(postgres.url(), autocommit=True)
        self._worker = ThreadPoolExecutor(1, "copies")
        self._next = self._worker.submit(self._make)
        self._dropped: list[Future[None]] = []

    async def take(self) -> str:
        """The name of one."""
        taken, self._next = self._next, self._worker.submit(self._make)
        return await asyncio.wrap_future(taken)

    def drop(self, name: str) -> None:
        """Somebody has done with it; returns at once."""
        self._dropped.append(self._worker.submit(self._execute, f'DROP DATABASE "{name}" WITH (FORCE)'))

    def close(self) -> None:
        """Raises what went wrong with a drop."""
        self._worker.shutdown()
        self._admin.close()
        for each in self._dropped:
            each.result()

    def _make(self) -> str:
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self._execute(self._make_one.format(name))
        return name

    def _execute(self, statement: str) -> None:
        self._admin.execute(statement.encode())


@pytest.fixture(scope="session")
def copies(postgres: EmbeddedPostgres, template: str) -> Iterator[Copies]:
    found = Copies(postgres, template)
    yield found
    found.close()


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres, copies: Copies) -> AsyncIterator[str]:
    """The URL of a fresh database with all tables."""
    name = await copies.take()
    yield postgres.url(name)
    copies.drop(name)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open Database over a fresh one."""
    found = Database(database_url)
    await found.open()
    yield found
    await found.close()


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
    yield ready.result(600)
    loop.call_soon_threadsafe(stop.set)
    thread.join()  # it ends: what does not stop by itself is killed
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
