"""Every operation on servers, with a fault at every step and point: the world after it is as if nothing had happened,
or as if nothing had gone wrong.

The scenarios come from the definitions: an operation that is added is in here with no further work, as soon as
``BEGIN`` says how a user starts it. Steps are taken one by one (not fused), so that each point is really reached.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from moorage.audit import audit
from moorage.compute.operations import DEFINITIONS
from moorage.core.errors import Conflict
from moorage.operations.faults import Crash
from moorage.operations.model import Operation
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.support.cloud import Client, TestCloud, running_cloud
from tests.support.identity import Identity

KINDS = {d.kind: d for d in DEFINITIONS}
STEPS = [(d.kind, s.name) for d in DEFINITIONS for s in d.steps]
UNDONE = [(d.kind, s.name) for d in DEFINITIONS for s in d.steps if s.undo is not None]


class Armed:
    """A fault that waits at one point; can be armed again and again."""

    def __init__(self) -> None:
        self.disarm()

    def arm(
        self, kind: str, point: str, step: str, direction: str, error: BaseException, times: int = 1
    ) -> None:
        self.wanted = (kind, point, step, direction)
        self.error = error
        self.left = times
        self.also: tuple[str, str] | None = None
        self.reached = 0

    def disarm(self) -> None:
        self.arm("", "", "", "", Conflict("nothing"), 0)

    async def at(self, point: str, op: Operation, step: str) -> None:
        kind, direction = op.kind, op.direction
        if self.also == (kind, step) and (point, direction) == ("before", "forward"):
            self.also = None
            raise Conflict("the last step fails")
        if self.left and self.wanted == (kind, point, step, direction):
            self.left -= 1
            self.reached += 1
            raise self.error


class Rig:
    def __init__(
        self, cloud: TestCloud, demo: Client, database: Database, faults: Armed, body: dict[str, Any]
    ) -> None:
        self.cloud, self.demo, self.database, self.faults, self.body = cloud, demo, database, faults, body

    async def settled(self) -> None:
        """No operation is open."""
        async with asyncio.timeout(40):
            while True:
                async with self.database.read() as tx:
                    rows = await tx.fetch(
                        "SELECT 1 FROM operations WHERE state IN ('ready', 'running', 'waiting') LIMIT 1"
                    )
                if not rows:
                    return
                await asyncio.sleep(0.05)

    async def boot(self) -> str:
        made = await self.demo.make("compute", "/servers", self.body)
        return str(made["server"]["id"])

    async def active(self) -> str:
        made = await self.boot()
        assert (await self.demo.wait_for(made, "ACTIVE", "ERROR"))["status"] == "ACTIVE"
        return made

    async def act(self, server_id: str, body: Any) -> None:
        status, found = await self.demo.request("compute", "POST", f"/servers/{server_id}/action", body)
        assert status == 202, found

    async def delete(self, server_id: str) -> None:
        await self.demo.request("compute", "DELETE", f"/servers/{server_id}")
        await self.demo.wait_for(server_id, "gone")

    async def world(self) -> dict[str, int]:
        """What is held, counted."""
        tables = ("ports", "port_fixed_ips", "bindings", "allocations", "consumers")
        async with self.database.read() as tx:
            found = {t: (await tx.fetch(f"SELECT count(*) FROM {t}"))[0][0] for t in tables}  # noqa: S608  own names
            used = await tx.fetch("SELECT coalesce(sum(used), 0) FROM inventories")
            servers = await tx.fetch("SELECT count(*) FROM servers WHERE deleted_at IS NULL")
        agents = self.cloud.fleet.agents.values()
        guests = sum([len(await agent.guests.hypervisor.guests()) for agent in agents])
        return {**found, "used": int(used[0][0]), "servers": servers[0][0], "guests": guests}

    async def check(self) -> None:
        report = await audit(self.database, grace=0)
        # What agents report comes with their next heartbeat, later than this check.
        findings = [f for f in report.findings if not f.invariant.startswith("guest.")]
        assert not findings, findings


@pytest.fixture
async def rig(database: Database, identity: Identity, image_id: str) -> AsyncIterator[Rig]:
    faults = Armed()
    async with running_cloud(
        database, identity, hosts=3, faults=faults, fuse=False, conductor__lease=0.4, conductor__poll=0.1
    ) as cloud:
        demo = await cloud.client()
        body = server(image_id, await flavor(cloud), await network(demo))
        yield Rig(cloud, demo, database, faults, body)


async def _stopped(rig: Rig) -> str:
    made = await rig.active()
    await rig.act(made, {"os-stop": None})
    await rig.demo.wait_for(made, "SHUTOFF")
    return made


async def _begin_boot(rig: Rig) -> str:
    return await rig.boot()


# How to bring a server into the state from which an operation starts, and how a user starts it.
Prepare = Callable[[Rig], Awaitable[str]]
Start = Callable[[Rig, str], Awaitable[Any]]
BEGIN: dict[str, tuple[Prepare | None, Start, str]] = {
    "server.boot": (None, lambda rig, _: _begin_boot(rig), "ACTIVE"),
    "server.delete": (
        Rig.active,
        lambda rig, s: rig.demo.request("compute", "DELETE", f"/servers/{s}"),
        "gone",
    ),
    "server.stop": (Rig.active, lambda rig, s: rig.act(s, {"os-stop": None}), "SHUTOFF"),
    "server.start": (_stopped, lambda rig, s: rig.act(s, {"os-start": None}), "ACTIVE"),
    "server.reboot": (Rig.active, lambda rig, s: rig.act(s, {"reboot": {"type": "HARD"}}), "ACTIVE"),
}


def test_every_operation_can_be_begun() -> None:
    assert set(BEGIN) == set(KINDS)


async def _run(rig: Rig, kind: str) -> str:
    prepare, start, _ = BEGIN[kind]
    server_id = await prepare(rig) if prepare is not None else ""
    return str(await start(rig, server_id)) if not server_id else (await start(rig, server_id), server_id)[1]


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_crash_at_every_point_of_every_step_ends_as_if_nothing_had_happened(
    rig: Rig, kind: str
) -> None:
    before = await rig.world()
    for step in [s.name for s in KINDS[kind].steps]:
        for point in ("before", "effect", "recorded"):
            rig.faults.arm(kind, point, step, "forward", Crash())
            server_id = await _run(rig, kind)
            await rig.demo.wait_for(server_id, BEGIN[kind][2])
            await rig.settled()
            assert rig.faults.reached == 1, (step, point)
            await rig.check()
            await rig.delete(server_id)
            await rig.settled()
            assert await rig.world() == before, (step, point)


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_failure_at_every_step_undoes_all_of_it(rig: Rig, kind: str) -> None:
    before = await rig.world()
    for step in [s.name for s in KINDS[kind].steps]:
        for point in ("before", "effect"):
            rig.faults.arm(kind, point, step, "forward", Conflict("injected"))
            server_id = await _run(rig, kind)
            found = await rig.demo.wait_for(server_id, "ERROR")
            assert "injected" in found["fault"]["message"]
            await rig.settled()
            assert rig.faults.reached == 1, (step, point)
            await rig.check()
            if kind == "server.boot":
                assert await rig.world() == {**before, "servers": before["servers"] + 1}, (step, point)
            await rig.delete(server_id)
            await rig.settled()
            assert await rig.world() == before, (step, point)


@pytest.mark.parametrize("error", [Crash(), Conflict("the undo fails")], ids=["crash", "failure"])
async def test_every_undo_is_repeated_until_it_ends(rig: Rig, error: BaseException) -> None:
    before = await rig.world()
    last = KINDS["server.boot"].steps[-1].name
    for kind, step in UNDONE:
        for point in ("before", "effect"):
            rig.faults.arm(kind, point, step, "undo", error, times=2)
            rig.faults.also = (kind, last)
            server_id = await _run(rig, kind)
            await rig.demo.wait_for(server_id, "ERROR")
            await rig.settled()
            assert rig.faults.reached == 2, (step, point)
            await rig.check()
            assert await rig.world() == {**before, "servers": before["servers"] + 1}, (step, point)
            await rig.delete(server_id)
            await rig.settled()
            assert await rig.world() == before, (step, point)


async def test_a_delete_during_the_build_stops_it(rig: Rig) -> None:
    before = await rig.world()
    for latency in (0.0, 0.05, 0.3):
        rig.cloud.fleet.behaviour.latency = latency
        server_id = await rig.boot()
        await asyncio.sleep(latency / 2)
        await rig.delete(server_id)
        await rig.settled()
        assert await rig.world() == before
    await rig.check()


async def test_a_host_that_refuses_is_left_and_the_ports_are_kept(rig: Rig) -> None:
    rig.cloud.fleet.behaviour.fault_rates = {"define": 0.8}
    made = [await rig.boot() for _ in range(6)]
    for server_id in made:
        await rig.demo.wait_for(server_id, "ACTIVE", "ERROR")
    await rig.settled()
    rig.cloud.fleet.behaviour.fault_rates = {}
    await rig.check()
    async with rig.database.read() as tx:
        again = await tx.fetch(
            "SELECT 1 FROM operation_steps WHERE step = 'create_ports' AND event = 'succeeded' AND round > 0"
        )
        retried = await tx.fetch("SELECT 1 FROM operations WHERE round > 0")
    assert retried
    assert not again
    for server_id in made:
        await rig.delete(server_id)
