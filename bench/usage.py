"""What processes have used, read from /proc: no library, and nothing inside the measured process."""

import os
from pathlib import Path
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """CPU seconds since their start, of the server's process and of all of PostgreSQL's."""

    server: float
    postgres: float

    def since(self, before: "Usage") -> "Usage":
        """What was used in between."""
        return Usage(self.server - before.server, self.postgres - before.postgres)


def usage(server: int, postmaster: int) -> Usage:
    """Now."""
    backends = [pid for pid in _pids() if _parent(pid) == postmaster]
    # What backends that have ended used is with their parent.
    return Usage(_cpu(server), _cpu(postmaster, reaped=True) + sum(_cpu(pid) for pid in backends))


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (path / "children").read_text().split()]
    return found


def family_usage(server: int, postmaster: int) -> Usage:
    """Now, for a server of several processes."""
    own = usage(server, postmaster)
    return Usage(sum(_cpu(pid) for pid in family(server)), own.postgres)


def postmaster(state: Path) -> int:
    """The process id of the PostgreSQL whose data is below a state folder."""
    return int((state / "postgres" / "postmaster.pid").read_text().split()[0])


def memory(pid: int) -> tuple[float, float]:
    """Resident MiB of a process: now, and at most."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _cpu(pid: int, *, reaped: bool = False) -> float:
    fields = _stat(pid)
    # User and system time, then those of children that were waited for.
    return sum(int(n) for n in fields[11 : 15 if reaped else 13]) / _TICK
