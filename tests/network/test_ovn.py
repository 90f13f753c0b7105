"""The keeper and the events against real OVN databases."""

import asyncio
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.exceptions import TimeoutException

from moorage.network.config import NetworkSettings
from moorage.network.mechanisms.ovn.mechanism import OvnMechanism
from moorage.network.mechanisms.ovn.plane import OvnPlane
from moorage.network.model import RequestedNic
from moorage.network.networks import NetworkSpec
from moorage.network.rules import RuleSpec
from moorage.network.segmentation import SegmentSpec
from moorage.network.service import NetworkService
from moorage.network.subnets import SubnetSpec
from moorage.store.signals import Signals
from tests.support.ovn_central import OvnCentral, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@pytest.fixture
def central():
    folder = Path(tempfile.mkdtemp(prefix="ovn-"))  # short: the path of a unix socket has at most 107 bytes
    found = OvnCentral(folder)
    found.start()
    yield found
    found.stop()
    shutil.rmtree(folder)


class Cloud:
    def __init__(self, database, central, hosts):
        self.database = database
        self.central = central
        self.plugged = asyncio.Event()
        self.signals = Signals(database)
        mechanism = OvnMechanism(nb=central.nb, sb=central.sb)
        self.service = NetworkService(
            NetworkSettings(), hosts=hosts, mechanisms=[mechanism], on_plugged=self._on_plugged
        )
        self.plane = OvnPlane(mechanism, self.service, database, self.signals)

    async def _on_plugged(self, _tx, _devices):
        self.plugged.set()

    async def start(self):
        await self.signals.start()
        await self.plane.start()

    async def stop(self):
        await self.plane.stop()
        await self.signals.stop()

    async def settled(self):
        """Until the log is empty and a pass has ended."""
        async with asyncio.timeout(180):
            while True:
                async with self.database.read() as tx:
                    left = (await tx.fetch("SELECT count(*) FROM network_changes"))[0][0]
                last = self.plane.keeper.last
                if left == 0 and last is not None and last.outcome == "done":
                    return
                await asyncio.sleep(0.02)

    async def boot(self, server="s1", host="o1", **segment):
        async with self.database.transaction() as tx:
            network = await self.service.networks.create(
                tx, project_id="p1", spec=NetworkSpec(name="net", segment=SegmentSpec(**segment))
            )
            await self.service.subnets.create(
                tx, project_id="p1", network=network, spec=SubnetSpec(cidr="10.0.0.0/24", ip_version=4)
            )
        async with self.database.transaction() as tx:
            [port] = await self.service.prepare_ports(
                tx, server_id=server, project_id="p1", requested=[RequestedNic(network_id=network.id)]
            )
            await self.service.bind_ports(tx, server_id=server, host=host)
        await self.settled()
        return network, port

    def rows(self, table, *columns):
        text = self.central.nbctl("--format=json", f"--columns={','.join(columns)}", "list", table)
        return [dict(zip(columns, row, strict=True)) for row in json.loads(text)["data"]] if text else []

    def count(self, table):
        return len(self.rows(table, "_uuid"))


@pytest.fixture
async def cloud(database, central, world):
    found = Cloud(database, central, world.service.bindings._hosts)
    await found.start()
    yield found
    await found.stop()


async def test_a_network_that_is_down_carries_nothing(cloud):
    network, _ = await cloud.boot()
    for up in (False, True):
        async with cloud.database.transaction() as tx:
            network = await cloud.service.networks.show(tx, network.id, project_id=None)
            await cloud.service.networks.update(tx, network, {"admin_state_up": up})
        await cloud.settled()
        assert cloud.rows("Logical_Switch_Port", "enabled") == [{"enabled": up}]


