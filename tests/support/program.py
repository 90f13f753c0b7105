"""``moorage up`` as a program of its own: its state folder, its ports, its log, its end by any signal."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openstack
import openstack.config

import moorage
from moorage.children.services import find_venv
from tests.support.ports import free_ports

#: Seconds that a cloud may take to start on a busy machine, its first start with Keystone's schema included.
START_PATIENCE = 300.0


class MoorageUp:
    """One cloud's program in ``state``; ``options`` are configuration by environment: {"conductor_lease": 2}."""

    def __init__(self, state: Path, **options: object) -> None:
        self.state = state
        self.log = state / "cloud.log"
        names = ("compute", "placement", "network", "agent", "identity", "image", "metrics")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        settings: dict[str, object] = {f"{name}_port": port for name, port in self._ports.items()} | options
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(Path(moorage.__file__).parents[1]),
            "MOORAGE_STATE": str(state),
            "MOORAGE_SERVICES_VENV": str(find_venv()),
            **{f"MOORAGE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0
        self._by: tuple[str, ...] = ()
        self._client = {"OS_CLIENT_CONFIG_FILE": str(state / "clouds.yaml")}

    @property
    def pid(self) -> int:
        """The program's process."""
        assert self._process is not None
        return self._process.pid

    def url(self, api: str, scheme: str = "http") -> str:
        """Where an API answers: compute, placement, network, identity, image."""
        return f"{scheme}://127.0.0.1:{self._ports[api]}"

    def start(self) -> None:
        """Start it, and return when it says that it is ready; raises AssertionError with its log when it ends."""
        self.begin()
        self.reach(lambda: b"moorage: ready" in self.said(), "it says that it is ready")

    def begin(self) -> None:
        """Start it, in a session of its own as a terminal's foreground is a group of its own."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._began = self.log.stat().st_size if self.log.exists() else 0
        command = [*self._by, sys.executable, "-m", "moorage.cli.main", "up"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )

    def reach(self, moment: Callable[[], bool], what: str) -> None:
        """Return at a moment of its start; raises AssertionError with its log when it ends before."""
        assert self._process is not None
        limit = time.monotonic() + START_PATIENCE
        while not moment():
            ended = self._process.poll()
            assert ended is None, f"moorage up ended with {ended}: {self.said()[-4000:].decode()}"
            assert time.monotonic() < limit, f"not in time: {what}: {self.said()[-4000:].decode()}"
            time.sleep(0.01)

    def said(self) -> bytes:
        """Its log since it was started last."""
        return self.log.read_bytes()[self._began :]

    def kill(self) -> None:
        """kill -9, of this process alone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """``kill -INT``; its exit status."""
        return self._end(signal.SIGINT)

    def interrupt(self, times: int) -> int:
        """Ctrl-C as a terminal does it, to all that runs in the foreground; its exit status."""
        process, self._process = self._process, None
        assert process is not None
        for _ in range(times):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.05)
        return process.wait(120)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(120)

    def command(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """``moorage WORDS`` as its administrator."""
        environ = {**self._environ, **self._client}
        return subprocess.run(
            [*self._by, sys.executable, "-m", "moorage.cli.main", *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def connect(self, cloud: str = "moorage") -> Any:
        """openstacksdk as one of its users: "moorage" or "moorage-admin"."""
        found = openstack.config.OpenStackConfig(
            config_files=[str(self.state / "clouds.yaml")], load_envvars=False
        )
        return openstack.connection.Connection(config=found.get_one(cloud=cloud))


def processes_of(state: Path) -> dict[int, str]:
    """Processes whose command line names the folder."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(state) in words:
            found[int(entry.parent.name)] = words
    return found


def end_processes_of(state: Path) -> dict[int, str]:
    """Kill the processes whose command line names the folder; what they were."""
    left = processes_of(state)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


class OrdinaryUp(MoorageUp):
    """The same by an ordinary user with the home folder ``home``, who names no state folder."""

    #: It may read what it is run from, wherever that is, and write nothing but its own.
    BY = (
        *(
            "setpriv",
            "--reuid=nobody",
            "--regid=nogroup",
            "--clear-groups",
            "--inh-caps=-all,+dac_read_search",
        ),
        *("--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search"),
    )

    def __init__(self, home: Path, **options: object) -> None:
        super().__init__(home / ".local" / "state" / "moorage", **options)
        self.log = home / "cloud.log"
        self._by = self.BY
        self._client = {}
        for name in ("OS_CLIENT_CONFIG_FILE", "MOORAGE_STATE", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
            self._environ.pop(name, None)
        self._environ["HOME"] = str(home)
