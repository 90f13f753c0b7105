import asyncio
import math
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from moorage.agentlink import dispatcher as dispatching
from moorage.agentlink import registry
from moorage.agentlink.registry import GUESTS_CHANNEL
from moorage.store.errors import ForeignKeyViolation
from moorage.wire.coding import decode_commands
from moorage.wire.messages import ConsoleOutput, DestroyGuest, HostReport, Result, StartGuest, Uplink
from support.agent_server import PATIENCE, REPORT, AgentServer
from support.authority import HostClient


@pytest.fixture
async def server(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentServer]:
    # What is done every few seconds is done where a test says so alone: it may take longer than that itself.
    monkeypatch.setattr(dispatching, "_GRACE", 3600.0)
    monkeypatch.setattr(registry, "_TOUCH_EVERY", 3600.0)
    async with AgentServer(database_url) as server:
        yield server


class Client(HostClient):
    """The agent's side of the wire, spoken by hand."""

    def __init__(self, server: AgentServer) -> None:
        super().__init__(server.url)
        self.server = server

    async def poll(self, after=0, wait=0):
        status, content = await self.request("GET", f"/commands?wait={wait}&after={after}")
        assert status == 200, content
        return decode_commands(content).commands


async def joined(server, name):
    client = Client(server)
    status, _ = await client.enroll(name, await server.ticket(host=name))
    assert status == 201
    return client


async def registered(server, host):
    """The host's poll is waiting in the dispatcher."""
    async with asyncio.timeout(PATIENCE):
        while host not in server.link._dispatcher._waiting:
            await asyncio.sleep(0.01)


def result_of(command, outcome="succeeded", **data):
    return Result(
        command_id=command.id,
        operation=command.operation,
        step=command.step,
        fence=command.fence,
        outcome=outcome,
        data=data,
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/results", {"results": [{"command_id": 1}]}),
        ("/results", []),
        ("/report", {"vcpus": "many"}),
        ("/events", {"events": [{}]}),
    ],
)
async def test_a_body_of_the_wrong_shape_names_its_field(server, path, body):
    client = await joined(server, "h1")
    status, content = await client.request("POST", path, body)
    assert status == 400
    assert b"agentlink" in content or b"bad_request" in content


async def test_a_waiting_poll_gets_the_command_at_the_commit(server):
    client = await joined(server, "h1")
    waiting = asyncio.create_task(client.poll(after=1, wait=300))
    await registered(server, "h1")
    async with server.database.transaction() as tx:
        for n in range(3):
            await server.link.enqueue(
                tx, host="h1", operation=f"op{n}", step="s", fence=1, payload=StartGuest(server_id=f"g{n}")
            )
        assert tx.statements == 3
        await asyncio.sleep(0.05)
        assert not waiting.done()
    commands = await waiting
    assert [c.operation for c in commands] == ["op0", "op1", "op2"]
    assert [c.seq for c in commands] == sorted(c.seq for c in commands)
    assert commands[0].kind == "guest.start"


async def test_a_rolled_back_command_is_never_seen(server):
    client = await joined(server, "h1")

    async def change_my_mind():
        async with server.database.transaction() as tx:
            await server.link.enqueue(
                tx, host="h1", operation="op", step="s", fence=1, payload=StartGuest(server_id="g")
            )
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await change_my_mind()
    assert await client.poll(wait=1) == []


async def test_a_command_from_another_process_reaches_the_poll_here(server, database_url):
    client = await joined(server, "h1")
    waiting = asyncio.create_task(client.poll(after=1, wait=300))
    await registered(server, "h1")
    async with AgentServer(database_url) as other:
        sent = await other.send("h1", StartGuest(server_id="g"), operation="op")
        assert [c.id for c in await waiting] == [sent]


async def test_a_command_queued_while_nobody_polled_comes_with_the_next_poll(server, database_url):
    client = await joined(server, "h1")
    sent = await server.send("h1", StartGuest(server_id="g"), operation="op")
    assert [c.id for c in await client.poll(after=0, wait=0)] == [sent]
    async with AgentServer(database_url) as other:
        later = await other.send("h1", StartGuest(server_id="g"), operation="op2")
    assert [c.id for c in await client.poll(after=1, wait=300)] == [later]