async def test_rows_appear_change_and_vanish(cloud):
    network, port = await cloud.boot()
    [lsp] = cloud.rows("Logical_Switch_Port", "name", "addresses", "options", "dhcpv4_options", "enabled")
    address = port.fixed_ips[0]["ip_address"]
    assert lsp["name"] == port.port_id
    assert lsp["addresses"] == f"{port.mac} {address}"
    assert lsp["options"] == ["map", [["requested-chassis", "chassis-o1"]]]
    assert lsp["dhcpv4_options"] != ["set", []]
    groups = {g["name"]: g["ports"] for g in cloud.rows("Port_Group", "name", "ports")}
    assert len(groups) == 2
    assert all(ports[0] == "uuid" for ports in groups.values())
    assert cloud.count("ACL") == 8
    async with cloud.database.transaction() as tx:
        group_id = (await cloud.service.ports_of(tx, "s1"))[0].security_groups[0]
        group = await cloud.service.security_groups.show(tx, group_id, project_id=None)
        spec = RuleSpec(direction="ingress", protocol="tcp", port_range_min=80, port_range_max=80)
        [rule] = await cloud.service.security_groups.create_rules(tx, group, [spec])
    await cloud.settled()
    assert any("tcp.dst == 80" in row["match"] for row in cloud.rows("ACL", "match"))
    async with cloud.database.transaction() as tx:
        await cloud.service.security_groups.delete_rule(tx, rule)
        await cloud.service.unbind_ports(tx, server_id="s1")
    await cloud.settled()
    assert cloud.count("ACL") == 8
    assert cloud.rows("Logical_Switch_Port", "options") == [{"options": ["map", []]}]
    async with cloud.database.transaction() as tx:
        await cloud.service.release_ports(tx, server_id="s1")
        network = await cloud.service.networks.show(tx, network.id, project_id=None)
        await cloud.service.networks.delete(tx, network)
    await cloud.settled()
    assert (
        cloud.count("Logical_Switch_Port")
        == cloud.count("Logical_Switch")
        == cloud.count("DHCP_Options")
        == 0
    )


@pytest.mark.parametrize("error", [TimeoutException(), OSError("gone"), KeyError("surprise")], ids=repr)
async def test_a_beginning_that_fails_however_is_made_again(monkeypatch, database, central, world, error):
    # The library's own time-out has no text: putting it into words must not be what ends the events.
    begin, failures = connection.Connection.start, iter([error] * 4)

    def fails(self):
        if (failure := next(failures, None)) is not None:
            raise failure
        begin(self)

    monkeypatch.setattr(connection.Connection, "start", fails)
    cloud = Cloud(database, central, world.service.bindings._hosts)
    await cloud.start()
    try:
        _, port = await cloud.boot()
        await cloud.settled()
        central.nbctl("--wait=sb", "sync")
        central.sbctl("chassis-add", "chassis-o1", "geneve", "127.0.0.1")
        central.sbctl("lsp-bind", port.port_id, "chassis-o1")
        async with asyncio.timeout(180):
            await cloud.plugged.wait()
    finally:
        await cloud.stop()


async def test_a_provider_network_has_a_localnet_port(cloud):
    await cloud.boot(network_type="vlan", physical_network="physnet1", segmentation_id=300)
    rows = {r["type"]: r for r in cloud.rows("Logical_Switch_Port", "type", "options", "tag_request")}
    assert rows["localnet"]["options"] == ["map", [["network_name", "physnet1"]]]
    assert rows["localnet"]["tag_request"] == 300


async def test_plug_events_come_from_the_southbound_database(cloud):
    _, port = await cloud.boot()
    cloud.central.nbctl("--wait=sb", "sync")
    for name in ("o1", "o2"):
        cloud.central.sbctl("chassis-add", f"chassis-{name}", "geneve", f"127.0.0.{name[1]}")
    cloud.central.sbctl("lsp-bind", port.port_id, "chassis-o1")
    async with asyncio.timeout(180):
        await cloud.plugged.wait()
    await until(cloud, "ACTIVE")
    cloud.central.sbctl("lsp-unbind", port.port_id)
    await until(cloud, "DOWN")
    # Another chassis than the port is bound to doesn't count.
    cloud.plugged.clear()
    cloud.central.sbctl("lsp-bind", port.port_id, "chassis-o2")
    cloud.central.sbctl("lsp-unbind", port.port_id)
    cloud.central.sbctl("lsp-bind", port.port_id, "chassis-o1")
    await until(cloud, "ACTIVE")


async def until(cloud, status):
    async with asyncio.timeout(180):
        while True:
            async with cloud.database.read() as tx:
                [port] = await cloud.service.ports_of(tx, "s1")
            if port.status == status:
                return
            await asyncio.sleep(0.02)


async def test_a_rebind_to_the_same_host_is_active_without_a_new_event(cloud):
    _, port = await cloud.boot()
    cloud.central.nbctl("--wait=sb", "sync")
    cloud.central.sbctl("chassis-add", "chassis-o1", "geneve", "127.0.0.1")
    cloud.central.sbctl("lsp-bind", port.port_id, "chassis-o1")
    await until(cloud, "ACTIVE")
    async with cloud.database.transaction() as tx:
        await cloud.service.unbind_ports(tx, server_id="s1")
        await cloud.service.bind_ports(tx, server_id="s1", host="o1")
    await until(cloud, "ACTIVE")


