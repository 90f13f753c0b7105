"""A whole lab: built, used by hand-written networks and real guests, and taken down without a trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import moorage
from moorage.lab import image, model, netns, probe, up
from moorage.lab.errors import CommandFailed, LabError
from moorage.lab.names import names_of
from moorage.lab.shell import run
from support.lab import Network, leftovers
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]


@pytest.fixture
def state(short_path):
    state = short_path / "lab"
    yield state
    up.down(state)


def boot_guest(host, port: probe.ProbePort, guest: image.GuestImage, folder: Path) -> Path:
    """Boot the image on a host as an agent would, its tap under the port's id; returns the console's log."""
    tap, console, overlay = f"tap{port.port_id[:11]}", folder / "console.log", folder / "disk.qcow2"
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", guest.disk, overlay)
    netns.inside(host.namespace, "ip", "tuntap", "add", tap, "mode", "tap")
    netns.batch(host.namespace, [f"link set dev {tap} up"])
    host.vsctl(
        "add-port", "br-int", tap, "--", "set", "interface", tap, f"external_ids:iface-id={port.port_id}"
    )
    netns.inside(host.namespace, "qemu-system-x86_64", "-M", "pc", "-accel", "tcg,tb-size=32", "-cpu", "qemu64",
                 "-m", str(image.MIN_RAM_MB), "-nodefaults", "-no-user-config", "-display", "none",
                 "-serial", f"file:{console}", "-drive", f"file={overlay},if=virtio,format=qcow2",
                 "-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no,vnet_hdr=off",
                 "-device", f"virtio-net-pci,netdev=n0,mac={port.mac},romfile=", "-daemonize")  # fmt: skip
    return console


def test_a_guest_of_the_image_is_reached_from_another_rack_and_goes_with_the_lab(
    state, short_path, guest_image
):
    said: list[str] = []
    record = up.up(model.default_file(), state, progress=said.append)
    assert len([line for line in said if line.startswith("host ")]) == 4
    network = Network(record)
    guest, client = network.port("aaaaaaaa-guest", 10), network.port("bbbbbbbb-client", 11)
    console = boot_guest(up.host_named(state, "r1h1"), guest, guest_image, short_path)

    plugged = probe.plug(state, "r2h2", client)
    assert plugged.ping("10.9.0.10", wait=240)
    # It answers pings before its services have begun, and services before it says so on its console.
    found = probe.find(state, client.port_id)
    until(lambda: found.echo("10.9.0.10"), "an echo")
    assert not plugged.echo("10.9.0.10", port=8)
    until(lambda: "ready 10.9.0.10" in console.read_text(errors="replace"), "the guest is ready")

    assert [host.guests for host in up.status(state).hosts] == [1, 0, 0, 0]
    up.down(state)
    assert leftovers(state) == []
    assert not state.exists()


def test_hosts_of_two_racks_reach_each_other_and_their_physical_networks(state):
    record = up.up(model.default_file(), state)
    for _rack, host in record.lab.places():
        space = names_of(state).namespace(host.name)
        netns.inside(space, "ping", "-n", "-c", "1", "-w", "30", "172.30.2.11")
    networks = {host.name: list(rack.physical_networks) for rack, host in record.lab.places()}
    for name, expected in networks.items():
        bridges = up.host_named(state, name).vsctl("list-br").split()
        assert {f"br-{network}" for network in expected} < set(bridges)


def test_up_again_repairs_and_a_stranger_can_take_it_down(state):
    up.up(model.default_file(), state)
    before = up.status(state)
    controller = up.host_named(state, "r1h2").pid("controller")
    run("kill", "-9", str(controller))
    until(lambda: up.status(state).hosts[1].missing, "the controller is missed")
    assert up.status(state).hosts[1].missing == ("controller",)

    up.up(model.default_file(), state)
    assert up.status(state) == before
    up.down(state)
    assert leftovers(state) == []


def test_a_half_built_lab_is_taken_down(state, monkeypatch):
    def fail(*_args):
        raise CommandFailed(["ovn-controller"], "no such thing today")

    monkeypatch.setattr("moorage.lab.host.LabHost._start_controller", fail)
    with pytest.raises(CommandFailed):
        up.up(model.default_file(), state)
    assert leftovers(state) != []
    up.down(state)
    assert leftovers(state) == []
    assert not state.exists()


def test_down_touches_nothing_that_is_no_lab(short_path):
    (short_path / "mine").write_text("precious")
    up.down(short_path)
    assert (short_path / "mine").read_text() == "precious"


def test_a_path_too_long_for_sockets_is_said_before_anything_runs(short_path):
    deep = short_path / ("x" * 90)
    with pytest.raises(LabError, match="shorter path"):
        up.up(model.default_file(), deep)
    up.down(deep)
    assert leftovers(deep) == []


def test_a_probe_whose_port_nobody_knows_leaves_nothing(state, monkeypatch):
    monkeypatch.setattr("moorage.lab.probe.PLUG_TIMEOUT", 0.5)
    up.up(model.default_file(), state)
    port = probe.ProbePort("cccccccc-unknown", "02:00:00:00:09:33", "10.9.0.33/24")
    with pytest.raises(CommandFailed):
        probe.plug(state, "r1h1", port)
    assert [name for name in names_of(state).namespaces() if "probe" in name] == []
    with pytest.raises(LabError, match="no probe"):
        probe.find(state, port.port_id)


def test_daemons_hold_no_pipe_of_the_caller(state):
    script = f"from pathlib import Path; from moorage.lab import up, model; up.up(model.default_file(), Path({str(state)!r}))"
    # run() reads both pipes to their ends, so it would time out here if a daemon kept one open.
    env = {**os.environ, "PYTHONPATH": str(Path(moorage.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