async def test_delivered_commands_come_again_only_when_all_are_asked_for(server):
    client = await joined(server, "h1")
    sent = await server.send("h1", StartGuest(server_id="g"), operation="op")
    assert [c.id for c in await client.poll()] == [sent]
    assert await client.poll(after=1) == []
    again = await client.poll(after=0)
    assert [c.id for c in again] == [sent]
    assert (await client.request("POST", "/results", Uplink([result_of(again[0])])))[0] == 204
    assert await client.poll(after=0) == []


async def test_a_hand_over_that_nobody_takes_goes_back_to_the_table(server, database_url):
    await joined(server, "h1")
    dispatcher = server.link._dispatcher
    dispatcher._polled["h1"] = time.monotonic()  # as if the host had polled here a moment ago
    sent = await server.send("h1", StartGuest(server_id="g"), operation="op")
    async with AgentServer(database_url) as other:
        client = Client(other)
        await client.enroll("h1", await server.ticket(host="h1"))
        waiting = asyncio.create_task(client.poll(after=1, wait=300))
        await registered(other, "h1")
        dispatcher._ready_since["h1"] = -math.inf  # it has lain there for long
        await dispatcher._sweep()
        assert [c.id for c in await waiting] == [sent]


async def test_a_process_that_stops_holds_no_poll_open_and_refuses_those_that_still_come(server):
    client = await joined(server, "h1")
    waiting = asyncio.create_task(client.poll(after=1, wait=300))
    await registered(server, "h1")
    await server.link._dispatcher.stop()
    async with asyncio.timeout(PATIENCE):
        assert await waiting == []
        # Refused, and not answered with nothing: a host pauses, and does not ask again at once for ever.
        status, content = await client.request("GET", "/commands?wait=300&after=1")
    assert (status, b"this process stops" in content) == (503, True)


async def test_a_command_without_a_result_is_delivered_again_after_a_while(server):
    client = await joined(server, "h1")
    sent = await server.send("h1", StartGuest(server_id="g"), operation="op")
    await client.poll()
    waiting = asyncio.create_task(client.poll(after=1, wait=300))
    await registered(server, "h1")
    server.link._dispatcher._again_after = 0.0
    await server.link._dispatcher._sweep()
    assert [c.id for c in await waiting] == [sent]


async def test_what_the_next_poll_does_not_acknowledge_comes_again_at_once(server):
    client = await joined(server, "h1")
    await server.send("h1", StartGuest(server_id="g1"), operation="op1")
    (first,) = await client.poll()
    server.link._dispatcher._again_after = 3600.0
    await server.send("h1", StartGuest(server_id="g2"), operation="op2")
    (second,) = await client.poll(after=first.seq, wait=300)
    # Its answer was lost, and the host does not know: it acknowledges what it had before.
    assert await client.poll(after=first.seq, wait=300) == [second]
    assert await client.poll(after=second.seq) == []


async def test_what_went_into_a_dead_poll_of_another_process_comes_to_the_live_one(server, database_url):
    dead = await joined(server, "h1")
    swallowed = asyncio.create_task(dead.poll(after=1, wait=300))
    await registered(server, "h1")
    async with AgentServer(database_url) as other:
        client = Client(other)
        client.tls = dead.tls
        assert await client.poll(after=0) == []
        sent = await server.send("h1", StartGuest(server_id="g"), operation="op")
        assert [c.id for c in await swallowed] == [sent]
        other.link._dispatcher._again_after = 3600.0
        living = asyncio.create_task(client.poll(after=1, wait=300))
        await registered(other, "h1")
        # No poll that acknowledges it comes to the first process for a while.
        dispatcher = server.link._dispatcher
        dispatcher._handed["h1"] = msgspec.structs.replace(dispatcher._handed["h1"], at=-math.inf)
        await dispatcher._sweep()
        assert [c.id for c in await living] == [sent]


async def test_hosts_read_and_answer_only_their_own_commands(server):
    one, two = await joined(server, "h1"), await joined(server, "h2")
    await server.send("h1", StartGuest(server_id="g"), operation="op")
    assert await two.poll() == []
    (command,) = await one.poll()
    status, content = await two.request("POST", "/results", Uplink([result_of(command)]))
    assert status == 404
    assert command.id.encode() in content
    assert server.results == {}
    assert (await one.request("POST", "/results", Uplink([result_of(command)])))[0] == 204


