"""A supervised child process.

A ``Child`` is started in a session of its own, so that stopping it reaches everything it forked: SIGTERM to the
group, then SIGKILL. It is restarted with a growing delay when it ends by itself, and ends with us when we are killed:
``setpriv --pdeathsig`` (util-linux) arms the kernel's parent-death signal before the program runs. That signal follows
the thread that started the child, so a ``Child`` is to be started from a thread that lives as long as it should.

What a killed parent left all the same is found by its pidfile (pid and start time, so that a reused pid is never
mistaken for it) and ended before a new one starts.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from moorage.children.errors import ChildFailed
from moorage.core.log import get_logger

log = get_logger(__name__)

POLL = 0.05
FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
STEADY_AFTER = 60.0
LOG_TAIL = 2000


async def always_ready() -> bool:
    """The ready check of a child that has none."""
    return True


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to run one child. Times are in seconds; ``env`` is added to our own environment (None takes away)."""

    name: str
    argv: tuple[str, ...]
    run_folder: Path
    log_file: Path
    env: Mapping[str, str | None] = {}
    ready: Callable[[], Awaitable[bool]] = always_ready
    ready_within: float = 60.0
    stop_within: float = 10.0
    restart: bool = True

    @property
    def pidfile(self) -> Path:
        return self.run_folder / f"{self.name}.pid"


class Child:
    """One supervised process. ``start`` returns when it is ready; ``stop`` when nothing of it is left."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """End a leftover, start the program, wait until it is ready. Raises ``ChildFailed``; nothing runs then."""
        if self._watcher is not None:
            raise RuntimeError(f"{self.spec.name} is started already")
        await end_leftover(self.spec.pidfile, within=self.spec.stop_within)
        began = time.monotonic()
        process = await self._spawn()
        try:
            await self._until_ready(process)
        except BaseException:
            await self._end(process)
            raise
        log.info(
            "child.ready", child=self.spec.name, pid=process.pid, seconds=round(time.monotonic() - began, 2)
        )
        self._watcher = asyncio.create_task(self._watch(process), name=f"child:{self.spec.name}")

    async def stop(self) -> None:
        """End the process and all it forked; does nothing when it does not run."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        process, self._process = self._process, None
        if process is not None:
            await self._end(process)
            log.info("child.stopped", child=self.spec.name, pid=process.pid)

    async def _spawn(self) -> asyncio.subprocess.Process:
        spec = self.spec
        spec.run_folder.mkdir(parents=True, exist_ok=True)
        spec.log_file.parent.mkdir(parents=True, exist_ok=True)
        environ = {**os.environ, **spec.env}
        with spec.log_file.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *_parent_death_prefix(),
                *spec.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={key: value for key, value in environ.items() if value is not None},
                start_new_session=True,
            )
        self._process = process
        spec.pidfile.write_text(f"{process.pid} {start_time(process.pid)}\n")
        return process

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        spec = self.spec
        deadline = time.monotonic() + spec.ready_within
        while not await spec.ready():
            if process.returncode is not None:
                raise ChildFailed(
                    f"{spec.name} ended with status {process.returncode} before it was ready; "
                    f"its log is {spec.log_file}:\n{_tail(spec.log_file)}"
                )
            if time.monotonic() > deadline:
                raise ChildFailed(
                    f"{spec.name} was not ready within {spec.ready_within:g} s; its log is {spec.log_file}:\n"
                    f"{_tail(spec.log_file)}"
                )
            await asyncio.sleep(POLL)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Start the program again whenever it ends, later and later while it keeps ending soon."""
        delay = FIRST_DELAY
        while True:
            began = time.monotonic()
            status = await process.wait()
            await self._end(process)
            if not self.spec.restart:
                log.warning("child.ended", child=self.spec.name, status=status)
                return
            if time.monotonic() - began > STEADY_AFTER:
                delay = FIRST_DELAY
            log.warning("child.restarting", child=self.spec.name, status=status, delay=delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)
            process = await self._spawn()
            self.restarts += 1

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        await end_group(process.pid, within=self.spec.stop_within)
        await process.wait()
        self.spec.pidfile.unlink(missing_ok=True)


def _parent_death_prefix() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "TERM") if setpriv else ()


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (field 22 of /proc/PID/stat); None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else int(rest[18])


def group_alive(group: int) -> bool:
    """Whether a process group has a member that is not a zombie."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _parent, its_group = stat.rpartition(")")[2].split()[:3]
        if int(its_group) == group and state != "Z":
            return True
    return False


async def end_group(group: int, *, within: float) -> None:
    """SIGTERM to a process group, SIGKILL to what is left after ``within`` seconds; returns when it is empty."""
    for sign, patience in ((signal.SIGTERM, within), (signal.SIGKILL, within)):
        try:
            os.killpg(group, sign)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while group_alive(group):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(POLL)
        else:
            return
    raise ChildFailed(f"process group {group} did not end within {within:g} s of SIGKILL")


async def end_leftover(pidfile: Path, *, within: float) -> bool:
    """End the process that a pidfile of a killed parent names, if it is still that process; True if it was."""
    try:
        pid, _, started = pidfile.read_text().partition(" ")
    except FileNotFoundError:
        return False
    found = pid.isdigit() and started.strip().isdigit() and start_time(int(pid)) == int(started)
    if found:
        log.warning("child.leftover", pidfile=str(pidfile), pid=int(pid))
        await end_group(int(pid), within=within)
    pidfile.unlink(missing_ok=True)
    return found


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL))
        return file.read().decode(errors="replace")
