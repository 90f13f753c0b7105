"""Fixtures that every suite shares: one PostgreSQL a session, a fresh database a test."""

import importlib
import itertools
import os
import pkgutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

import moorage
from moorage.core import log
from moorage.store.database import Database
from moorage.store.embedded import FAST, EmbeddedPostgres
from moorage.store.schema import metadata

log.configure(level="WARNING")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One embedded PostgreSQL for the whole session, without durability."""
    # Unix socket paths are short (107 bytes), so the folder is not below a deep temporary path.
    server = EmbeddedPostgres(tmp_path_factory.mktemp("pg"), FAST)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres) -> str:
    """The name of a database with every table and no rows, to be copied."""
    import sqlalchemy as sa

    for module in pkgutil.walk_packages(moorage.__path__, "moorage."):
        if module.name.endswith(".tables"):
            importlib.import_module(module.name)
    name = f"template_{os.getpid()}"
    postgres.create(name)
    engine = sa.create_engine(postgres.url(name).replace("postgresql://", "postgresql+psycopg://"))
    metadata.create_all(engine)
    engine.dispose()
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
