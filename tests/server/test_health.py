"""What the checks of a control plane's health find."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from moorage.api.auth import ServiceToken
from moorage.server.health import Health, checks_of
from moorage.store.database import Database
from moorage.store.signals import Signals


@contextlib.asynccontextmanager
async def keystone(
    *, answers: bytes | None = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
) -> AsyncIterator[str]:
    """The URL of something that answers every request with these bytes, or never."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if answers is not None:
                writer.write(answers)
                await writer.drain()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class Parts:
    """A healthy control plane's parts, to be spoilt one by one."""

    def __init__(self, database: Database, url: str) -> None:
        self.database = database
        self.signals = Signals(database)
        self.signals.subscribe("test")
        self.keystone = ServiceToken(url, username="u", password="p")
        self.age = 1.0

    async def wrong(self, within: float = 60) -> dict[str, str | None]:
        """What a report says is wrong."""
        checks = checks_of(
            self.database, self.signals, self.keystone, index_age=lambda: self.age, oldest_index=30
        )
        report = await Health(checks, within=within).report()
        found = {each.name: each.reason for each in report.checks if not each.ok}
        assert report.ready == (not found)
        return found


@pytest.fixture
async def parts(database: Database) -> AsyncIterator[Parts]:
    async with keystone() as url:
        found = Parts(database, url)
        await found.signals.start()
        async with asyncio.timeout(120):
            while not found.signals.connected:
                await asyncio.sleep(0.01)
        yield found
        await found.signals.stop()
        await found.keystone.close()


async def test_all_is_well(parts: Parts) -> None:
    assert await parts.wrong() == {}


async def test_an_old_index_is_found(parts: Parts) -> None:
    parts.age = 31
    assert await parts.wrong() == {"index": "the placement index is 31 s old, it may be 30"}


async def test_an_older_schema_is_found_and_a_newer_one_is_no_fault(parts: Parts) -> None:
    async with parts.database.transaction() as tx:
        await tx.execute("UPDATE alembic_version SET version_num = 'from the future'")
    assert await parts.wrong() == {}
    async with parts.database.transaction() as tx:
        await tx.execute("DELETE FROM alembic_version")
    assert "moorage db upgrade" in str((await parts.wrong())["schema"])


async def test_lost_signals_are_found(parts: Parts) -> None:
    await parts.signals.stop()
    assert list(await parts.wrong()) == ["signals"]


async def test_a_database_that_does_not_answer_is_found(parts: Parts) -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    lost = Database(f"postgresql://nobody@127.0.0.1:{free.getsockname()[1]}/none")
    free.close()
    parts.database, whole = lost, parts.database
    found = await parts.wrong()
    assert set(found) == {"database", "schema"}
    parts.database = whole


@pytest.mark.parametrize("answers", [None, b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"])
async def test_a_keystone_that_does_not_answer_well_is_found(parts: Parts, answers: bytes | None) -> None:
    async with keystone(answers=answers) as url:
        parts.keystone, whole = ServiceToken(url, username="u", password="p"), parts.keystone
        # The other checks have this time too.
        found = await parts.wrong(within=60 if answers else 2)
        assert list(found) == ["keystone"]
        assert "503" in str(found["keystone"]) if answers else "no answer within" in str(found["keystone"])
        await parts.keystone.close()
        parts.keystone = whole


async def test_many_that_ask_at_once_cost_one_look() -> None:
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)

    health = Health({"look": look}, keep=60)
    reports = await asyncio.gather(*(health.report() for _ in range(50)))
    assert looks == 1
    assert all(report.ready for report in reports)
