"""``moorage up`` by somebody who is not root, with nothing configured: simulated hosts, in a folder of one's own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.program import OrdinaryUp, end_processes_of
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def home() -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become somebody else")
    if subprocess.run([*OrdinaryUp.BY, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("nobody may be run here by setpriv")
    found = Path(tempfile.mkdtemp(prefix="mo-"))
    nobody = pwd.getpwnam("nobody")
    os.chown(found, nobody.pw_uid, nobody.pw_gid)
    yield found
    shutil.rmtree(found)


def test_an_ordinary_user_gets_simulated_hosts_in_a_folder_of_their_own(home: Path) -> None:
    cloud = OrdinaryUp(home, simulated_hosts=2)
    try:
        cloud.start()
        state = home / ".local" / "state" / "moorage"
        assert b"moorage: hosts are simulated, for real ones there is: not root" in cloud.said()
        assert f"export OS_CLIENT_CONFIG_FILE={state}/clouds.yaml".encode() in cloud.said()
        assert state.stat().st_uid == home.stat().st_uid
        for words in (("audit",), ("lab", "wait")):
            done = until(lambda words=words: finds(cloud, *words), f"{words} finds the cloud by itself")
            assert done.returncode == 0, done.stderr
        assert cloud.stop() == 0
    finally:
        cloud.stop()
        left = end_processes_of(home)
    assert left == {}


def finds(cloud: OrdinaryUp, *words: str) -> subprocess.CompletedProcess[str] | None:
    """What a command answers, once what hosts reported is as old as a heartbeat."""
    done = cloud.command(*words)
    return done if done.returncode == 0 else None