async def test_a_result_counts_once_and_the_columns_of_the_row_are_believed(server):
    client = await joined(server, "h1")
    await server.send("h1", StartGuest(server_id="g"), operation="op", fence=7)
    (command,) = await client.poll()
    lie = msgspec.structs.replace(result_of(command, power="on"), operation="other", fence=99)
    for _ in range(3):
        assert (await client.request("POST", "/results", Uplink([lie])))[0] == 204
    (result,) = server.results[command.id]
    assert (result.operation, result.fence, result.data) == ("op", 7, {"power": "on"})


async def test_a_result_that_cannot_be_recorded_does_not_hold_up_the_others(server):
    client = await joined(server, "h1")
    for n in range(3):
        await server.send("h1", StartGuest(server_id=f"g{n}"), operation=f"op{n}", step=f"s{n}")
    commands = await client.poll()
    server.reject.add("s1")
    uplink = Uplink([result_of(c) for c in commands])
    assert (await client.request("POST", "/results", uplink))[0] == 500
    server.reject.clear()
    assert {c.id for c in await client.poll()} == {commands[1].id}
    assert (await client.request("POST", "/results", uplink))[0] == 204
    assert all(server.results[c.id] for c in commands)


async def test_the_users_token_is_gone_from_the_table_when_the_command_has_ended(server):
    client = await joined(server, "h1")
    await server.send("h1", DestroyGuest(server_id="g"), operation="op")
    (command,) = await client.poll()
    await client.request("POST", "/results", Uplink([result_of(command)]))
    async with server.database.read() as tx:
        rows = await tx.fetch("SELECT payload FROM commands")
    assert [r[0] for r in rows] == [{}]


async def test_the_same_key_again_is_the_same_command_and_asks_for_its_result_again(server):
    client = await joined(server, "h1")
    first = await server.send("h1", DestroyGuest(server_id="g"), operation="op", fence=2)
    (command,) = await client.poll()
    await client.request("POST", "/results", Uplink([result_of(command)]))
    assert await server.send("h1", DestroyGuest(server_id="g"), operation="op", fence=2) == first
    assert [c.id for c in await client.poll()] == [first]
    await client.request("POST", "/results", Uplink([result_of(command)]))
    assert len(server.results[first]) == 2


async def test_a_command_without_a_result_gives_way_to_the_next_one_for_its_guest(server):
    # Delivered late, the start would bring back a guest that the destroy of another operation has taken away.
    client = await joined(server, "h1")
    await server.send("h1", StartGuest(server_id="g"), operation="start")
    (start,) = await client.poll()
    await server.send("h1", StartGuest(server_id="other"), operation="its own")
    asked = await server.send("h1", ConsoleOutput(server_id="g"), operation="call")
    assert len(await client.poll()) == 3
    destroy = await server.send("h1", DestroyGuest(server_id="g"), operation="delete")
    assert [c.id for c in await client.poll()][-2:] == [asked, destroy]
    assert start.id not in {c.id for c in await client.poll()}
    # A host that has carried it out all the same is believed, and it changes nothing.
    assert (await client.request("POST", "/results", Uplink([result_of(start)])))[0] == 204
    assert start.id not in server.results
    await server.send("h1", ConsoleOutput(server_id="g"), operation="another call")
    assert destroy in {c.id for c in await client.poll()}


async def test_an_unknown_host_gets_no_command(server):
    with pytest.raises(ForeignKeyViolation):
        await server.send("nobody", DestroyGuest(server_id="g"), operation="op")


def report(**changes):
    return msgspec.convert({**REPORT, "physical_networks": ("physnet1",), **changes}, HostReport)


async def test_reports_make_a_host_up_and_only_new_facts_are_passed_on(server):
    client = await joined(server, "h1")
    async with server.database.read() as tx:
        assert not (await server.link.registry.host(tx, "h1")).up(60)
    for _ in range(3):
        assert (await client.request("POST", "/report", report()))[0] == 200
    guests = [{"server_id": "g", "power_state": "running"}]
    assert (await client.request("POST", "/report", report(guests=guests)))[0] == 200
    assert [r.vcpus for _, r in server.reports] == [4]
    assert (await client.request("POST", "/report", report(vcpus=8)))[0] == 200
    assert [r.vcpus for _, r in server.reports] == [4, 8]
    async with server.database.read() as tx:
        host = await server.link.registry.host(tx, "h1")
    assert host.up(60)
    assert not host.up(0.0, now=host.last_seen + timedelta(days=1))
    assert host.facts["physical_networks"] == ["physnet1"]
    assert host.guests == []
    assert host.report().vcpus == 8


