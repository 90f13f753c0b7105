"""Server groups: what they promise holds for servers that are placed at once."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.store.database import Database
from tests.support.cloud import Client, TestCloud, running_cloud, whole
from tests.support.identity import Identity

VERSION = "2.64"


@pytest.fixture
async def cloud(database: Database, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity, hosts=4) as found:
        yield found


async def group(demo: Client, policy: str, **rules: int) -> str:
    body = {"name": policy, "policy": policy, **({"rules": rules} if rules else {})}
    made = await demo.make("compute", "/os-server-groups", {"server_group": body}, version=VERSION)
    return str(made["server_group"]["id"])


async def boot(cloud: TestCloud, image: str, group_id: str, count: int) -> list[Any]:
    """So many servers of a group, asked for by one request; as they ended."""
    admin, demo = await cloud.client("admin"), await cloud.client()
    size = {"flavor": {"name": group_id, "ram": 512, "vcpus": 1, "disk": 1}}
    flavor = (await admin.make("compute", "/flavors", size))["flavor"]["id"]
    wanted = {"name": f"s-{group_id}", "imageRef": image, "flavorRef": flavor, "networks": "none"}
    body = {
        "server": {**wanted, "min_count": count, "max_count": count},
        "os:scheduler_hints": {"group": group_id},
    }
    await demo.make("compute", "/servers", body, version=VERSION)
    mine = (await demo.get("compute", f"/servers?name=s-{group_id}"))["servers"]
    for server in mine:
        await demo.wait_for(server["id"], "ACTIVE", "ERROR")
    return [(await admin.get("compute", f"/servers/{s['id']}"))["server"] for s in mine]


def hosts(servers: list[Any]) -> Counter[str]:
    return Counter(s["OS-EXT-SRV-ATTR:host"] for s in servers if s["status"] == "ACTIVE")


async def test_1821755_servers_placed_at_once_stay_apart(
    cloud: TestCloud, image_id: str, database: Database
) -> None:
    demo = await cloud.client()
    servers = await boot(cloud, image_id, await group(demo, "anti-affinity"), 6)
    assert sorted(hosts(servers).values()) == [1, 1, 1, 1]
    failed = [s["fault"]["message"] for s in servers if s["status"] == "ERROR"]
    assert len(failed) == 2
    assert all("4 hosts: 4 taken by a server of the group" in message for message in failed), failed
    await whole(database)


async def test_a_rule_lets_so_many_share_a_host(cloud: TestCloud, image_id: str) -> None:
    demo = await cloud.client()
    servers = await boot(cloud, image_id, await group(demo, "anti-affinity", max_server_per_host=2), 8)
    assert sorted(hosts(servers).values()) == [2, 2, 2, 2]


async def test_affinity_keeps_all_on_one_host(cloud: TestCloud, image_id: str) -> None:
    demo = await cloud.client()
    servers = await boot(cloud, image_id, await group(demo, "affinity"), 5)
    assert list(hosts(servers).values()) == [5]


async def test_soft_policies_prefer_and_do_not_refuse(cloud: TestCloud, image_id: str) -> None:
    demo = await cloud.client()
    near = await boot(cloud, image_id, await group(demo, "soft-affinity"), 4)
    assert list(hosts(near).values()) == [4]
    apart = await boot(cloud, image_id, await group(demo, "soft-anti-affinity"), 6)
    assert sorted(hosts(apart).values()) == [1, 1, 2, 2]
