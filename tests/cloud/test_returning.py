"""Hosts that were cut off while the cloud went on: what they find out when they are back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.agent.fleet import Fleet, SimulatedHost
from moorage.agent.hypervisors.simulated import SimulatedGuest
from moorage.audit import audit
from moorage.core.ids import new_id
from moorage.store.database import Database
from tests.cloud.test_power_sync import booted
from tests.support.cloud import TestCloud, reported, running_cloud, silenced
from tests.support.identity import Identity

HOST = "cut"


@pytest.fixture
async def cloud(database: Database, identity: Identity) -> AsyncIterator[TestCloud]:
    async with running_cloud(database, identity, hosts=0) as found:
        yield found


@contextlib.asynccontextmanager
async def host(cloud: TestCloud, folder: Path) -> AsyncIterator[Fleet]:
    """The only host, whose guests outlive its agent."""
    async with cloud.cloud.database.transaction() as tx:
        ticket = await cloud.cloud.link.enrolment.create_ticket(tx)
    url, hosts = cloud.cloud.url("agent"), [SimulatedHost(name=HOST)]
    async with Fleet(url, hosts, ticket=ticket, state_dir=folder, heartbeat=0.3, poll_wait=2) as fleet:
        await reported(cloud.cloud, 1)
        yield fleet


def guests(fleet: Fleet) -> set[str]:
    return set(fleet.agents[HOST].guests.hypervisor._guests)  # type: ignore[attr-defined]  # a simulated one


async def until(question: Any) -> None:
    async with asyncio.timeout(180):
        while not question():
            await asyncio.sleep(0.05)


async def test_a_guest_whose_server_is_elsewhere_by_now_is_removed_and_never_plugged(
    cloud: TestCloud, image_id: str, tmp_path: Path
) -> None:
    demo = await cloud.client()
    async with host(cloud, tmp_path) as fleet:
        moved = await booted(cloud, demo, image_id)
        assert guests(fleet) == {moved}
    # What an evacuation would leave: the row says another host, and nothing is under way.
    async with cloud.cloud.database.transaction() as tx:
        await tx.execute("UPDATE servers SET host = 'elsewhere' WHERE id = $1", (moved,))
    async with host(cloud, tmp_path) as fleet:
        await until(lambda: guests(fleet) == set())
        ports = (await demo.get("network", f"/ports?device_id={moved}"))["ports"]
        assert not {p["id"] for p in ports} & fleet.agents[HOST].guests.datapath.plugged  # type: ignore[attr-defined]


async def test_a_server_that_was_deleted_while_its_host_was_cut_off_leaves_nothing(
    cloud: TestCloud, image_id: str, tmp_path: Path
) -> None:
    demo = await cloud.client()
    async with host(cloud, tmp_path):
        made = await booted(cloud, demo, image_id)
    await silenced(cloud.cloud, HOST)
    assert (await demo.request("compute", "DELETE", f"/servers/{made}"))[0] == 204
    await demo.wait_for(made, "gone")
    async with host(cloud, tmp_path) as fleet:
        await until(lambda: guests(fleet) == set())
        async with asyncio.timeout(180):
            while (await audit(cloud.cloud.database, grace=0.5)).findings:
                await asyncio.sleep(0.2)


async def test_a_guest_that_the_cloud_does_not_know_is_left_alone_and_shown(
    cloud: TestCloud, tmp_path: Path
) -> None:
    strange = SimulatedGuest(
        server_id=new_id(), name="s", hostname="s", vcpus=1, memory_mb=64, vifs=(), power_state="running"
    )
    folder = tmp_path / HOST / "guests"
    folder.mkdir(parents=True)
    (folder / f"{strange.server_id}.json").write_bytes(msgspec.json.encode(strange))
    admin = await cloud.client("admin")
    async with host(cloud, tmp_path) as fleet:
        shown = (await admin.get("compute", f"/moorage/v1/hosts/{HOST}"))["host"]
        assert shown["guests"] == [
            {"server_id": strange.server_id, "power_state": "running", "verdict": "unknown"}
        ]
        assert guests(fleet) == {strange.server_id}
        findings = (await audit(cloud.cloud.database, grace=0.0)).findings
        assert [(f.invariant, f.subject) for f in findings] == [("guest.server", strange.server_id)]
