from collections.abc import AsyncIterator

import pytest

from tests.support.cloud import TestCloud, running_cloud
from tests.support.identity import Identity
from tests.support.undo import UndoDatabase


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[UndoDatabase]:
    """A fresh one, in which requests can come to nothing (``undoing``)."""
    found = UndoDatabase(database_url)
    await found.open()
    yield found
    await found.close()


@pytest.fixture
async def cloud(database: UndoDatabase, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity, hosts=2) as found:
        yield found