async def test_foreign_rows_stay_and_a_resync_repairs(cloud):
    _, port = await cloud.boot()
    cloud.central.nbctl("ls-add", "foreign")
    cloud.central.nbctl("lsp-add", "foreign", "theirs")
    cloud.central.nbctl("set", "logical_switch_port", port.port_id, "addresses=unknown", "options={}")
    acl = cloud.rows("ACL", "_uuid")
    cloud.central.nbctl("pg-del", "moorage_drop")
    marks = '{"moorage:owner"=moorage,"moorage:key"="segment:gone","moorage:scope"="network:gone"}'
    cloud.central.nbctl("create", "Logical_Switch", "name=stale", f"external_ids={marks}")
    await cloud.stop()
    again = Cloud(cloud.database, cloud.central, cloud.service.bindings._hosts)
    await again.start()
    try:
        await again.settled()
        by_name = {r["name"]: r for r in again.rows("Logical_Switch_Port", "name", "addresses", "options")}
        assert set(by_name) == {port.port_id, "theirs"}
        assert by_name[port.port_id]["options"] == ["map", [["requested-chassis", "chassis-o1"]]]
        assert by_name[port.port_id]["addresses"].startswith(port.mac)
        assert again.count("ACL") == len(acl)
        assert {g["name"] for g in again.rows("Port_Group", "name")} > {"moorage_drop"}
        assert {s["name"] for s in again.rows("Logical_Switch", "name")} > {"foreign"}
        assert "stale" not in {s["name"] for s in again.rows("Logical_Switch", "name")}
    finally:
        await again.stop()


async def test_it_goes_on_when_ovn_comes_back(cloud):
    await cloud.boot()
    cloud.central.stop()
    cloud.central.start()
    await cloud.boot("s2")
    assert cloud.count("Logical_Switch") == 2


async def test_security_groups_let_through_what_they_say(cloud):
    network, first = await cloud.boot()
    async with cloud.database.transaction() as tx:
        group = await cloud.service.security_groups.create(tx, project_id="p1", name="web")
        second, third = [
            (
                await cloud.service.prepare_ports(
                    tx,
                    server_id=name,
                    project_id="p1",
                    requested=[RequestedNic(network_id=network.id)],
                    security_groups=groups,
                )
            )[0]
            for name, groups in (("s2", ()), ("s3", ("web",)))
        ]
    await cloud.settled()
    assert passes(cloud, network, first, second, 7)
    assert not passes(cloud, network, third, first, 7)
    assert not passes(cloud, network, first, third, 80)
    async with cloud.database.transaction() as tx:
        group = await cloud.service.security_groups.show(tx, group.id, project_id=None)
        spec = RuleSpec(direction="ingress", protocol="tcp", port_range_min=80, port_range_max=80)
        await cloud.service.security_groups.create_rules(tx, group, [spec])
    await cloud.settled()
    assert passes(cloud, network, first, third, 80)
    assert not passes(cloud, network, first, third, 81)
    spoofed = third.fixed_ips[0]["ip_address"]
    assert not passes(cloud, network, first, second, 7, source=spoofed)


def passes(cloud, network, sender, receiver, port, source=None):
    """What OVN's own simulator does with a TCP packet; it also reports matches that it cannot parse."""
    cloud.central.nbctl("--wait=sb", "sync")
    packet = (
        f'inport == "{sender.port_id}" && eth.src == {sender.mac} && eth.dst == {receiver.mac} && ip.ttl == 64'
        f" && ip4.src == {source or sender.fixed_ips[0]['ip_address']}"
        f" && ip4.dst == {receiver.fixed_ips[0]['ip_address']} && tcp && tcp.src == 4000 && tcp.dst == {port}"
    )
    command = ["ovn-trace", f"--db={cloud.central.sb}", "--minimal", "--ct=new", "--ct=new"]
    done = subprocess.run(
        [*command, f"segment-{network.segments[0]['id']}", packet], check=True, capture_output=True, text=True
    )
    assert "parsing" not in done.stderr, done.stderr
    return "output(" in done.stdout or "output to" in done.stdout
