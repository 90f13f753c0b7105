"""The whole cloud with real guests: `moorage up` with its lab, and a user who acts over HTTP alone.

One cloud serves every test here: Keystone, Glance, PostgreSQL, OVN, two racks of two hosts with their agents, and
guests under QEMU. What is seen from outside the API (a client in the network, what hosts hold) is looked at with the
lab's own means.
"""

import base64
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.lab import netns, probe, up
from moorage.lab.host import LabHost
from moorage.lab.image import GuestImage
from moorage.lab.ovn import OvnCentral
from moorage.lab.shell import run
from support.lab import leftovers
from support.program import MoorageUp
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.usefixtures("lab_machine"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]
RACKS = {"rack1": ("r1h1", "r1h2"), "rack2": ("r2h1", "r2h2")}
HOSTS = tuple(name for names in RACKS.values() for name in names)
FIRST, SECOND, CLIENT = "10.77.0.11", "10.77.0.12", "10.77.0.13"

# The second guest's user data: reach the first one by ping and by TCP, and say so on the console.
GREET = f"""#!/bin/sh
(
    until ping -c 1 -W 1 {FIRST} >/dev/null 2>&1; do sleep 1; done
    echo "moorage test ping {FIRST} answered" >/dev/console
    until [ "$(echo ahoy | nc -w 5 {FIRST} 7)" = ahoy ]; do sleep 1; done
    echo "moorage test echo {FIRST} answered" >/dev/console
) &
"""

# A TCP client that keeps its connection: seconds and a line in, and out comes what the other side said within them.
HELD = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
for said in sys.stdin:
    within, line = said.split(" ", 1)
    link.settimeout(float(within))
    try:
        link.sendall(line.encode())
        print(link.recv(100).decode().strip() or "closed", flush=True)
    except OSError:
        print("silence", flush=True)
"""


class World(msgspec.Struct, frozen=True):
    """The cloud, its two users, and what every test shares: a network, two servers in different racks, a client."""

    cloud: MoorageUp
    user: Any
    admin: Any
    first: Any
    second: Any
    client: probe.Probe

    @property
    def lab(self) -> Path:
        return self.cloud.state / "lab"

    def drop_client(self) -> None:
        """The client goes, and its port with it."""
        self.client.unplug()
        self.admin.network.delete_port(self.client.port.port_id)

    def host(self, name: str) -> LabHost:
        return up.host_named(self.lab, name)

    def host_of(self, server: Any) -> str:
        return str(self.admin.compute.get_server(server.id).compute_host)


def booted(user: Any, server_id: str) -> Any:
    """The server once it is ACTIVE."""
    until(lambda: user.compute.get_server(server_id).status != "BUILD", "the server is built")
    server = user.compute.get_server(server_id)
    assert server.status == "ACTIVE", server.fault
    return server


@pytest.fixture(scope="module")
def cloud(lab_machine: None) -> Iterator[MoorageUp]:
    state = Path(tempfile.mkdtemp(prefix="mc-"))
    made = MoorageUp(state, hosts="lab", compute_power_sync_grace=5, compute_power_sync_interval=2)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        up.down(state / "lab")
        OvnCentral(state / "ovn").stop_now()
    assert leftovers(state) == []
    shutil.rmtree(state)


@pytest.fixture(scope="module")
def world(cloud: MoorageUp, guest_image: GuestImage) -> Iterator[World]:
    user, admin = cloud.connect(), cloud.connect("moorage-admin")
    image = admin.image.create_image(
        "guest",
        data=guest_image.disk.read_bytes(),
        disk_format="qcow2",
        container_format="bare",
        visibility="public",
    )
    flavor = admin.compute.create_flavor(name="tiny", vcpus=1, ram=128, disk=1)
    until(lambda: {h.name for h in admin.compute.hypervisors() if h.state == "up"} >= set(HOSTS), "hosts up")
    for rack, names in RACKS.items():
        zone = admin.compute.create_aggregate(name=rack, availability_zone=rack)
        for name in names:
            admin.compute.add_host_to_aggregate(zone, name)
    net = user.network.create_network(name="net")
    user.network.create_subnet(network_id=net.id, ip_version=4, cidr="10.77.0.0/24")

    def boot(name: str, zone: str, address: str, script: str | None = None) -> Any:
        return user.compute.create_server(
            name=name,
            image_id=image.id,
            flavor_id=flavor.id,
            availability_zone=zone,
            networks=[{"uuid": net.id, "fixed_ip": address}],
            **({"user_data": base64.b64encode(script.encode()).decode()} if script else {}),
        )

    asked = [boot("first", "rack1", FIRST), boot("second", "rack2", SECOND, GREET)]
    first, second = (booted(user, server.id) for server in asked)
    port = admin.network.create_port(
        network_id=net.id, binding_host_id="r2h2", fixed_ips=[{"ip_address": CLIENT}]
    )
    client = probe.plug(
        cloud.state / "lab", "r2h2", probe.ProbePort(port.id, port.mac_address, f"{CLIENT}/24")
    )
    made = World(cloud, user, admin, first, second, client)
    yield made
    made.drop_client()


def console(world: World, server: Any) -> str:
    return str(world.user.compute.get_server_console_output(server.id)["output"])


def test_guests_in_different_racks_reach_each_other(world: World) -> None:
    assert world.host_of(world.first) in RACKS["rack1"]
    assert world.host_of(world.second) in RACKS["rack2"]
    for said in ("ping", "echo"):
        line = f"moorage test {said} {FIRST} answered"
        until(lambda line=line: line in console(world, world.second), f"{line!r} on the second one's console")


def echo_opened(world: World) -> Any:
    """The rule that lets everybody reach the guests' echo, once the first guest is."""
    network = world.user.network
    (group,) = (g for g in network.security_groups() if g.name == "default")
    rule = network.create_security_group_rule(
        security_group_id=group.id,
        direction="ingress",
        protocol="tcp",
        port_range_min=7,
        port_range_max=7,
    )
    until(lambda: world.client.echo(FIRST, wait=3), "the port opens")
    return rule


