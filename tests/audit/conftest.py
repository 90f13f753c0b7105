"""The sound cloud of ``world``, in one database for all cases: each takes back what it changes."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from audit.world import World
from moorage.store.database import Database
from moorage.store.embedded import EmbeddedPostgres


@pytest.fixture(scope="module")
async def world(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[World]:
    name = f"{template}_audit"
    admin = await asyncpg.connect(postgres.url())
    await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    database = Database(postgres.url(name), size=2)
    await database.open()
    found = World(database)
    await found.fill()
    yield found
    await database.close()
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()
