"""Servers from POST to ACTIVE and away again, on simulated hosts, over HTTP with real tokens."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.agent.fleet import SimulatedHost
from moorage.audit import audit
from moorage.store.database import Database
from tests.support.cloud import Client, TestCloud, running_cloud, whole
from tests.support.identity import Identity


@pytest.fixture
async def cloud(database: Database, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity) as found:
        yield found


async def network(demo: Client) -> str:
    net = (await demo.make("network", "/networks", {"network": {"name": "n"}}))["network"]["id"]
    subnet = {"network_id": net, "cidr": "10.1.0.0/24", "ip_version": 4}
    await demo.make("network", "/subnets", {"subnet": subnet})
    return str(net)


async def flavor(cloud: TestCloud, **more: Any) -> str:
    admin = await cloud.client("admin")
    body = {"name": f"f{len(more)}", "ram": 512, "vcpus": 1, "disk": 1, **more}
    return str((await admin.make("compute", "/flavors", {"flavor": body}))["flavor"]["id"])


def server(image: str, flavor: str, *networks: str, **more: Any) -> dict[str, Any]:
    nets = [{"uuid": n} for n in networks]
    return {"server": {"name": "s", "imageRef": image, "flavorRef": flavor, "networks": nets, **more}}


async def test_a_server_boots_with_its_port_bound_and_is_deleted_without_trace(
    cloud: TestCloud, image_id: str, database: Database
) -> None:
    demo = await cloud.client()
    net, size = await network(demo), await flavor(cloud)
    made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]
    found = await demo.wait_for(made["id"], "ACTIVE", "ERROR")
    assert found["status"] == "ACTIVE", found
    ports = (await demo.get("network", f"/ports?device_id={made['id']}"))["ports"]
    assert [p["status"] for p in ports] == ["ACTIVE"]
    assert found["addresses"]["n"][0]["addr"] == ports[0]["fixed_ips"][0]["ip_address"]
    await whole(database)

    plan = await demo.get("compute", f"/moorage/v1/servers/{made['id']}/placement")
    assert plan["attempts"][0]["considered"] == 4

    status, _ = await demo.request("compute", "DELETE", f"/servers/{made['id']}")
    assert status == 204
    await demo.wait_for(made["id"], "gone")
    assert (await demo.get("network", f"/ports?device_id={made['id']}"))["ports"] == []
    await whole(database)


async def test_no_valid_host_is_summed_up_and_leaves_nothing(
    database: Database, identity: Identity, image_id: str
) -> None:
    hosts = [SimulatedHost(name=f"h{n}", vcpus=2, memory_mb=1024, reserved_memory_mb=0) for n in range(3)]
    async with running_cloud(database, identity, hosts=hosts) as cloud:
        demo = await cloud.client()
        net, size = await network(demo), await flavor(cloud, ram=1536)
        made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]
        found = await demo.wait_for(made["id"], "ACTIVE", "ERROR")
        assert found["status"] == "ERROR"
        assert "3 hosts: 3 short of memory by 512 MB" in found["fault"]["message"]
        assert (await demo.get("network", f"/ports?device_id={made['id']}"))["ports"] == []
        plan = await demo.get("compute", f"/moorage/v1/servers/{made['id']}/placement")
        assert len(plan["attempts"][0]["refusals"]) == 3
        report = await audit(database, grace=0)
        assert not report.findings, report.findings


async def test_stop_start_reboot_and_console(cloud: TestCloud, image_id: str) -> None:
    demo = await cloud.client()
    net, size = await network(demo), await flavor(cloud)
    made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]["id"]
    await demo.wait_for(made, "ACTIVE")
    for action, state in (
        ({"os-stop": None}, "SHUTOFF"),
        ({"os-start": None}, "ACTIVE"),
        ({"reboot": {"type": "HARD"}}, "ACTIVE"),
    ):
        status, body = await demo.request("compute", "POST", f"/servers/{made}/action", action)
        assert status == 202, body
        await demo.wait_for(made, state)
    status, body = await demo.request(
        "compute", "POST", f"/servers/{made}/action", {"os-getConsoleOutput": {}}
    )
    assert status == 200
    assert isinstance(body["output"], str)


async def test_a_zone_can_be_booted_in_as_soon_as_a_host_is_in_it(cloud: TestCloud, image_id: str) -> None:
    admin, demo = await cloud.client("admin"), await cloud.client()
    size, net = await flavor(cloud), await network(demo)
    for number in range(1, 4):
        zone = {"aggregate": {"name": f"rack{number}", "availability_zone": f"rack{number}"}}
        made = (await admin.make("compute", "/os-aggregates", zone))["aggregate"]
        add = {"add_host": {"host": f"sim-000{number}"}}
        await admin.make("compute", f"/os-aggregates/{made['id']}/action", add)
        body = server(image_id, size, net, availability_zone=f"rack{number}")
        booted = (await demo.make("compute", "/servers", body))["server"]["id"]
        found = await demo.wait_for(booted, "ACTIVE", "ERROR")
        assert found["status"] == "ACTIVE", found.get("fault")
        assert found["OS-EXT-AZ:availability_zone"] == f"rack{number}"
