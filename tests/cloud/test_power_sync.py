"""Guests that go without a word: what their hosts report makes the servers SHUTOFF, and ``start`` brings them back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from moorage.agent import identity as agent_identity
from moorage.agent.fleet import hosts as many_hosts
from moorage.agent.link import Link, Transport
from moorage.store.database import Database
from moorage.wire.messages import Event, HostReport, Uplink
from tests.cloud.test_boot import flavor, network, server
from tests.support.cloud import Client, TestCloud, running_cloud, whole
from tests.support.identity import Identity

HOST = "sim-0001"


@pytest.fixture
async def cloud(database: Database, identity: Identity) -> AsyncIterator[TestCloud]:
    # The keeper is woken by reports alone, and believes them at once.
    settings = {"compute__power_sync_interval": 3600.0, "compute__power_sync_grace": 0.0}
    async with running_cloud(database, identity, hosts=1, heartbeat=0.1, **settings) as found:
        yield found


async def booted(cloud: TestCloud, demo: Client, image_id: str) -> str:
    body = server(image_id, await flavor(cloud), await network(demo))
    made = str((await demo.make("compute", "/servers", body))["server"]["id"])
    await demo.wait_for(made, "ACTIVE")
    return made


async def known_to_run(database: Database, server_id: str) -> None:
    """Return once the host has reported the guest: what comes and goes between two reports is left to the timer."""
    told = [{"server_id": server_id, "power_state": "running"}]
    async with asyncio.timeout(180):
        while True:
            async with database.read() as tx:
                if await tx.fetch("SELECT FROM hosts WHERE guests @> $1", (told,)):
                    return
            await asyncio.sleep(0.02)


async def actions(demo: Client, server_id: str) -> list[dict[str, Any]]:
    path = f"/servers/{server_id}/os-instance-actions"
    return list((await demo.get("compute", path, version="2.84"))["instanceActions"])


@contextlib.asynccontextmanager
async def spoken_by_hand(cloud: TestCloud, name: str = HOST) -> AsyncIterator[tuple[Link, HostReport]]:
    """The host's own connection, and what it would report; its agent is silent while the block runs."""
    agent = cloud.fleet.agents[name]
    report = await agent.report()
    await cloud.fleet.stop_host(name)
    known = agent_identity.load(agent.settings.state_dir)
    assert known is not None
    async with Transport(cloud.cloud.url("agent")) as transport:
        yield Link(transport, known), report


async def restarted(cloud: TestCloud, name: str = HOST) -> None:
    """The host's agent again. What simulated guests there were went with the old one: as if the host was built anew."""
    folder = cloud.fleet.agents[name].settings.state_dir
    cloud.fleet.start_host(next(iter(many_hosts(1))), folder)


async def compared(cloud: TestCloud) -> Mapping[str, Any]:
    """What a pass of our own did, once the keeper's own is through."""
    while (found := await cloud.cloud.power_sync.pass_once()).outcome == "held elsewhere":
        await asyncio.sleep(0.01)
    assert found.outcome == "done"
    return found.did


async def test_guests_that_went_with_their_host_are_shutoff_and_start_makes_them_again(
    cloud: TestCloud, database: Database, image_id: str
) -> None:
    demo = await cloud.client()
    made = await booted(cloud, demo, image_id)
    before = (await demo.get("network", f"/ports?device_id={made}"))["ports"]
    await known_to_run(database, made)
    await cloud.fleet.stop_host(HOST)
    await restarted(cloud)
    assert (await demo.wait_for(made, "SHUTOFF"))["OS-EXT-STS:power_state"] == 4

    stop, create = await actions(demo, made)
    assert (stop["action"], create["action"]) == ("stop", "create")
    assert (stop["user_id"], stop["project_id"], stop["message"]) == (None, None, None)
    admin = await cloud.client("admin")
    path = f"/servers/{made}/os-instance-actions/{stop['request_id']}"
    (event,) = (await admin.get("compute", path, version="2.84"))["instanceAction"]["events"]
    assert (event["event"], event["result"], event["host"]) == ("compute_stop_instance", "Success", HOST)
    assert event["details"] == "The host reported that the guest does not run."
    assert event["finish_time"] is not None

    assert (await demo.request("compute", "POST", f"/servers/{made}/action", {"os-start": None}))[0] == 202
    await demo.wait_for(made, "ACTIVE")
    assert [g.power_state for g in await cloud.fleet.agents[HOST].guests.hypervisor.guests()] == ["running"]
    ports = (await demo.get("network", f"/ports?device_id={made}"))["ports"]
    assert [(p["id"], p["fixed_ips"], p["status"]) for p in ports] == [
        (p["id"], p["fixed_ips"], "ACTIVE") for p in before
    ]
    await whole(database, grace=0.5)
    assert (await demo.request("compute", "DELETE", f"/servers/{made}"))[0] == 204
    await demo.wait_for(made, "gone")


