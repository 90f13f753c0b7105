"""``tools/demo.sh``, what `make demo` runs: with simulated hosts, and everything taken down at its end."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.children.services import find_venv
from support.program import MoorageUp, end_processes_of, processes_of

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[2] / "tools" / "demo.sh"


@pytest.fixture
def state() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="md-"))
    yield found
    end_processes_of(found)
    shutil.rmtree(found)


def test_the_demo_ends_with_what_it_did_and_leaves_nothing_where_it_is_not_to_be_kept(state: Path) -> None:
    bin_folder = Path(sys.executable).parent
    if not (bin_folder / "moorage").exists() or not (bin_folder / "openstack").exists():
        pytest.skip("needs the commands moorage and openstack beside Python (make setup)")
    environ = MoorageUp(state, hosts="simulated", simulated_hosts=2)._environ
    done = subprocess.run(
        ["sh", str(SCRIPT)],
        env={**environ, "KEEP": "0", "BIN": str(bin_folder), "MOORAGE_SERVICES_VENV": str(find_venv())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said
    for server in ("demo-1", "demo-2", "demo-3"):
        assert f"{server} is ACTIVE" in said
        assert f"{server}: where it was placed, and why" in said
    assert "audit: clean" in said
    assert "done in " in said
    # How to go on is no use to who takes all down.
    assert "go on with" not in said
    assert said.splitlines()[-1].startswith("==> no process and no network namespace is left")
    assert processes_of(state) == {}
