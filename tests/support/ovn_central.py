"""OVN's central databases for a test: two ovsdb-servers and northd on unix sockets in one folder."""

import shutil
import subprocess
import time
from pathlib import Path

PROGRAMS = ("ovsdb-server", "ovsdb-tool", "ovn-northd", "ovn-nbctl", "ovn-sbctl")
SCHEMAS = Path("/usr/share/ovn")


def missing() -> str | None:
    """What is missing on this machine to run OVN central, or None."""
    gone = [p for p in PROGRAMS if shutil.which(p) is None]
    if gone:
        return f"not installed: {', '.join(gone)} (apt packages ovn-central, openvswitch-common)"
    if not (SCHEMAS / "ovn-nb.ovsschema").exists():
        return f"no OVN schemas in {SCHEMAS}"
    return None


class OvnCentral:
    """``nb`` and ``sb`` are the remotes; ``start`` and ``stop`` may be repeated."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nb = f"unix:{folder}/nb.sock"
        self.sb = f"unix:{folder}/sb.sock"
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for side in ("nb", "sb"):
            database = self.folder / f"{side}.db"
            if not database.exists():
                schema = SCHEMAS / f"ovn-{side}.ovsschema"
                subprocess.run(["ovsdb-tool", "create", str(database), str(schema)], check=True)
            self._run("ovsdb-server", f"--remote=punix:{self.folder}/{side}.sock", str(database))
        self._wait(self.folder / "nb.sock")
        self._wait(self.folder / "sb.sock")
        self._run("ovn-northd", f"--ovnnb-db={self.nb}", f"--ovnsb-db={self.sb}")
        self.nbctl("init")

    def _run(self, program: str, *args: str) -> None:
        name = f"{program}-{len(self._children)}"
        common = [
            f"--unixctl={self.folder}/{name}.ctl",
            f"--log-file={self.folder}/{name}.log",
            "-vconsole:off",
        ]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._children.append(subprocess.Popen([program, *args, *common], **silent))

    def _wait(self, socket: Path) -> None:
        limit = time.monotonic() + 60
        while not socket.exists():
            if time.monotonic() > limit:
                raise TimeoutError(socket)
            time.sleep(0.01)

    def stop(self) -> None:
        for child in reversed(self._children):
            child.terminate()
            child.wait()
        self._children.clear()

    def nbctl(self, *args: str) -> str:
        return self._ctl("ovn-nbctl", self.nb, args)

    def sbctl(self, *args: str) -> str:
        return self._ctl("ovn-sbctl", self.sb, args)

    def _ctl(self, program: str, remote: str, args: tuple[str, ...]) -> str:
        command = [program, f"--db={remote}", "--timeout=60", *args]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip()