async def test_a_heartbeat_with_nothing_new_moves_last_seen_by_one_statement_for_all(server):
    clients = [await joined(server, f"h{n}") for n in range(3)]
    for client in clients:
        await client.request("POST", "/report", report())
    async with server.database.transaction() as tx:
        await tx.execute("UPDATE hosts SET last_seen = last_seen - interval '1 hour'")
    for client in clients:
        await client.request("POST", "/report", report())
    await server.link.registry._touch()
    async with server.database.read() as tx:
        assert all(h.up(60) for h in await server.link.registry.hosts(tx))


async def test_what_a_host_told_another_process_is_compared_with_the_row(server, database_url):
    client = await joined(server, "h1")
    async with AgentServer(database_url) as other:
        elsewhere = Client(other)
        elsewhere.tls = client.tls
        first, second = (
            report(vcpus=4),
            report(vcpus=8, guests=[{"server_id": "g", "power_state": "running"}]),
        )

        async def row():
            await server.link.registry._touch()
            async with server.database.read() as tx:
                return (await server.link.registry.host(tx, "h1")).report()

        await client.request("POST", "/report", first)
        await elsewhere.request("POST", "/report", second)
        assert await row() == second
        # To this process it is what it heard last; the row is another's, and is written again.
        await client.request("POST", "/report", first)
        assert await row() == first
        # Written once: what is repeated now is the row's own, and only moves last_seen.
        assert [r.vcpus for _, r in server.reports] == [4, 4]
        await client.request("POST", "/report", first)
        assert await row() == first
        assert [r.vcpus for _, r in server.reports] == [4, 4]


async def test_a_guest_that_runs_no_longer_is_told(server):
    client = await joined(server, "h1")
    told, later = server.signals.subscribe(GUESTS_CHANNEL), server.signals.subscribe("later")

    # Both are woken once when listening begins.
    assert await told.wait(PATIENCE)
    assert await later.wait(PATIENCE)

    async def heard():
        """Whether a signal came before one that is sent now."""
        async with server.database.transaction() as tx:
            await tx.notify("later")
        assert await later.wait(PATIENCE)
        return await told.wait(0)

    async def said(*states):
        guests = [{"server_id": f"g{n}", "power_state": state} for n, state in enumerate(states)]
        await client.request("POST", "/report", report(guests=guests))

    await said("running", "running")
    await said("running", "running", "running")
    assert not await heard()
    for fewer in (("running", "shutdown", "running"), ("running", "shutdown")):
        await said(*fewer)
        assert await heard()


async def test_disabling_a_host_keeps_the_reason(server):
    await joined(server, "h1")
    async with server.database.transaction() as tx:
        host = await server.link.registry.set_disabled(tx, "h1", disabled=True, reason="new fan")
        assert (host.disabled, host.disabled_reason) == (True, "new fan")
        host = await server.link.registry.set_disabled(tx, "h1", disabled=False)
        assert (host.disabled, host.disabled_reason) == (False, None)


async def test_old_commands_are_pruned_unfinished_ones_never(server):
    client = await joined(server, "h1")
    await server.send("h1", DestroyGuest(server_id="a"), operation="op1")
    (command,) = await client.poll()
    await client.request("POST", "/results", Uplink([result_of(command)]))
    await server.send("h1", DestroyGuest(server_id="b"), operation="op2")
    async with server.database.transaction() as tx:
        await tx.execute("UPDATE commands SET finished_at = finished_at - interval '2 days'")
        assert await server.link.prune(tx) == 1
    assert [c.operation for c in await client.poll()] == ["op2"]


async def test_newer_and_older_agents_are_understood(server):
    client = Client(server)
    await client.enroll("new", await server.ticket(), protocol=9)
    newer = {**msgspec.to_builtins(report()), "protocol": 9, "gpus": ["a field of the future"]}
    assert (await client.request("POST", "/report", newer))[0] == 200
    older = Client(server)
    await older.enroll("old", await server.ticket(), protocol=3)
    bare = {
        k: v
        for k, v in msgspec.to_builtins(report(protocol=3)).items()
        if k not in {"host_ip", "cpu_info", "guests"}
    }
    assert (await older.request("POST", "/report", bare))[0] == 200
    async with server.database.read() as tx:
        found = {h.name: h.protocol for h in await server.link.registry.hosts(tx)}
    assert found == {"new": 9, "old": 3}