async def test_guests_that_are_off_after_their_hosts_reboot_are_shutoff(
    cloud: TestCloud, image_id: str
) -> None:
    demo = await cloud.client()
    made = await booted(cloud, demo, image_id)
    hypervisor = cloud.fleet.agents[HOST].guests.hypervisor
    await hypervisor.power_off(made, soft=False, timeout=0)
    await demo.wait_for(made, "SHUTOFF")
    assert [a["action"] for a in await actions(demo, made)] == ["stop", "create"]


async def test_a_guest_that_its_agent_saw_end_is_shutoff_with_an_action(
    cloud: TestCloud, image_id: str
) -> None:
    demo = await cloud.client()
    made = await booted(cloud, demo, image_id)
    hypervisor = cloud.fleet.agents[HOST].guests.hypervisor
    assert hypervisor.on_ended is not None
    hypervisor.on_ended(made)
    await demo.wait_for(made, "SHUTOFF")
    assert [a["action"] for a in await actions(demo, made)] == ["stop", "create"]


async def test_what_another_host_says_of_a_guest_changes_nothing(
    database: Database, identity: Identity, image_id: str
) -> None:
    async with running_cloud(database, identity, hosts=2, compute__power_sync_interval=3600.0) as cloud:
        demo = await cloud.client()
        made = await booted(cloud, demo, image_id)
        async with database.read() as tx:
            ((own,),) = await tx.fetch("SELECT host FROM servers WHERE id = $1", (made,))
        (other,) = set(cloud.fleet.agents) - {own}
        ended = Event(kind="guest.power", data={"server_id": made, "power_state": "shutdown"})
        # Each is recorded when the host is answered.
        for name, status in ((other, "ACTIVE"), (own, "SHUTOFF")):
            async with spoken_by_hand(cloud, name) as (link, _):
                await link.send(Uplink(events=[ended]))
            assert (await demo.get("compute", f"/servers/{made}"))["server"]["status"] == status


async def test_a_server_that_is_being_worked_on_is_left_alone(
    cloud: TestCloud, database: Database, image_id: str
) -> None:
    demo = await cloud.client()
    made = await booted(cloud, demo, image_id)
    async with spoken_by_hand(cloud) as (link, report):
        await link.report(report)
        reboot = {"reboot": {"type": "HARD"}}
        assert (await demo.request("compute", "POST", f"/servers/{made}/action", reboot))[0] == 202
        await link.report(msgspec.structs.replace(report, guests=()))
        assert await compared(cloud) == {"stopped": 0}
        found = (await demo.get("compute", f"/servers/{made}"))["server"]
        assert found["status"] == "HARD_REBOOT"


async def test_a_boot_that_its_host_has_not_reported_yet_is_left_alone(
    database: Database, identity: Identity, image_id: str
) -> None:
    async with running_cloud(database, identity, hosts=1, compute__power_sync_interval=3600.0) as cloud:
        demo = await cloud.client()
        made = await booted(cloud, demo, image_id)
        async with spoken_by_hand(cloud) as (link, report):
            # Made before the guest, and late on its way.
            await link.report(msgspec.structs.replace(report, guests=()))
            assert await compared(cloud) == {"stopped": 0}
            assert (await demo.get("compute", f"/servers/{made}"))["server"]["status"] == "ACTIVE"
            # The same word is believed once the server has been ACTIVE for longer than a report can be on its way.
            async with database.transaction() as tx:
                await tx.execute("UPDATE servers SET updated_at = updated_at - interval '2 minutes'")
            # By this pass, or by the keeper's own that the report above has woken.
            await compared(cloud)
            assert (await demo.get("compute", f"/servers/{made}"))["server"]["status"] == "SHUTOFF"


async def test_a_host_that_says_nothing_keeps_its_servers_active(
    cloud: TestCloud, database: Database, image_id: str
) -> None:
    demo = await cloud.client()
    made = await booted(cloud, demo, image_id)
    async with spoken_by_hand(cloud) as (link, report):
        await link.report(report)
        async with database.transaction() as tx:
            await tx.execute("UPDATE hosts SET last_seen = last_seen - interval '1 hour'")
            await tx.execute("UPDATE servers SET updated_at = updated_at - interval '2 hours'")
        assert await compared(cloud) == {"stopped": 0}
        assert (await demo.get("compute", f"/servers/{made}"))["server"]["status"] == "ACTIVE"
