"""Where the things of one lab are: namespaces that carry a short id, and folders under its state folder.

The id comes from the state folder's path, so two labs on a machine never share a name, and a lab can be found and taken
down by any process that knows its state folder.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from moorage.lab.shell import run


class Names(msgspec.Struct, frozen=True):
    """Names and places of one lab; ``state`` is its own folder, absolute."""

    lab_id: str
    state: Path

    @property
    def record(self) -> Path:
        """The file that says what this lab is."""
        return self.state / "lab.json"

    def namespace(self, part: str) -> str:
        """The namespace of a host, of a rack's switch (``switch-NAME``), of the spine, or of a probe."""
        return f"m{self.lab_id}-{part}"

    def host_folder(self, host: str) -> Path:
        """Everything of one host: databases, sockets, logs, the agent's state and its guests."""
        return self.state / "hosts" / host

    def probe_record(self, port_id: str) -> Path:
        """The file that says what one probe is."""
        return self.state / "probes" / f"{port_id}.json"

    def namespaces(self) -> list[str]:
        """All namespaces of this lab that exist now."""
        said = run("ip", "netns", "list")
        return [line.split()[0] for line in said.splitlines() if line.startswith(f"m{self.lab_id}-")]


def names_of(state: Path) -> Names:
    """The names of the lab whose state folder is ``state``."""
    place = state.absolute()
    lab_id = hashlib.sha256(str(place).encode()).hexdigest()[:5]
    return Names(lab_id, place)


def processes_in(namespace: str) -> list[int]:
    """The pids of the processes in a namespace."""
    return [int(word) for word in re.findall(r"\d+", run("ip", "netns", "pids", namespace))]
