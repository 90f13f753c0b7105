"""``moorage agent`` that dies by SIGKILL at a point of a command, as a program for tests.

Arguments are the agent's own. Each line of stdin begins a life: "POINT OPERATION", the point of that operation's
command at which it ends, -1 for none. Two lines come back: its process id, and in the end how it ended. A life is a
process of its own, forked before anything has begun, so that only the first costs the start of an interpreter.

Points lie before the journal hears of the command, and after each thing that is done for it since: every call of
journal, hypervisor, data path and link. What a life passes it writes into STATE_DIR/points.
"""

import ctypes
import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from moorage.agent import main
from moorage.agent.link import Link

_PR_SET_PDEATHSIG = 1
_inside: ContextVar[bool] = ContextVar("inside", default=False)


class Points:
    """``last``: where in the command of ``operation`` to die; -1 for never."""

    def __init__(self, folder: Path, last: int, operation: str) -> None:
        self.last = last
        self.operation = operation
        self.passed: list[str] = []
        self.file = folder / "points"
        self.ids: set[str] = set()

    def pass_by(self, name: str) -> None:
        """Write the point down, and die if it is the one."""
        self.passed.append(name)
        self.file.write_text("\n".join(self.passed))
        if len(self.passed) - 1 == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, kind: type, concerns: Callable[..., bool]) -> type:
        """The class, with a point after each of its coroutines where ``concerns`` says so of the arguments."""
        methods = {
            name: self._watched(name, method, concerns)
            for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
            if not name.startswith("_")
        }
        return type(kind.__name__, (kind,), methods)

    def _watched(self, name: str, method: Any, concerns: Callable[..., bool]) -> Any:
        @functools.wraps(method)
        async def run(*args: Any, **kw: Any) -> Any:
            concerned = concerns(name, *args[1:])
            result = await method(*args, **kw)
            if concerned:
                self.pass_by(name)
            return result

        return run

    def journal(self, name: str, *args: Any) -> bool:
        """Whether a call of the journal is about the watched command, which it hears of first by ``accept``."""
        if name == "accept":
            if args[0].operation != self.operation:
                return False
            self.ids.add(args[0].id)
            _inside.set(True)
            self.pass_by("before")
        return bool(_inside.get()) or (name == "acknowledge" and bool(self.ids & set(args[0])))

    def effects(self, _name: str, *_args: Any) -> bool:
        """Whether it is done for the watched command."""
        return _inside.get()

    def link(self, name: str, *args: Any) -> bool:
        """Whether the result of the watched command is told."""
        return name == "send" and any(r.command_id in self.ids for r in args[0].results)


def live(points: Points) -> int:
    """One life; it ends with its parent too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    main.FileJournal = points.watch(main.FileJournal, points.journal)  # type: ignore[misc]
    for name in ("QemuHypervisor", "SimulatedHypervisor", "OvnDatapath", "SimulatedDatapath"):
        setattr(main, name, points.watch(getattr(main, name), points.effects))
    Link.send = points.watch(Link, points.link).send  # type: ignore[attr-defined]
    return main.run(sys.argv[1:])


def tell(number: int) -> None:
    """A line to who started this."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def lives() -> None:
    """One life after the other until stdin ends."""
    folder = next(Path(a.partition("state_dir=")[2]) for a in sys.argv if "state_dir=" in a)
    folder.mkdir(parents=True, exist_ok=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            last, operation = line.split()
            os._exit(live(Points(folder, int(last), operation)))
        tell(child)
        _, status = os.waitpid(child, 0)
        tell(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    lives()
