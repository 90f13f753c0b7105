"""Fifty hosts, many servers at once, several users and clients; and a control plane that dies in the middle."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import openstack
import pytest

from moorage.agent.hypervisors.simulated import Behaviour
from moorage.audit import audit
from moorage.children.bootstrap import Addresses
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.support.cloud import Client, TestCloud, running_cloud
from tests.support.identity import Identity
from tests.support.ports import free_ports


@pytest.fixture
async def cloud(database: Database, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity, hosts=2) as found:
        yield found


@pytest.fixture
async def fifty_hosts(database: Database, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity, hosts=50, quota__instances=-1, quota__cores=-1) as found:
        yield found


async def boot(demo: Client, body: object) -> str:
    return str((await demo.make("compute", "/servers", body))["server"]["id"])


async def test_many_servers_at_once_are_spread_and_all_goes_back(
    fifty_hosts: TestCloud, image_id: str, database: Database
) -> None:
    demo = await fifty_hosts.client()
    body = server(image_id, await flavor(fifty_hosts), await network(demo))
    made = await asyncio.gather(*(boot(demo, body) for _ in range(40)))
    await asyncio.gather(*(demo.wait_for(s, "ACTIVE") for s in made))
    async with database.read() as tx:
        hosts = Counter(r[0] for r in await tx.fetch("SELECT host FROM servers"))
        addresses = [r[0] for r in await tx.fetch("SELECT address FROM port_fixed_ips")]
    assert len(hosts) >= 35
    assert max(hosts.values()) <= 3
    assert len(set(addresses)) == 40
    report = await audit(database, grace=0)
    assert not [f for f in report.findings if not f.invariant.startswith("guest.")]

    await asyncio.gather(*(demo.request("compute", "DELETE", f"/servers/{s}") for s in made))
    await asyncio.gather(*(demo.wait_for(s, "gone") for s in made))
    async with database.read() as tx:
        held = await tx.fetch("SELECT (SELECT count(*) FROM ports), (SELECT count(*) FROM allocations)")
    assert tuple(held[0]) == (0, 0)


async def test_another_project_sees_nothing_and_can_do_nothing(cloud: TestCloud, image_id: str) -> None:
    demo, other = await cloud.client(), await cloud.client("other")
    reader = await cloud.client("demo-reader")
    net = await network(demo)
    made = await boot(demo, server(image_id, await flavor(cloud), net))
    await demo.wait_for(made, "ACTIVE")
    port = (await demo.get("network", f"/ports?device_id={made}"))["ports"][0]["id"]
    for api, path in (
        ("compute", f"/servers/{made}"),
        ("compute", f"/moorage/v1/servers/{made}/placement"),
        ("network", f"/networks/{net}"),
        ("network", f"/ports/{port}"),
    ):
        status, body = await other.request(api, "GET", path)
        assert status == 404, (path, status, body)
        assert "demo" not in str(body)
    assert (await other.get("compute", "/servers"))["servers"] == []
    assert (await other.get("network", "/ports"))["ports"] == []
    assert (await other.request("compute", "DELETE", f"/servers/{made}"))[0] == 404
    assert (await reader.request("compute", "GET", f"/servers/{made}"))[0] == 200
    assert (await reader.request("compute", "DELETE", f"/servers/{made}"))[0] == 403
    assert (await demo.request("compute", "GET", "/moorage/v1/operations"))[0] == 403
    shown = await demo.get("compute", f"/moorage/v1/servers/{made}/placement")
    assert not [r for r in shown["attempts"][0]["ranking"] if r["host"].startswith("sim-")]


@pytest.mark.parametrize(
    ("change", "field", "status"),
    [
        ({"name": 7}, "name", 400),
        ({"colour": "red"}, "colour", 400),
        ({"flavorRef": "nothing"}, "lavor", 400),
        ({"imageRef": "00000000-0000-0000-0000-000000000000"}, "mage", 400),
        ({"networks": [{"uuid": "00000000-0000-0000-0000-000000000000"}]}, "etwork", 400),
        ({"availability_zone": "nowhere"}, "vailability", 400),
    ],
)
async def test_bad_input_is_named_and_leaves_nothing(
    cloud: TestCloud, image_id: str, database: Database, change: dict[str, object], field: str, status: int
) -> None:
    demo = await cloud.client()
    body = server(image_id, await flavor(cloud), await network(demo), **change)
    got, answer = await demo.request("compute", "POST", "/servers", body)
    assert got == status, answer
    assert field in str(answer)
    async with database.read() as tx:
        assert not await tx.fetch("SELECT 1 FROM servers")


async def test_a_control_plane_that_dies_loses_nothing_and_the_next_one_finishes_its_boots(
    database: Database, identity: Identity, image_id: str
) -> None:
    quick = {"conductor__lease": 0.5, "conductor__poll": 0.1}
    slow_hosts = Behaviour(latency=1.0)
    # Not ports that the kernel gives to the agents themselves while they try to connect again.
    ports = dict(zip(("compute_port", "agent_port"), free_ports(2), strict=True))
    async with running_cloud(database, identity, hosts=5, behaviour=slow_hosts, **ports, **quick) as first:
        demo = await first.client()
        size, net = await flavor(first), await network(demo)
        made = [await boot(demo, server(image_id, size, net)) for _ in range(6)]
        await first.cloud.kill()
        async with database.read() as tx:
            [under_way] = await tx.fetch("SELECT count(*) FROM operations WHERE state <> 'done'")
        assert under_way[0] > 0
        # The hosts are those of the first one, and find the second where it was.
        second = running_cloud(database, identity, hosts=0, **ports, **quick)
        async with second as cloud:
            demo = await cloud.client()
            for server_id in made:
                await demo.wait_for(server_id, "ACTIVE")
            async with database.read() as tx:
                ends = await tx.fetch("SELECT state, count(*) FROM operations GROUP BY state")
            assert [tuple(row) for row in ends] == [("done", 6)]
            report = await audit(database, grace=0)
            assert not [f for f in report.findings if not f.invariant.startswith("guest.")]


@pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning")
@pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning")
async def test_openstacksdk_boots_and_deletes(cloud: TestCloud, identity: Identity, image_id: str) -> None:
    region = "Sdk"
    await identity.publish(
        Addresses(
            compute=cloud.cloud.url("compute") + "/v2.1",
            placement=cloud.cloud.url("placement"),
            network=cloud.cloud.url("network"),
        ),
        region=region,
    )
    size = await flavor(cloud)

    def use() -> None:
        with openstack.connect(load_yaml_config=False, **identity.cloud("demo", region)) as sdk:
            net = sdk.network.create_network(name="sdk")
            sdk.network.create_subnet(network_id=net.id, ip_version=4, cidr="10.9.0.0/24")
            made = sdk.compute.create_server(
                name="sdk", image_id=image_id, flavor_id=size, networks=[{"uuid": net.id}]
            )
            found = sdk.compute.wait_for_server(made, wait=180)
            assert found.status == "ACTIVE"
            assert len(list(sdk.network.ports(device_id=made.id))) == 1
            assert [s.id for s in sdk.compute.servers()] == [made.id]
            sdk.compute.delete_server(made)
            sdk.compute.wait_for_delete(found, wait=180)
            assert not list(sdk.network.ports(device_id=made.id))
            sdk.network.delete_network(net)

    await asyncio.to_thread(use)
