"""Which hosts a cloud gets: real ones where the machine can run them, else simulated ones, and one line that says why."""

import os
from pathlib import Path

import pytest

from moorage.core import config
from moorage.server.allinone import AllInOne
from moorage.server.options import options
from moorage.server.state import StateUnusable

# All that the lab runs, and a host's agent.
PROGRAMS = (
    "ethtool",
    "ip",
    "ovn-appctl",
    "ovn-controller",
    "ovn-nbctl",
    "ovn-northd",
    "ovn-sbctl",
    "ovs-vsctl",
    "ovs-vswitchd",
    "ovsdb-server",
    "ovsdb-tool",
    "qemu-img",
    "qemu-system-x86_64",
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run real hosts")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs that a machine has; they are looked for and not run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def chosen(hosts: str, state: Path) -> tuple[str, list[str]]:
    """The kind of hosts, and what was said."""
    said: list[str] = []
    conf = config.load(options(), environ={}, overrides={"hosts": hosts, "state": str(state)})
    return AllInOne(conf, said.append)._hosts_kind(), said


@as_root
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_machine_that_lacks_one_program_gets_simulated_hosts_and_the_name_of_its_package(
    machine: Path, tmp_path: Path, program: str
) -> None:
    (machine / program).unlink()
    kind, (line,) = chosen("auto", tmp_path)
    assert kind == "simulated"
    assert line.startswith(f"hosts are simulated, for real ones there is: no {program} (apt-get install ")
    assert "," not in line.partition(":")[2]
    with pytest.raises(StateUnusable, match=f"the lab cannot run here: no {program} "):
        chosen("lab", tmp_path)


@as_root
def test_a_machine_that_has_all_programs_gets_the_lab(machine: Path, tmp_path: Path) -> None:
    assert chosen("auto", tmp_path) == ("lab", [])
    assert chosen("lab", tmp_path) == ("lab", [])


@pytest.mark.parametrize("hosts", ["simulated", "none"])
def test_what_was_asked_for_needs_no_program(machine: Path, tmp_path: Path, hosts: str) -> None:
    for program in machine.iterdir():
        program.unlink()
    assert chosen(hosts, tmp_path) == (hosts, [])
