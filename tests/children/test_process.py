"""Supervision of real processes: start, ready, restart, stop with all they forked, and what a killed parent leaves."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import moorage
from moorage.children.errors import ChildFailed, PortTaken
from moorage.children.process import Child, ChildSpec, end_group, end_leftover, group_alive, start_time
from moorage.children.readiness import require_free
from tests.support.ports import free_ports

# Writes its pid to a file, then waits; ignores SIGTERM when told to, and has a child of its own.
PROGRAM = """
import os, pathlib, signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "300"])
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(300)
"""


def spec(folder: Path, *arguments: str, **changes) -> ChildSpec:
    started = folder / "started"

    async def ready() -> bool:
        return started.exists() and started.read_text() != ""

    usual = {
        "name": "child",
        "argv": (sys.executable, "-c", PROGRAM, str(started), *arguments),
        "run_folder": folder / "run",
        "log_file": folder / "child.log",
        "ready": ready,
        "ready_within": 180.0,
        "stop_within": 60.0,
    }
    return ChildSpec(**{**usual, **changes})


async def until(condition, seconds: float = 180) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_start_returns_when_ready_and_stop_ends_all_it_forked(tmp_path):
    child = Child(spec(tmp_path))
    await child.start()
    pid = child.pid
    assert pid is not None
    assert (tmp_path / "started").read_text() == str(pid)
    assert child.spec.pidfile.read_text().split()[0] == str(pid)
    await child.stop()
    assert not group_alive(pid)
    assert not child.spec.pidfile.exists()
    assert child.pid is None


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path):
    # As long as it is let live is all the time that it then has to die: a busy machine needs more than a moment.
    child = Child(spec(tmp_path, "stubborn", stop_within=2.0))
    await child.start()
    pid = child.pid
    await child.stop()
    assert not group_alive(pid)


async def test_a_child_that_ends_is_started_again(tmp_path):
    child = Child(spec(tmp_path))
    await child.start()
    first = child.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: child.restarts == 1 and child.pid is not None)
    assert child.pid != first
    assert not group_alive(first)
    await child.stop()


async def test_a_child_that_ends_before_it_is_ready_fails_with_the_end_of_its_log(tmp_path):
    async def never() -> bool:
        return False

    failing = Child(spec(tmp_path, argv=("sh", "-c", "echo the cause >&2; exit 3"), ready=never))
    with pytest.raises(ChildFailed, match=r"status 3[\s\S]*the cause"):
        await failing.start()
    slow = Child(spec(tmp_path, argv=("sleep", "300"), ready=never, ready_within=0.2))
    with pytest.raises(ChildFailed, match="not ready within"):
        await slow.start()
    assert not slow.spec.pidfile.exists()


async def test_what_a_killed_parent_left_is_ended_before_a_new_start(tmp_path):
    leftover = subprocess.Popen(["sleep", "300"], start_new_session=True)
    child = Child(spec(tmp_path))
    child.spec.run_folder.mkdir()
    child.spec.pidfile.write_text(f"{leftover.pid} {start_time(leftover.pid)}\n")
    await child.start()
    assert not group_alive(leftover.pid)
    assert leftover.wait(60) == -signal.SIGTERM
    await child.stop()


async def test_another_process_with_a_reused_pid_is_left_alone(tmp_path):
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    pidfile = tmp_path / "child.pid"
    pidfile.write_text(f"{other.pid} {start_time(other.pid) - 1}\n")
    assert not await end_leftover(pidfile, within=60)
    assert not pidfile.exists()
    assert other.poll() is None
    await end_group(other.pid, within=60)
    other.wait(60)


async def test_children_end_with_a_killed_parent(tmp_path):
    parent_program = f"""
import asyncio, pathlib, sys
from moorage.children.process import Child, ChildSpec
async def main():
    folder = pathlib.Path({str(tmp_path)!r})
    await Child(ChildSpec(name="c", argv=("sleep", "300"), run_folder=folder, log_file=folder / "log")).start()
    await asyncio.sleep(300)
asyncio.run(main())
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_program],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(moorage.__file__).parents[1])},
    )
    pidfile = tmp_path / "c.pid"
    await until(lambda: pidfile.exists() and pidfile.read_text() != "")
    pid = int(pidfile.read_text().split()[0])
    await until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")  # the signal is armed by then
    parent.kill()
    parent.wait(60)
    await until(lambda: not group_alive(pid))


def test_a_port_in_use_is_said_before_anything_starts():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(PortTaken, match=r"Keystone cannot listen on 127\.0\.0\.1"):
            require_free("Keystone", "127.0.0.1", listener.getsockname()[1])
    require_free("Keystone", "127.0.0.1", free_ports(1)[0])
