"""What operators and users do where an operation cannot be undone: it is seen, resumed, abandoned, or deleted over."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.agent.fleet import SimulatedHost
from moorage.children.bootstrap import Addresses
from moorage.core.errors import Conflict
from moorage.operations.model import Operation
from moorage.store.database import Database
from tests.cloud.rig import NOTHING, Armed, Rig
from tests.cloud.test_boot import flavor, network, server
from tests.support.between import Between
from tests.support.cloud import running_cloud, silenced
from tests.support.identity import Identity

HOST = SimulatedHost(name="h1")


class Broken(Armed):
    """Boots turn round at their end, and their guests cannot be destroyed."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = self.broken = False

    async def at(self, point: str, op: Operation, step: str) -> None:
        if op.kind != "server.boot" or point != "before":
            return
        if self.turn and (step, op.direction) == ("activate", "forward"):
            raise Conflict("injected: the last step fails")
        if self.broken and (step, op.direction) == ("spawn_guest", "undo"):
            raise Conflict("injected: the guest cannot be destroyed")


@pytest.fixture
async def rig(database: Database, identity: Identity, image_id: str, tmp_path: Path) -> AsyncIterator[Rig]:
    broken = Broken()
    async with running_cloud(
        database, identity, hosts=[HOST], faults=broken, state_dir=tmp_path / "fleet",
        conductor__poll=0.1, conductor__lease=2.0,
    ) as cloud:  # fmt: skip
        demo = await cloud.client()
        body = server(image_id, await flavor(cloud), await network(demo))
        yield Rig(cloud, demo, database, broken, Between(broken), body)


async def write(rig: Rig, statement: str, *args: Any) -> None:
    async with rig.database.transaction() as tx:
        await tx.execute(statement, args)


async def stuck(rig: Rig, count: int = 1) -> dict[str, str]:
    """Boots that cannot be undone: server -> operation. The pauses between the tries are made short."""
    assert isinstance(rig.armed, Broken)
    rig.armed.turn = rig.armed.broken = True
    made = await asyncio.gather(*(rig.boot() for _ in range(count)))
    async with asyncio.timeout(180):
        while True:
            rows = await rig.sql("SELECT subject, id FROM operations WHERE state = 'stuck' AND subject = ANY($1)",
                                 [f"server:{s}" for s in made])  # fmt: skip
            if len(rows) == count:
                return {r[0].partition(":")[2]: r[1] for r in rows}
            await write(
                rig, "UPDATE operations SET wake_at = now() WHERE direction = 'undo' AND state = 'waiting'"
            )
            await asyncio.sleep(0.05)