def test_a_rule_that_is_added_opens_a_port_and_one_that_is_removed_closes_it_for_held_connections_too(
    world: World,
) -> None:
    network, client = world.user.network, world.client
    until(lambda: f"ready {FIRST}" in console(world, world.first), "the first guest is up")
    assert not client.echo(FIRST, wait=3)
    rule = echo_opened(world)
    assert not client.echo(FIRST, port=80, wait=3)
    held = subprocess.Popen(
        ["ip", "netns", "exec", client.namespace, sys.executable, "-c", HELD, FIRST, "7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert held.stdin is not None
    assert held.stdout is not None

    def said(line: str, within: int) -> str:
        held.stdin.write(f"{within} {line}\n")
        held.stdin.flush()
        return held.stdout.readline().strip()

    try:
        assert said("ahoy", 60) == "ahoy"
        network.delete_security_group_rule(rule)
        until(lambda: not client.echo(FIRST, wait=3), "the port closes")
        assert said("still there?", 3) == "silence"
    finally:
        held.kill()
        held.communicate()


@pytest.mark.parametrize("end", [MoorageUp.kill, MoorageUp.stop])
def test_guests_run_on_without_the_cloud_and_the_next_start_goes_on_with_them(
    world: World, end: Callable[[MoorageUp], object]
) -> None:
    """It is killed, and it is stopped in order."""
    compute, network, client = world.user.compute, world.user.network, world.client
    until(lambda: f"ready {FIRST}" in console(world, world.first), "the first guest is up")
    rule = echo_opened(world)
    guests = {name: world.host(name).guests() for name in HOSTS}
    assert sum(map(len, guests.values())) == 2

    end(world.cloud)
    assert client.echo(FIRST, wait=PATIENCE)
    world.cloud.start()

    assert {name: world.host(name).guests() for name in HOSTS} == guests
    assert client.echo(FIRST, wait=PATIENCE)
    assert f"ready {FIRST}" in console(world, world.first)
    until(lambda: clean_but_for_the_client(world), "the audit is clean")
    assert [compute.get_server(s.id).status for s in (world.first, world.second)] == ["ACTIVE", "ACTIVE"]
    # And it is obeyed again.
    network.delete_security_group_rule(rule)
    until(lambda: not client.echo(FIRST, wait=3), "the port closes")


def test_a_guest_that_is_killed_is_shutoff_and_start_brings_it_back(world: World) -> None:
    compute, server = world.user.compute, world.first
    host = world.host(world.host_of(server))
    (guest,) = host.guests()
    run("kill", "-9", str(guest))
    until(lambda: compute.get_server(server.id).status == "SHUTOFF", "SHUTOFF")
    assert next(iter(compute.server_actions(server.id))).action == "stop"

    compute.start_server(server)
    until(lambda: compute.get_server(server.id).status == "ACTIVE", "ACTIVE again")
    # It is reached by the one it greets, in whose security group it is.
    until(lambda: f"ready {FIRST}" in console(world, server), "its console after the second boot")


def test_a_host_that_was_built_anew_gets_its_guests_again_by_start(world: World) -> None:
    """The lab goes down and comes up: what was on its hosts is lost, and nobody was there to say so."""
    compute, servers = world.user.compute, (world.first, world.second)
    world.client.unplug()
    up.down(world.lab)
    made = world.cloud.command("lab", "up")
    assert made.returncode == 0, made.stderr
    for server in servers:
        until(lambda server=server: compute.get_server(server.id).status == "SHUTOFF", "SHUTOFF")
        compute.start_server(server)
    for server in servers:
        until(lambda server=server: compute.get_server(server.id).status == "ACTIVE", "ACTIVE again")
    line = f"moorage test echo {FIRST} answered"
    until(lambda: line in console(world, world.second), "they reach each other again")
    world.client.build()


def test_a_deleted_server_leaves_nothing_anywhere(world: World) -> None:
    compute = world.user.compute
    world.drop_client()
    ports = [port for s in (world.first, world.second) for port in world.user.network.ports(device_id=s.id)]
    assert len(ports) == 2
    taps = [tap for name in HOSTS for tap in guest_taps(world.host(name))]
    assert len(taps) == 2
    assert all(named(world, port.id) for port in ports)

    for server in (world.first, world.second):
        assert world.admin.placement.get(f"/allocations/{server.id}").json()["allocations"]
        compute.delete_server(server)
    for server in (world.first, world.second):
        until(lambda server=server: compute.find_server(server.id) is None, "the server is gone")

    for name in HOSTS:
        host = world.host(name)
        assert host.guests() == []
        assert guest_taps(host) == []
        assert "tap" not in host.vsctl("list-ports", "br-int")
        assert list((host.folder / "agent" / "guests").glob("*")) == []
    for server in (world.first, world.second):
        assert world.admin.placement.get(f"/allocations/{server.id}").json()["allocations"] == {}
    for port in ports:
        assert world.user.network.find_port(port.id) is None
        until(lambda port=port: not named(world, port.id), "OVN forgets the port")
    # Hosts' reports are held against the cloud once they are as old as a heartbeat.
    found = until(lambda: clean(world), "the audit is clean")
    assert "audit: clean" in found


def clean(world: World) -> str | None:
    done = world.cloud.command("audit")
    return done.stdout if done.returncode == 0 else None


def clean_but_for_the_client(world: World) -> bool:
    """The client's port is bound to a host and is no server's, which the audit finds."""
    said = world.cloud.command("audit").stdout
    found = [line for line in said.splitlines() if line.startswith("FINDING")]
    return "server.host: " in said and all(world.client.port.port_id in line for line in found)


def guest_taps(host: LabHost) -> list[str]:
    """Tap devices in the host's namespace; a probe's is a veth."""
    said = netns.inside(host.namespace, "ip", "-o", "tuntap", "show")
    return [line.split(":")[0] for line in said.splitlines() if line.startswith("tap")]


def named(world: World, port_id: str) -> bool:
    """Whether either of OVN's databases names the port."""
    ovn = world.cloud.state / "ovn"
    northbound = run("ovn-nbctl", f"--db=unix:{ovn}/nb.sock", "--bare", "--columns=name", "list",
                     "logical_switch_port")  # fmt: skip
    southbound = run("ovn-sbctl", f"--db=unix:{ovn}/sb.sock", "--bare", "--columns=logical_port", "list",
                     "port_binding")  # fmt: skip
    return port_id in northbound or port_id in southbound
