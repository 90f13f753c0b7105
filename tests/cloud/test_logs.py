"""What the log tells about one server's boot: one request id leads from the POST to the host's command."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moorage.core import log
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.support.agent_program import agent_of
from tests.support.cloud import reported, running_cloud
from tests.support.identity import Identity


@contextlib.contextmanager
def captured(level: str = "INFO") -> Iterator[io.StringIO]:
    """All that the process logs, as JSON lines."""
    root = logging.getLogger()
    before, old = root.handlers[:], root.level
    stream = io.StringIO()
    log.configure(level=level, json=True, stream=stream)
    try:
        yield stream
    finally:
        root.handlers[:] = before
        root.setLevel(old)


def lines(stream: io.StringIO, **wanted: Any) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [each for each in found if all(each.get(k) == v for k, v in wanted.items())]


async def test_a_boot_is_followed_from_its_request_to_its_command_by_one_id(
    database: Database, identity: Identity, image_id: str
) -> None:
    with captured() as stream:
        async with running_cloud(database, identity) as cloud:
            demo = await cloud.client()
            net, size = await network(demo), await flavor(cloud)
            made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]
            await demo.wait_for(made["id"], "ACTIVE")
    answered = lines(stream, event="request.answered", route="/servers", method="POST")
    assert [(each["api"], each["status"]) for each in answered] == [("compute", 202)]
    request = answered[0]["request_id"]
    (submitted,) = lines(stream, event="operation.submitted", request_id=request)
    assert (submitted["kind"], submitted["subject"]) == ("server.boot", f"server:{made['id']}")
    operation = submitted["operation_id"]
    driven = lines(stream, event="operation.recorded", request_id=request)
    assert {each["operation_id"] for each in driven} == {operation}
    assert driven[-1]["state"] == "done"
    (queued,) = lines(stream, event="command.queued", request_id=request)
    assert (queued["operation_id"], queued["step"]) == (operation, "spawn_guest")
    (ended,) = lines(stream, event="command.ended", command_id=queued["command_id"])
    assert (ended["operation_id"], ended["outcome"]) == (operation, "succeeded")
    # Whatever the conductor says of the operation carries the request that began it.
    said = [e for e in lines(stream, operation_id=operation) if e["event"].startswith("operation.")]
    assert {each["request_id"] for each in said} == {request}
    async with database.read() as tx:
        stored = await tx.fetch("SELECT request_id FROM operations WHERE id = $1", [operation])
    assert stored[0][0] == request


async def test_a_hosts_own_log_names_the_request_and_the_operation_behind_each_command(
    database: Database, identity: Identity, image_id: str, tmp_path: Path
) -> None:
    async with running_cloud(database, identity, hosts=0) as cloud:
        async with database.transaction() as tx:
            ticket = await cloud.cloud.link.enrolment.create_ticket(tx, host="h1")
        async with agent_of(cloud.cloud.url("agent"), "h1", tmp_path / "h1", ticket, heartbeat=1) as told:
            await reported(cloud.cloud, 1)
            demo = await cloud.client()
            net, size = await network(demo), await flavor(cloud)
            made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]
            await demo.wait_for(made["id"], "ACTIVE")
            actions = f"/servers/{made['id']}/os-instance-actions"
            (boot,) = (await demo.get("compute", actions))["instanceActions"]
            assert (await demo.request("compute", "DELETE", f"/servers/{made['id']}"))[0] == 204
            await demo.wait_for(made["id"], "gone")
    async with database.read() as tx:
        rows = await tx.fetch("SELECT kind, id, request_id FROM operations")
    operations = {kind: (request, operation) for kind, operation, request in rows}
    assert operations["server.boot"][0] == boot["request_id"]
    said = [json.loads(line) for line in told.read_text().splitlines() if line.startswith("{")]
    done = {line["kind"]: line for line in said if line["event"] == "command.done"}
    for kind, operation in (("guest.spawn", "server.boot"), ("guest.destroy", "server.delete")):
        assert (done[kind]["request_id"], done[kind]["operation_id"]) == operations[operation]
        assert done[kind]["server"] == made["id"]