async def moorage(rig: Rig, folder: Path, *words: str) -> tuple[int, str]:
    """``moorage operations`` as an administrator."""
    clouds = folder / "clouds.yaml"
    entry = rig.cloud.identity.cloud("admin", region="RegionOps")
    clouds.write_text(yaml.safe_dump({"clouds": {"moorage-admin": entry}}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage.cli.main", "operations", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"OS_CLIENT_CONFIG_FILE": str(clouds), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def published(rig: Rig) -> None:
    """Clients find this cloud in the catalogue."""
    one = rig.cloud.cloud
    await rig.cloud.identity.publish(
        Addresses(
            compute=one.url("compute") + "/v2.1",
            placement=one.url("placement"),
            network=one.url("network"),
        ),
        region="RegionOps",
    )


async def test_a_stuck_operation_is_listed_explained_and_resumed(rig: Rig) -> None:
    before = await rig.world()
    found = await stuck(rig, 3)
    server_id, operation_id = next(iter(found.items()))
    shown = (await rig.demo.get("compute", f"/servers/{server_id}"))["server"]
    assert shown["status"] == "ERROR"
    assert operation_id in shown["fault"]["message"]
    held = await rig.held(server_id)
    assert (held["ports"], held["guests"]) == (1, [("its", "running")]), "what may be in use is held"
    await rig.check()

    admin = await rig.cloud.client("admin")
    project = shown["tenant_id"]
    for query, count in (
        ("state=stuck", 3), ("", 3), ("state=done", 0), (f"subject=server:{server_id}", 1), ("kind=server.boot", 3),
        ("kind=server.delete", 0), (f"project={project}", 3), ("project=another", 0),
    ):  # fmt: skip
        answer = await admin.get("compute", f"/moorage/v1/operations?{query}")
        assert len(answer["operations"]) == count, query
    page, seen = "/moorage/v1/operations?state=stuck&limit=1", []
    while page:
        answer = await admin.get("compute", page)
        seen += [o["id"] for o in answer["operations"]]
        links = answer.get("operations_links")
        page = "/moorage/v1/operations?" + links[0]["href"].partition("?")[2] if links else ""
    assert sorted(seen) == sorted(found.values())
    for wrong, field in (("state=odd", "state"), ("marker=odd", "marker"), ("limit=0", "limit")):
        status, body = await admin.request("compute", "GET", f"/moorage/v1/operations?{wrong}")
        assert status == 400, wrong
        assert field in body["error"]["message"]
    status, _ = await rig.demo.request("compute", "GET", "/moorage/v1/operations")
    assert status == 403

    one = (await admin.get("compute", f"/moorage/v1/operations/{operation_id}"))["operation"]
    assert one["waits_for"]["what"] == "operator"
    assert "cannot be destroyed" in one["waits_for"]["words"]
    assert one["waits_for"]["until"], "it is tried again by itself"
    assert "last step fails" in one["error"]["message"]
    events = {(line["step"], line["event"]) for line in one["log"]}
    assert {("spawn_guest", "succeeded"), ("activate", "undone"), ("spawn_guest", "undo_failed")} <= events

    assert isinstance(rig.armed, Broken)
    rig.armed.broken = rig.armed.turn = False
    for each in found.values():
        status, _ = await admin.request("compute", "POST", f"/moorage/v1/operations/{each}/resume")
        assert status == 202
    await rig.settled()
    for each in found:
        assert await rig.held(each) == NOTHING
    await rig.check()
    status, body = await admin.request("compute", "POST", f"/moorage/v1/operations/{operation_id}/resume")
    assert (status, body["error"]["code"]) == (409, "operation.not_stuck")
    for each in found:
        await rig.delete(each)
    assert await rig.world() == before


async def test_a_stuck_operation_is_tried_again_by_itself(rig: Rig) -> None:
    (server_id,) = await stuck(rig)
    assert isinstance(rig.armed, Broken)
    rig.armed.broken = False
    await write(rig, "UPDATE operations SET wake_at = now() WHERE state = 'stuck'")  # a minute later
    async with asyncio.timeout(180):
        while await rig.held(server_id) != NOTHING:
            await asyncio.sleep(0.05)


async def test_a_delete_takes_over_what_a_stuck_build_could_not_undo(rig: Rig) -> None:
    before = await rig.world()
    found = await stuck(rig, 2)
    for server_id, operation_id in found.items():
        await rig.delete(server_id)
        admin = await rig.cloud.client("admin")
        one = (await admin.get("compute", f"/moorage/v1/operations/{operation_id}"))["operation"]
        assert (one["state"], one["waits_for"]) == ("cancelled", None)
        left = [each["undo"] for each in one["error"]["left"]]
        assert left == ["destroy_guest", "unbind_ports", "release_claim", "release_ports"]
        assert ("spawn_guest", "abandoned") in {(line["step"], line["event"]) for line in one["log"]}
    await rig.settled()
    assert await rig.world() == before
    await rig.check()


async def test_an_operation_that_is_abandoned_says_what_it_left_and_the_server_can_be_deleted(
    rig: Rig, tmp_path: Path
) -> None:
    """By the command line, as an operator does it."""
    await published(rig)
    before = await rig.world()
    ((server_id, operation_id),) = (await stuck(rig)).items()
    code, out = await moorage(rig, tmp_path, "list", "--state", "stuck", "--json")
    assert (code, [o["id"] for o in json.loads(out)]) == (0, [operation_id]), out
    code, out = await moorage(rig, tmp_path, "list")
    assert operation_id in out
    assert "undo of spawn_guest" in out
    code, out = await moorage(rig, tmp_path, "show", operation_id)
    assert "waits for" in out
    assert "cannot be destroyed" in out
    code, out = await moorage(rig, tmp_path, "abandon", operation_id, "--yes")
    assert code == 0, out
    assert "destroy_guest on host h1" in out
    assert "release_ports" in out

    shown = (await rig.demo.get("compute", f"/servers/{server_id}"))["server"]
    assert shown["status"] == "ERROR"
    assert "gave up" in shown["fault"]["message"]
    assert (await rig.held(server_id))["guests"] == [("its", "running")]
    await rig.check()
    for word in ("abandon", "resume"):
        code, out = await moorage(
            rig, tmp_path, word, operation_id, *(["--yes"] if word == "abandon" else [])
        )
        assert code == 1
        assert "is abandoned" in out
    await rig.delete(server_id)
    await rig.settled()
    assert await rig.world() == before
    await rig.check()


async def silence(rig: Rig) -> None:
    """The host is gone, and has been for long."""
    await rig.cloud.fleet.stop_host(HOST.name)
    await silenced(rig.cloud.cloud, HOST.name)
    await write(rig, "UPDATE operations SET wake_at = now() WHERE state = 'waiting'")


async def until(rig: Rig, statement: str) -> None:
    """Wait until there are rows."""
    async with asyncio.timeout(180):
        while not await rig.sql(statement):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_server_on_a_silent_host_is_deleted_and_its_guest_goes_when_the_host_is_back(
    rig: Rig, tmp_path: Path, when: str
) -> None:
    """Whether the host falls silent before the delete or while it is asked; of a guest, and of one that is being built."""
    before = await rig.world()
    active = await rig.active()
    rig.cloud.fleet.behaviour.latency = 60.0
    building = await rig.boot()
    await until(rig, "SELECT 1 FROM operations WHERE sent AND kind = 'server.boot'")
    if when == "before":
        await silence(rig)
    deletes = [asyncio.create_task(rig.delete(s)) for s in (active, building)]
    if when == "while":
        await until(rig, "SELECT 1 FROM operations WHERE cancel")
        await silence(rig)
    await asyncio.gather(*deletes)
    await rig.settled()
    held = await rig.world()
    given_back = ("ports", "allocations", "servers", "used")
    assert {k: held[k] for k in given_back} == {k: before[k] for k in given_back}
    rig.cloud.fleet.behaviour.latency = 0.0
    agent = rig.cloud.fleet.start_host(HOST, tmp_path / "fleet" / HOST.name)
    await until(rig, "SELECT 1 WHERE NOT EXISTS (SELECT FROM commands WHERE finished_at IS NULL)")
    assert await agent.guests.hypervisor.guests() == []
    assert await rig.world() == before
    await rig.check()
