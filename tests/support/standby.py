"""A primary and a synchronous standby from the same binaries, as an operator may run them."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg

from moorage.store.embedded import SETTINGS, EmbeddedPostgres

_MORE = {"fsync": "off", "hot_standby": "on", "wal_retrieve_retry_interval": "200ms"}
_PATIENCE = 120.0  # seconds, for each thing that PostgreSQL does


class Pair:
    """``url`` names both; whoever may be written to is found by who connects. All of it blocks."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        settings = {**settings, **_MORE}
        self.primary = EmbeddedPostgres(folder / "a", settings)
        follows = {"primary_conninfo": f"user=postgres host={folder / 'a'}"}
        self.standby = EmbeddedPostgres(folder / "b", {**settings, **follows})
        self._hosts = f"{folder / 'a'},{folder / 'b'}"

    @property
    def url(self) -> str:
        """Of the database ``moorage``."""
        return f"postgresql://postgres@/moorage?host={self._hosts}&target_session_attrs=read-write"

    def start(self) -> None:
        """Both, with an empty database ``moorage``."""
        self.primary.start()
        self.primary.create("moorage")
        assert _socket(self.primary) == str(self.primary.data)
        self._copy()
        self.standby.start()
        self.in_step()

    def in_step(self) -> None:
        """From now on, what is committed is on both."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            sync = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            _until(lambda: connection.execute(sync).fetchone())
            # Commits wait once the checkpointer has read the setting, which it has when it has done something; what was
            # committed before that has come over too when the standby is as far as the primary is now.
            connection.execute("CHECKPOINT")
            row = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            there = "SELECT 1 FROM pg_stat_replication WHERE flush_lsn >= %s::pg_lsn"
            _until(lambda: connection.execute(there, row).fetchone())

    def lose_primary(self) -> None:
        """As when its machine dies."""
        pid = int((self.primary.data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        _until(lambda: not Path(f"/proc/{pid}").exists())

    def promote(self) -> None:
        """The standby becomes the primary, and waits for no standby when it commits."""
        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("SELECT pg_promote()")
        self.primary, self.standby = self.standby, self.primary

    def renew(self) -> None:
        """Make a new standby where the lost primary was."""
        shutil.rmtree(self.standby.data)
        self._copy()
        self.standby.start_again()
        self.in_step()

    def stop(self) -> None:
        """Stop both."""
        self.standby.stop()
        self.primary.stop()

    def _copy(self) -> None:
        server, folder = self.primary._server, self.standby.data
        folder.mkdir(mode=0o700)
        if server.system_user is not None:
            shutil.chown(folder, server.system_user)
        words = (
            "-h", _socket(self.primary), "-U", "postgres", "-D", str(folder), "--write-recovery-conf", "--checkpoint=fast",
        )  # fmt: skip
        subprocess.run((str(server.bin_path / "pg_basebackup"), *words), user=server.system_user, check=True)
        # The socket is in the folder, and the copy's server would take its lock for another's.
        (folder / ".s.PGSQL.5432.lock").unlink()


def _socket(server: EmbeddedPostgres) -> str:
    return server.url().partition("?host=")[2]


def _until(question: Callable[[], Any]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not question():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)
