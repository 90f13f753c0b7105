"""Failover: a primary and a synchronous standby from the same binaries; the primary dies, the standby is promoted."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import SETTINGS, EmbeddedPostgres
from moorage.store.errors import StoreUnavailable
from moorage.store.signals import Signals

_SETTINGS = {**SETTINGS, "fsync": "off", "hot_standby": "on"}


class Pair:
    """``url`` names both; whoever may be written to is found by who connects."""

    def __init__(self, folder: Path) -> None:
        self.primary = EmbeddedPostgres(folder / "a", _SETTINGS)
        follows = {"primary_conninfo": f"user=postgres host={folder / 'a'}"}
        self.standby = EmbeddedPostgres(folder / "b", {**_SETTINGS, **follows})

    def start(self) -> None:
        self.primary.start()
        self.primary.create("moorage")
        assert _socket(self.primary) == str(self.primary.data)
        self._copy_to(self.standby.data)
        self.standby.start()
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            while not connection.execute(
                "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            ).fetchone():
                connection.execute("SELECT pg_sleep(0.05)")
        hosts = f"{_socket(self.primary)},{_socket(self.standby)}"
        self.url = f"postgresql://postgres@/moorage?host={hosts}&target_session_attrs=read-write"

    def _copy_to(self, folder: Path) -> None:
        server = self.primary._server
        folder.mkdir(mode=0o700)
        if server.system_user is not None:
            shutil.chown(folder, server.system_user)
        words = (
            "-h",
            _socket(self.primary),
            "-U",
            "postgres",
            "-D",
            str(folder),
            "--write-recovery-conf",
            "--checkpoint=fast",
        )
        subprocess.run((str(server.bin_path / "pg_basebackup"), *words), user=server.system_user, check=True)
        # The socket is in the folder, and the copy's server would take its lock for another's.
        (folder / ".s.PGSQL.5432.lock").unlink()

    def lose_primary(self) -> None:
        """As when its machine dies."""
        pid = int((self.primary.data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.02)

    def promote(self) -> None:
        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def stop(self) -> None:
        self.standby.stop()
        self.primary.stop()


def _socket(server: EmbeddedPostgres) -> str:
    return server.url().partition("?host=")[2]


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
