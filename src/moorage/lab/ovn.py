"""OVN central: the Northbound and Southbound databases and northd, as daemons of one run folder.

They outlive the program that started them, so that a restart of the control plane does not touch the network; the next
``start`` adopts what still runs and starts what does not.  The databases live in the folder and survive a stop.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec

from moorage.lab.errors import LabError, LabUnavailable
from moorage.lab.shell import end, pid_of, run, wait_for

_SCHEMAS = Path("/usr/share/ovn")
#: The kernel's limit for the path of a unix socket, without the closing zero byte.
_SOCKET_PATH_LIMIT = 107


class Daemon(msgspec.Struct, frozen=True):
    """One daemon of the three: its name and its process, None when it does not run."""

    name: str
    pid: int | None


def check_socket_path(path: Path) -> Path:
    """Return the path, or raise LabError when it is too long to be a unix socket's."""
    if len(str(path).encode()) > _SOCKET_PATH_LIMIT:
        raise LabError(
            f"{path} is longer than the {_SOCKET_PATH_LIMIT} bytes a socket's path may have:"
            " choose a state folder with a shorter path"
        )
    return path


class OvnCentral:
    """OVN's databases and northd in ``folder``; ``nb_socket`` and ``sb_socket`` are OVSDB addresses (``unix:/...``)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.nb_socket = f"unix:{self._folder / 'nb.sock'}"
        self.sb_socket = f"unix:{self._folder / 'sb.sock'}"

    async def start(self) -> None:
        """Start what does not run yet, and return once both databases answer.

        Raises LabUnavailable without the programs, CommandFailed when a daemon does not start.
        """
        await asyncio.to_thread(self.start_now)

    async def stop(self) -> None:
        """End the three daemons; the databases' files stay."""
        await asyncio.to_thread(self.stop_now)

    def start_now(self) -> None:
        """``start`` for callers without an event loop."""
        missing = [
            f"no {program} (apt-get install ovn-central)"
            for program in ("ovsdb-server", "ovsdb-tool", "ovn-northd", "ovn-nbctl")
            if shutil.which(program) is None
        ]
        if missing:
            raise LabUnavailable(missing)
        check_socket_path(self._folder / "northd.sock")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._start_database("nb")
        self._start_database("sb")
        if self._pid("northd") is None:
            run("ovn-northd", f"--ovnnb-db={self.nb_socket}", f"--ovnsb-db={self.sb_socket}",
                *self._daemon_options("northd"))  # fmt: skip
        run("ovn-nbctl", f"--db={self.nb_socket}", "--timeout=60", "init")
        run("ovn-sbctl", f"--db={self.sb_socket}", "--timeout=60", "init")

    def stop_now(self) -> None:
        """``stop`` for callers without an event loop."""
        end(daemon.pid for daemon in self.status() if daemon.pid is not None)

    def status(self) -> list[Daemon]:
        """The three daemons, northd first: the order in which they are stopped."""
        return [Daemon(name, self._pid(name)) for name in ("northd", "nb", "sb")]

    def _start_database(self, name: str) -> None:
        if self._pid(name) is not None:
            return
        database, schema = self._folder / f"{name}.db", _SCHEMAS / f"ovn-{name}.ovsschema"
        if not database.exists():
            run("ovsdb-tool", "create", database, schema)
        elif run("ovsdb-tool", "needs-conversion", database, schema).strip() == "yes":
            run("ovsdb-tool", "convert", database, schema)
        socket = self._folder / f"{name}.sock"
        run("ovsdb-server", database, f"--remote=punix:{socket}", *self._daemon_options(name))
        wait_for(f"OVN {name} database", socket.exists, timeout=60)

    def _daemon_options(self, name: str) -> list[str]:
        base = self._folder / name
        return [
            f"--pidfile={base}.pid",
            f"--unixctl={base}.ctl",
            f"--log-file={base}.log",
            "--detach",
            "--no-chdir",
            "-vconsole:off",
        ]

    def _pid(self, name: str) -> int | None:
        return pid_of(self._folder / f"{name}.pid", self._folder)
