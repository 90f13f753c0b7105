"""The world of ``world``, in a fresh database; conductors are ended with the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from moorage.operations import Runner
from moorage.store.database import Database
from moorage.store.signals import Signals
from operations.world import World

Conductor = Callable[..., Awaitable[Runner]]


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE marks (subject text, name text, PRIMARY KEY (subject, name))")
    signals = Signals(database)
    await signals.start()
    yield World(database, signals)
    await signals.stop()


@pytest.fixture
async def conductor(world: World) -> AsyncIterator[Conductor]:
    """Start one more conductor."""
    started: list[Runner] = []

    async def start(**changes: Any) -> Runner:
        found = world.runner(**changes)
        started.append(found)
        await found.start()
        return found

    yield start
    for each in started:
        await each.kill()
