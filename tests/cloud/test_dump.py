"""The dump of a live cloud, placed anew without it."""

import json

import msgspec

from moorage.simulate import stream
from moorage.simulate.engine import Simulation
from moorage.simulate.model import World
from moorage.store.database import Database
from tests.support.cloud import running_cloud
from tests.support.identity import Identity


async def test_a_live_cloud_is_dumped_and_placed_anew(
    database: Database, identity: Identity, image_id: str
) -> None:
    async with running_cloud(database, identity, hosts=3) as cloud:
        admin, demo = await cloud.client("admin"), await cloud.client()
        size = {"flavor": {"name": "f", "ram": 512, "vcpus": 1, "disk": 1}}
        flavor = (await admin.make("compute", "/flavors", size))["flavor"]["id"]
        body = {"name": "s", "imageRef": image_id, "flavorRef": flavor, "networks": "none"}
        for _ in range(4):
            made = await demo.make("compute", "/servers", {"server": body}, version="2.37")
            await demo.wait_for(made["server"]["id"], "ACTIVE")
        status, _ = await demo.request("compute", "GET", "/moorage/v1/placement/dump")
        assert status == 403
        text = await admin.get("compute", "/moorage/v1/placement/dump")
    assert "project" not in json.dumps(text)
    world = msgspec.convert(text, World)
    assert [host.up for host in world.hosts] == [True] * 3
    assert sum(p.inventories["VCPU"].used for p in world.providers if "VCPU" in p.inventories) == 4
    again = Simulation(world.emptied())
    assert all(outcome.host for outcome in again.run(stream.of_consumers(world)))
    assert again.used["MEMORY_MB"] == 2048
