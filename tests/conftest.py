"""Fixtures that every suite shares: one PostgreSQL a session, a fresh database a test."""

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from moorage.core import log
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import FAST, EmbeddedPostgres

log.configure(level="WARNING")
_numbers = itertools.count()


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


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[str]:
    """The URL of a fresh database with all tables."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    admin = await asyncpg.connect(postgres.url())
    try:
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        yield postgres.url(name)
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await admin.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open Database over a fresh one."""
    found = Database(database_url)
    await found.open()
    yield found
    await found.close()
