"""The commands that a user of the cloud types, run for the demo: ``openstack`` and ``moorage``, and when they may begin."""

import os
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from moorage.lab.errors import CommandFailed
from moorage.lab.shell import run, wait_for

Json = dict[str, Any]


class Clouds(msgspec.Struct, frozen=True):
    """How to reach the cloud: its folder and the two entries of its clouds.yaml."""

    state: Path
    user: str = "moorage"
    admin: str = "moorage-admin"

    @property
    def file(self) -> Path:
        """The cloud's clouds.yaml; the environment's own choice comes first."""
        return Path(os.environ.get("OS_CLIENT_CONFIG_FILE") or self.state / "clouds.yaml")

    def find(self, kind: str, name: str, *, cloud: str | None = None) -> Json | None:
        """The thing of that name, None when there is none; raises CommandFailed."""
        try:
            return self.openstack(kind, "show", name, cloud=cloud)
        except CommandFailed as error:
            # The client has no exit status of its own for "not found"; its sentence begins with "No".
            if any(line.startswith("No ") for line in error.output.splitlines()):
                return None
            raise

    def openstack(self, *words: str, cloud: str | None = None) -> Json:
        """What ``openstack`` answers in JSON, {} when nothing; as the user unless ``cloud`` is named; raises CommandFailed."""
        said = self.openstack_text(*words, *([] if "delete" in words else ["-f", "json"]), cloud=cloud)
        return msgspec.json.decode(said, type=Json) if said.strip() else {}

    def openstack_rows(self, *words: str, cloud: str | None = None) -> list[Json]:
        """What a list of ``openstack`` has, a row each; raises CommandFailed."""
        return msgspec.json.decode(self.openstack_text(*words, "-f", "json", cloud=cloud), type=list[Json])

    def openstack_text(self, *words: str, cloud: str | None = None) -> str:
        """What ``openstack`` prints; raises CommandFailed."""
        env = {"OS_CLIENT_CONFIG_FILE": str(self.file), "OS_CLOUD": cloud or self.user}
        return run(_program("openstack"), *words, env=env, timeout=300)

    def moorage(self, *words: str) -> str:
        """What ``moorage`` prints for the administrator, who is told the hosts' names; raises CommandFailed."""
        env = {
            "MOORAGE_STATE": str(self.state),
            "OS_CLIENT_CONFIG_FILE": str(self.file),
            "OS_CLOUD": self.admin,
            "COLUMNS": "100",
        }
        return run(sys.executable, "-m", "moorage.cli.main", *words, env=env, timeout=120)


def wait_for_cloud(clouds: Clouds, patience: float) -> None:
    """Return once the cloud's agent socket and its Keystone take connections; raises CommandFailed after ``patience`` s."""
    wait_for("the cloud", lambda: clouds.file.exists() and _listens(clouds), patience)


def _listens(clouds: Clouds) -> bool:
    found = yaml.safe_load(clouds.file.read_text())
    identity = urlsplit(found["clouds"][clouds.user]["auth"]["auth_url"])
    try:
        with socket.create_connection((identity.hostname, identity.port or 80), timeout=5):
            return cloud_listens(clouds.state)
    except OSError:
        return False


def cloud_listens(state: Path) -> bool:
    """True when a cloud takes connections of agents in this state folder."""
    try:
        with socket.socket(socket.AF_UNIX) as agents:
            agents.connect(str(state / "agent.sock"))
    except OSError:
        return False
    return True


def _program(name: str) -> str:
    """A program of our own environment, else the one on the PATH."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.exists() else name
