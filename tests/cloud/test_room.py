"""Slow hosts and a flood of boots: as users and operators see it."""

import asyncio
from pathlib import Path
from typing import Any

from moorage.agent.fleet import SimulatedHost
from moorage.audit import audit
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.support.cloud import running_cloud
from tests.support.identity import Identity

HOSTS = [SimulatedHost(name=f"h{n}") for n in range(1, 4)]


async def test_a_flood_waits_for_slow_hosts_without_holding_anything_and_deletes_go_through(
    database: Database, identity: Identity, image_id: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"conductor__operations_per_host": 2, "conductor__poll": 0.1}
    async with running_cloud(database, identity, hosts=HOSTS, state_dir=tmp_path, **settings) as cloud:
        admin, demo = await cloud.client("admin"), await cloud.client()
        body = server(image_id, await flavor(cloud), await network(demo))
        active = str((await demo.make("compute", "/servers", body))["server"]["id"])
        await demo.wait_for(active, "ACTIVE")
        cloud.fleet.behaviour.latency = 3600.0
        made = [str((await demo.make("compute", "/servers", body))["server"]["id"]) for _ in range(9)]

        async def waits() -> dict[str, str]:
            """What each boot waits for, by server."""
            found = {}
            for each in (await admin.get("compute", "/moorage/v1/operations?kind=server.boot"))["operations"]:
                one = await admin.get("compute", f"/moorage/v1/operations/{each['id']}")
                wait = one["operation"]["waits_for"]
                found[each["subject"].partition(":")[2]] = wait["what"] if wait else ""
            return found

        async def until(at_hosts: int, for_room: int) -> dict[str, str]:
            async with asyncio.timeout(180):
                while True:
                    found = await waits()
                    if sorted(found.values()) == sorted(["host"] * at_hosts + ["room"] * for_room):
                        return found
                    await asyncio.sleep(0.1)

        async def count(table: str) -> int:
            async with database.read() as tx:
                return int((await tx.fetch(f"SELECT count(*) FROM {table}"))[0][0])  # noqa: S608  own names

        found = await until(6, 3)
        assert await count("ports") == await count("consumers") == 7, "what waits holds nothing"
        status, _ = await demo.request("compute", "DELETE", f"/servers/{active}")
        assert status == 204
        # Its host has two to build already and is asked all the same: a guest that is ended takes no time.
        await demo.wait_for(active, "gone")
        waiting = next(s for s in made if found[s] == "room")
        await demo.request("compute", "DELETE", f"/servers/{waiting}")
        await demo.wait_for(waiting, "gone")
        cloud.fleet.behaviour.latency = 0.0
        for host in HOSTS:  # what they were at is begun again
            await cloud.fleet.stop_host(host.name)
            cloud.fleet.start_host(host, tmp_path / host.name)
        rest = [s for s in made if s != waiting]
        await asyncio.gather(*(demo.wait_for(s, "ACTIVE") for s in rest))
        report = await audit(database, grace=0)
        assert not [f for f in report.findings if not f.invariant.startswith("guest.")]


async def test_deletes_go_through_on_a_host_with_more_slow_boots_than_it_carries_out_at_once(
    database: Database, identity: Identity, image_id: str, tmp_path: Path
) -> None:
    host = [SimulatedHost(name="h1")]
    async with running_cloud(database, identity, hosts=host, state_dir=tmp_path) as cloud:
        demo = await cloud.client()
        body = server(image_id, await flavor(cloud), await network(demo))
        active = str((await demo.make("compute", "/servers", body))["server"]["id"])
        await demo.wait_for(active, "ACTIVE")
        cloud.fleet.behaviour.latency = 3600.0
        agent = cloud.fleet.agents["h1"]
        most = agent.settings.max_commands
        made = [str((await demo.make("compute", "/servers", body))["server"]["id"]) for _ in range(most + 1)]
        begun: set[str] = set()
        async with asyncio.timeout(180):
            while agent._loop.busy <= most or len(begun) <= most:
                await asyncio.sleep(0.1)
                begun = {guest.server_id for guest in await agent.guests.hypervisor.guests()}
        (waiting,) = set(made) - begun
        for each in (active, waiting):
            status, _ = await demo.request("compute", "DELETE", f"/servers/{each}")
            assert status == 204
            await demo.wait_for(each, "gone")
        assert {guest.server_id for guest in await agent.guests.hypervisor.guests()} == begun - {active}
