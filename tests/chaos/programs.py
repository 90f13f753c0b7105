"""Operating system processes that are killed, frozen and started again, as a supervisor on a real machine would."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

_AGAIN_AFTER = 0.7


class Program:
    """One process; started again whenever it ends, until ``stop``. Its output goes to one file."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self.starts = 0
        # It does not outlive the run that made it, however that ends.
        self._argv = ("setpriv", "--pdeathsig", "KILL", *argv) if shutil.which("setpriv") else tuple(argv)
        self._env = {**os.environ, **env}
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = False
        self._thaw: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Begin to supervise."""
        await self._spawn()
        self._supervisor = asyncio.create_task(self._supervise(), name=f"supervisor-{self.name}")

    async def _spawn(self) -> None:
        self.starts += 1
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._env,
                start_new_session=True,
            )

    async def _supervise(self) -> None:
        while True:
            assert self._process is not None
            await self._process.wait()
            if not self._stopping:
                await asyncio.sleep(_AGAIN_AFTER)
            if self._stopping:
                return
            await self._spawn()

    def send(self, number: signal.Signals) -> None:
        """A signal, where the process is there to get it."""
        if (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after ``seconds``."""
        self.send(signal.SIGSTOP)
        if self._thaw is not None:
            self._thaw.cancel()
        self._thaw = asyncio.get_running_loop().call_later(seconds, self.thaw)

    def thaw(self) -> None:
        """SIGCONT now."""
        if self._thaw is not None:
            self._thaw.cancel()
            self._thaw = None
        self.send(signal.SIGCONT)

    async def stop(self, within: float = 90.0) -> int | None:
        """SIGTERM and wait: its exit status, or None where it had to be killed."""
        self._stopping = True
        if self._supervisor is None or self._process is None:
            return 0
        self.thaw()
        self.send(signal.SIGTERM)
        done, _ = await asyncio.wait([self._supervisor], timeout=within)
        if not done:
            self.send(signal.SIGKILL)
            await self._supervisor
        return self._process.returncode if done else None

    def said(self, words: str) -> bool:
        """Whether its log has these words since it was first started."""
        return self.log.exists() and words.encode() in self.log.read_bytes()
