"""Failover: the primary dies and its synchronous standby is promoted; then the other way round."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.errors import StoreUnavailable
from moorage.store.signals import Signals
from tests.support.standby import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="moorage-pg-"))
    folder.chmod(0o711)
    found = Pair(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


async def test_a_promoted_standby_is_found_and_has_everything_that_was_committed(pair: Pair) -> None:
    await asyncio.to_thread(migrations.upgrade, pair.url)
    assert await asyncio.to_thread(migrations.missing, pair.url) == []
    database = Database(pair.url, acquire_timeout=2)
    await database.open()
    signals = Signals(database)
    subscription = signals.subscribe("things")
    await signals.start()
    assert await subscription.wait(120)
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE written (n integer)")

    acknowledged: list[int] = []
    unsure: set[int] = set()
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                async with database.transaction() as tx:
                    await tx.execute("INSERT INTO written VALUES ($1)", (number,))
                    await tx.notify("things")
            except StoreUnavailable:
                unsure.add(number)
                await asyncio.sleep(0.02)
            else:
                acknowledged.append(number)

    async def more(than: int) -> None:
        async with asyncio.timeout(180):
            while len(acknowledged) <= than:
                await asyncio.sleep(0.01)

    writer = asyncio.create_task(write())
    await more(50)
    await asyncio.to_thread(pair.lose_primary)
    async with asyncio.timeout(180):
        while not unsure:
            await asyncio.sleep(0.01)
    before = len(acknowledged)
    await asyncio.to_thread(pair.promote)
    await more(before + 50)
    # And back again: a new standby is made where the old primary was, and has its turn.
    await asyncio.to_thread(pair.renew)
    await asyncio.to_thread(pair.lose_primary)
    before = len(acknowledged)
    await asyncio.to_thread(pair.promote)
    await more(before + 50)
    stop.set()
    await writer

    async with database.read() as tx:
        found = {row[0] for row in await tx.fetch("SELECT n FROM written")}
        assert not (await tx.fetch("SELECT pg_is_in_recovery()"))[0][0]
    assert set(acknowledged) <= found
    assert found - set(acknowledged) <= unsure
    # The signals come from the new primary.
    async with asyncio.timeout(180):
        while True:
            async with database.transaction() as tx:
                await tx.notify("things")
            if await subscription.wait(0.5):
                break
    await signals.stop()
    await database.close()
