"""Running programs, and ending the daemons a lab started.

Daemons detach themselves and write a pid file.  A pid alone proves nothing: it may have been given to another process
since.  So a daemon counts as ours only while its command line still names its run folder, and a zombie (whose parent,
PID 1 of a container, may never reap it) counts as ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from moorage.lab.errors import CommandFailed

#: Says one line of progress to whoever is watching.
Progress = Callable[[str], None]


def quiet(_line: str) -> None:
    """Progress nobody watches."""


def run(
    *argv: str | Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> str:
    """Run a program to its end and return its standard output.

    ``env`` is added to the environment.  Raises CommandFailed with what the program said on either stream.
    """
    command = [str(word) for word in argv]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **env} if env else None,
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandFailed(command, f"no such program: {error.filename}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(command, f"no answer within {timeout:g} s") from error
    if done.returncode != 0:
        raise CommandFailed(command, done.stderr or done.stdout)
    return done.stdout


def start_daemon(
    *argv: str | Path,
    log: Path,
    env: Mapping[str, str] | None = None,
) -> int:
    """Start a program that does not detach by itself, in a session of its own, and return its pid.

    Its three streams are its log file and nothing of ours, so the caller's pipes close when the caller ends.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.posix_spawnp(
        str(argv[0]),
        [str(word) for word in argv],
        {**os.environ, **(env or {})},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def alive(pid: int) -> bool:
    """True while the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def command_line(pid: int) -> str:
    """The words of a process's command line, joined by blanks; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def pid_of(pidfile: Path, mark: Path | str) -> int | None:
    """The pid in ``pidfile`` if that process runs and its command line contains ``mark``; else None."""
    try:
        pid = int(pidfile.read_text().strip())
    except (FileNotFoundError, ValueError):
        return None
    return pid if alive(pid) and str(mark) in command_line(pid) else None


def end(pids: Iterable[int], grace: float = 3.0) -> None:
    """Ask the processes to end, and kill after ``grace`` seconds those that did not; returns when all are gone."""
    wanted = [pid for pid in pids if alive(pid)]
    for signum, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 60.0)):
        for pid in wanted:
            try:
                os.kill(pid, signum)
            except ProcessLookupError:
                continue
        wanted = _wait_gone(wanted, patience)
        if not wanted:
            return
    raise CommandFailed(["kill", *map(str, wanted)], "these processes do not end")


def _wait_gone(pids: Sequence[int], patience: float) -> list[int]:
    limit = time.monotonic() + patience
    left = list(pids)
    while True:
        for pid in left:
            _reap(pid)
        left = [pid for pid in left if alive(pid)]
        if not left or time.monotonic() > limit:
            return left
        time.sleep(0.02)


def _reap(pid: int) -> None:
    """Collect the status of a child of ours; other processes are their own parents' business."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def wait_for(what: str, ready: Callable[[], bool], timeout: float) -> None:
    """Poll ``ready`` every 20 ms; raises CommandFailed when it is not true after ``timeout`` seconds."""
    limit = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > limit:
            raise CommandFailed([what], f"not ready after {timeout:g} s")
        time.sleep(0.02)
