"""QEMU processes, which are nobody's children: found by pid file, watched by pid descriptor."""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path


def running(pidfile: Path, mark: str) -> int | None:
    """The pid in ``pidfile`` when that process lives and has ``mark`` among its arguments.

    A pid may have been given to another program since; and one that has ended may stay as a zombie for long
    where PID 1 reaps late, so the pid's existence alone says nothing.
    """
    try:
        pid = int(pidfile.read_text(encoding="ascii"))
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return None
    return pid if state not in {"Z", "X"} and mark.encode() in arguments.split(b"\0") else None


async def ended(pid: int, timeout: float) -> bool:
    """Wait for the process to end; False when it still runs after ``timeout`` seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await over.wait()
        return bool(select.select([descriptor], [], [], 0)[0])
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class Watch:
    """Calls ``action`` once when the process ends; ``close`` to watch no longer."""

    def __init__(self, pid: int, action: Callable[[], None]) -> None:
        self._action = action
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._loop.call_soon(action)
        else:
            self._loop.add_reader(self._descriptor, self._ended)

    def close(self) -> None:
        """Watch no longer."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _ended(self) -> None:
        self.close()
        self._action()


def kill(pid: int) -> None:
    """SIGKILL; gone already is as good."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def run(
    *arguments: str | Path, timeout: float = 120.0, cwd: Path | None = None
) -> tuple[int, str, str]:
    """Run a program to its end; exit status, output, errors. One that hangs is killed and gives status 124."""
    process = await asyncio.create_subprocess_exec(
        *(str(a) for a in arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return 124, "", f"{arguments[0]} did not end within {timeout:.0f} s"
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
