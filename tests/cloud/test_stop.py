"""``moorage up`` that is told to stop before it is ready: it does so in order, and the next start comes up."""

import itertools
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from support.program import MoorageUp, end_processes_of, processes_of
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]


@pytest.fixture
def cloud() -> Iterator[MoorageUp]:
    state = Path(tempfile.mkdtemp(prefix="ms-"))
    made = MoorageUp(state, hosts="simulated", simulated_hosts=3)
    try:
        yield made
    finally:
        made.stop()
        end_processes_of(state)
        shutil.rmtree(state)


def once(cloud: MoorageUp) -> int:
    """A signal to the program alone, as a service manager sends it."""
    return cloud.stop()


def impatiently(cloud: MoorageUp) -> int:
    """Ctrl-C on a terminal, again and again: the programs that it runs in the foreground get each one too."""
    return cloud.interrupt(times=5)


def moments(cloud: MoorageUp) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Of a first start, in their order. One that passes unseen is a later one then."""
    stages = {
        "PostgreSQL (embedded)": ("postgres/PG_VERSION", "postgres/postmaster.pid"),
        "Keystone and Glance": ("run/keystone.pid", "clouds.yaml"),
        "APIs and conductor": ("agent.sock",),
        "3 simulated hosts": ("simulated/sim-0001/identity.json",),
    }
    for stage, files in stages.items():
        line = f"moorage: {stage}".encode()
        yield stage, lambda line=line: line in cloud.said()
        for name in files:
            path = cloud.state / name
            yield name, lambda line=line, path=path: line in cloud.said() and path.exists()


def test_a_start_that_is_interrupted_leaves_nothing_running_and_the_next_one_comes_up(
    cloud: MoorageUp,
) -> None:
    for (name, moment), stop in zip(moments(cloud), itertools.cycle((once, impatiently)), strict=False):
        cloud.begin()
        cloud.reach(moment, name)
        assert stop(cloud) == 0, f"at {name}: {cloud.said().decode()}"
        assert processes_of(cloud.state) == {}, f"at {name}"
        assert b"moorage: stopping" in cloud.said(), f"at {name}"
        assert b"Traceback" not in cloud.said(), f"at {name}: {cloud.said().decode()}"
    cloud.start()
    admin = cloud.connect("moorage-admin")
    until(
        lambda: len([host for host in admin.compute.hypervisors() if host.state == "up"]) == 3,
        "the hosts are up",
    )
    assert impatiently(cloud) == 0
    assert processes_of(cloud.state) == {}


def test_a_start_whose_postgresql_recovers_for_long_is_interrupted(cloud: MoorageUp) -> None:
    cloud.start()
    cloud.kill()
    data = cloud.state / "postgres"
    with psycopg.connect(f"postgresql://postgres@/?host={data}") as connection:
        row = connection.execute(
            "SELECT redo_lsn, redo_wal_file, checkpoint_lsn FROM pg_control_checkpoint()"
        ).fetchone()
    assert row is not None
    postmaster = int((data / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGQUIT)
    until(lambda: processes_of(cloud.state) == {}, "all of it ends")

    # It waits for the end of a backup that never comes.
    control = (data / "global" / "pg_control").read_bytes()
    owner = data.stat()
    label = (
        f"START WAL LOCATION: {row[0]} (file {row[1]})\nCHECKPOINT LOCATION: {row[2]}\nBACKUP METHOD: streamed\n"
        "BACKUP FROM: primary\nSTART TIME: 2026-01-01 00:00:00 UTC\nLABEL: none\nSTART TIMELINE: 1\n"
    )
    for name, text in (("backup_label", label), ("standby.signal", "")):
        (data / name).write_text(text)
        os.chown(data / name, owner.st_uid, owner.st_gid)
    cloud.begin()
    cloud.reach((data / "backup_label.old").exists, "it recovers")
    assert cloud.stop() == 0
    assert processes_of(cloud.state) == {}
    assert b"Keystone and Glance" not in cloud.said()

    (data / "global" / "pg_control").write_bytes(control)
    (data / "standby.signal").unlink()
    (data / "backup_label.old").unlink()
    cloud.start()


def test_a_start_whose_database_says_nothing_is_interrupted(cloud: MoorageUp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        mute = MoorageUp(cloud.state, database_url=f"postgresql://postgres@127.0.0.1:{port}/moorage")
        mute.begin()
        asking, _ = silent.accept()
        with asking:
            assert mute.stop() == 0
        assert processes_of(cloud.state) == {}
