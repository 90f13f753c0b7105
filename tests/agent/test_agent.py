import asyncio

import msgspec
import pytest

from moorage.agent import identity
from moorage.agent.agent import Agent
from moorage.agent.config import Settings
from moorage.agent.datapaths.simulated import SimulatedDatapath
from moorage.agent.fleet import Fleet, SimulatedHost, hosts
from moorage.agent.hypervisors.simulated import Behaviour, SimulatedHypervisor
from moorage.agent.journal import MemoryJournal
from moorage.agent.link import Transport
from moorage.core.errors import BadRequest
from moorage.wire.messages import (
    Command,
    ConsoleOutput,
    DestroyGuest,
    RebootGuest,
    SpawnGuest,
    StartGuest,
    StopGuest,
    Vif,
)
from support.agent_server import PATIENCE, AgentServer
from support.relay import Relay


def spawn(server_id="g1", ports=1):
    vifs = tuple(
        Vif(
            port_id=f"{server_id}-p{n}",
            mac=f"fa:16:3e:00:00:0{n}",
            network_id="n",
            iface=f"tap{n}",
            vif_type="simulated",
        )
        for n in range(ports)
    )
    return SpawnGuest(
        server_id=server_id,
        name="one",
        hostname="one",
        project_id="p",
        user_id="u",
        vcpus=1,
        memory_mb=64,
        disk_gb=1,
        vifs=vifs,
    )


def raw(payload):
    return msgspec.Raw(msgspec.json.encode(payload))


async def fleet_of(server, count=1, **kw):
    return Fleet(server.url, hosts(count), ticket=await server.ticket(uses=count), **kw)


async def test_the_life_of_a_simulated_guest(server):
    async with await fleet_of(server) as fleet:
        host = "sim-0001"
        steps = [
            (spawn(), {"power_state": "running"}),
            (StopGuest(server_id="g1"), {"power_state": "shutdown"}),
            (StartGuest(server_id="g1"), {"power_state": "running"}),
            (RebootGuest(server_id="g1", hard=True), {"power_state": "running"}),
        ]
        for number, (payload, data) in enumerate(steps):
            result = await server.result(await server.send(host, payload, operation=f"op{number}"))
            assert (result.outcome, result.data) == ("succeeded", data)
        result = await server.result(
            await server.send(host, ConsoleOutput(server_id="g1", length=1), operation="c")
        )
        assert result.data == {"output": "one login:\n"}
        plugged, unplugged = (("port." + what, {"port_id": "g1-p0"}) for what in ("plugged", "unplugged"))
        assert plugged in [(e.kind, e.data) for _, e in server.events]
        result = await server.result(await server.send(host, DestroyGuest(server_id="g1"), operation="d"))
        assert result.outcome == "succeeded"
        # Events are passed on after the results that came with them.
        await server.until(lambda: [(e.kind, e.data) for _, e in server.events][-1] == unplugged)
        assert await fleet.agents[host].guests.hypervisor.guests() == []
        again = await server.result(await server.send(host, DestroyGuest(server_id="g1"), operation="d2"))
        assert again.outcome == "succeeded"


@pytest.mark.parametrize(
    "payload", [StartGuest(server_id="x"), StopGuest(server_id="x"), ConsoleOutput(server_id="x")]
)
async def test_a_guest_that_is_not_here_is_a_failure_with_a_code(server, payload):
    async with await fleet_of(server):
        result = await server.result(await server.send("sim-0001", payload, operation="op"))
    assert (result.outcome, result.error.code) == ("failed", "agent.guest_unknown")


async def test_a_kind_the_agent_does_not_know_is_refused_and_the_rest_goes_on(server):
    async with await fleet_of(server):
        async with server.database.transaction() as tx:
            strange = await server.link.enqueue(
                tx,
                host="sim-0001",
                operation="op1",
                step="s",
                fence=1,
                kind="guest.levitate",
                payload={"a": 1},
            )
            wrong = await server.link.enqueue(
                tx,
                host="sim-0001",
                operation="op2",
                step="s",
                fence=1,
                kind="guest.start",
                payload={"server_id": 7},
            )
            known = await server.link.enqueue(
                tx, host="sim-0001", operation="op3", step="s", fence=1, payload=spawn()
            )
        for command in (strange, wrong):
            result = await server.result(command)
            assert (result.outcome, result.error.code) == ("refused", "agent.command_unknown")
        assert (await server.result(known)).outcome == "succeeded"


async def test_guests_run_side_by_side_and_each_keeps_the_order_of_its_commands(server):
    # The next command for a guest is sent while the one before is at work.
    async with await fleet_of(server, behaviour=Behaviour(latency=0.5)) as fleet:
        hypervisor = fleet.agents["sim-0001"].guests.hypervisor

        async def ordered(guest: str) -> str:
            await server.send("sim-0001", spawn(guest), operation=f"{guest}-spawn")
            async with asyncio.timeout(PATIENCE):
                while guest not in hypervisor._guests:
                    await asyncio.sleep(0.02)
            last = await server.send("sim-0001", StopGuest(server_id=guest), operation=f"{guest}-stop")
            return (await server.result(last)).outcome

        outcomes = await asyncio.gather(*(ordered(guest) for guest in ("g1", "g2", "g3")))
        assert outcomes == ["succeeded"] * 3
        assert {s.power_state for s in await hypervisor.guests()} == {"shutdown"}


async def test_faults_can_be_set_while_a_fleet_runs(server):
    async with await fleet_of(server) as fleet:
        fleet.behaviour.fault_rates["power_on"] = 1.0
        result = await server.result(await server.send("sim-0001", spawn("g1"), operation="op1"))
        assert (result.outcome, result.error.code) == ("failed", "agent.simulated_fault")
        fleet.behaviour.fault_rates.clear()
        result = await server.result(await server.send("sim-0001", spawn("g2"), operation="op2"))
        assert result.outcome == "succeeded"


async def test_a_lower_fence_is_refused_and_the_same_key_gives_the_stored_result(server):
    async with await fleet_of(server) as fleet:
        first = await server.send("sim-0001", spawn(), operation="op", step="spawn", fence=5)
        stored = await server.result(first)
        old = await server.result(
            await server.send("sim-0001", StopGuest(server_id="g1"), operation="op", step="spawn", fence=4)
        )
        assert (old.outcome, old.error.code) == ("refused", "agent.fence_old")
        assert await server.send("sim-0001", spawn(), operation="op", step="spawn", fence=5) == first
        await server.until(lambda: len(server.results[first]) == 2)
        assert server.results[first][1] == stored
        undo = await server.result(
            await server.send("sim-0001", DestroyGuest(server_id="g1"), operation="op", step="spawn", fence=5)
        )
        assert undo.outcome == "succeeded"
        assert await fleet.agents["sim-0001"].guests.hypervisor.guests() == []


async def test_a_start_that_comes_after_the_delete_is_not_carried_out(server):
    async with await fleet_of(server) as fleet:
        await server.result(await server.send("sim-0001", spawn(), operation="boot"))
        async with server.database.transaction() as tx:
            for operation, payload in (("start", spawn()), ("delete", DestroyGuest(server_id="g1"))):
                sent = await server.link.enqueue(
                    tx, host="sim-0001", operation=operation, step="do", fence=1, payload=payload
                )
        assert (await server.result(sent)).outcome == "succeeded"
        # The delete has taken the start back. A process that had it in its hands all along hands it over now.
        async with server.database.read() as tx:
            ((start, seq, outcome),) = await tx.fetch(
                "SELECT id, seq, outcome FROM commands WHERE operation = 'start'"
            )
        assert outcome == "superseded"
        late = Command(
            id=start, seq=seq, operation="start", step="do", fence=1, kind="guest.spawn", payload=raw(spawn())
        )
        server.link._dispatcher.hand_over("sim-0001", [late])
        # What is asked of the guest after it has its turn after it.
        asked = await server.send("sim-0001", ConsoleOutput(server_id="g1"), operation="call")
        assert (await server.result(asked)).error.code == "agent.guest_unknown"
        assert await fleet.agents["sim-0001"].guests.hypervisor.guests() == []
        assert start not in server.results


async def test_a_control_plane_whose_numbers_have_gone_back_is_obeyed_all_the_same(server):
    async def count_from(number):
        async with server.database.transaction() as tx:
            await tx.execute(f"SELECT setval(pg_get_serial_sequence('commands', 'seq'), {number})")

    async with await fleet_of(server) as fleet:
        await count_from(1000)
        await server.result(await server.send("sim-0001", spawn(), operation="boot"))
        # As after its database was restored from a backup.
        await count_from(1)
        sent = await server.send("sim-0001", StopGuest(server_id="g1"), operation="stop")
        assert (await server.result(sent)).outcome == "succeeded"
        assert [g.power_state for g in await fleet.agents["sim-0001"].guests.hypervisor.guests()] == [
            "shutdown"
        ]
        again = await server.send("sim-0001", StartGuest(server_id="g1"), operation="start")
        assert (await server.result(again)).outcome == "succeeded"
        assert [len(server.results[c]) for c in (sent, again)] == [1, 1]


@pytest.mark.parametrize("onward", ["the same process", "another process"])
async def test_a_command_whose_delivery_was_lost_comes_with_the_next_poll(
    server, database_url, tmp_path, onward
):
    async with (
        AgentServer(database_url) as other,
        Relay(server.socket.with_name("relay.sock"), server.socket).listening() as relay,
        Fleet(
            relay.url,
            [SimulatedHost(name="h1")],
            ticket=await server.ticket(),
            heartbeat=3600,
            poll_wait=30,
        ) as fleet,
    ):
        for process in (server, other):
            process.link._dispatcher._again_after = 3600.0
        # One answer has come, so the poll is on a connection that was used before; nothing else is on the wire, for the
        # only heartbeat is over.
        await server.until(lambda: server.reports)
        await server.result(await server.send("h1", spawn("g1"), operation="op1"))
        await settled(fleet.agents["h1"])
        async with asyncio.timeout(PATIENCE):
            while "h1" not in server.link._dispatcher._waiting:
                await asyncio.sleep(0.02)
        if onward == "another process":
            relay.onward = other.socket
        relay.cut.set()
        sent = await server.send("h1", spawn("g2"), operation="op2")
        await asyncio.wait_for(relay.lost.wait(), PATIENCE)
        if relay.onward:
            await server.link.stop()  # who is dead gives nothing back
        async with asyncio.timeout(PATIENCE):
            while sent not in {**server.results, **other.results}:
                await asyncio.sleep(0.02)


async def test_agents_come_back_when_the_control_plane_does(server):
    async with await fleet_of(server, 3, heartbeat=0.2) as fleet:
        await server.until(lambda: len({h for h, _ in server.reports}) == 3)
        await server.silence()
        async with asyncio.timeout(PATIENCE):
            while any(agent.returning._sure for agent in fleet.agents.values()):
                await asyncio.sleep(0.02)
        await server.serve()
        sent = [await server.send(name, spawn(f"g-{name}"), operation=f"op-{name}") for name in fleet.agents]
        assert [(await server.result(command)).outcome for command in sent] == ["succeeded"] * 3


async def test_a_result_made_while_the_control_plane_was_away_is_not_lost(server):
    async with await fleet_of(server, behaviour=Behaviour(latency=0.5)) as fleet:
        agent = fleet.agents["sim-0001"]
        sent = await server.send("sim-0001", spawn(), operation="op")
        async with asyncio.timeout(PATIENCE):
            while not agent._loop.busy:
                await asyncio.sleep(0.02)
            await server.silence()
            while agent._loop.busy:
                await asyncio.sleep(0.02)
        await server.serve()
        assert (await server.result(sent)).outcome == "succeeded"


async def test_a_fleet_with_a_folder_goes_on_where_it_stopped(server, tmp_path):
    one = [SimulatedHost(name="h1", vcpus=7, physical_networks=("physnet1",))]
    async with Fleet(server.url, one, ticket=await server.ticket(), state_dir=tmp_path):
        await server.result(await server.send("h1", spawn(), operation="op"))
        await server.until(lambda: server.reports)
    _, report = server.reports[-1]
    assert (report.vcpus, report.physical_networks, report.protocol) == (7, ("physnet1",), 4)
    server.events.clear()
    async with Fleet(server.url, one, ticket="used", state_dir=tmp_path) as fleet:
        await server.until(lambda: server.events)
        (guest,) = await fleet.agents["h1"].guests.hypervisor.guests()
        assert guest.power_state == "running"
        assert server.events[0][1].data == {"port_id": "g1-p0"}


async def test_the_identity_is_the_agents_users_alone(server, tmp_path):
    async with Fleet(
        server.url, [SimulatedHost(name="h1")], ticket=await server.ticket(), state_dir=tmp_path
    ):
        pass
    path = tmp_path / "h1" / "identity.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE KEY" in path.read_text()
    files = [p for p in (tmp_path / "h1").rglob("*") if p.is_file()]
    assert [p.name for p in files if b"PRIVATE KEY" in p.read_bytes()] == [path.name]


async def test_without_a_ticket_the_agent_says_what_to_do(tmp_path):
    settings = Settings(control_url="https://127.0.0.1:1", host="h", state_dir=tmp_path)
    async with Transport(settings.control_url) as transport:
        agent = Agent(settings, transport, MemoryJournal(), SimulatedHypervisor(), SimulatedDatapath())
        with pytest.raises(BadRequest, match="moorage host enroll"):
            await agent.run()


@pytest.mark.parametrize("url", ["", "http://x", "127.0.0.1:8790", "https:///x", "https+unix://"])
def test_a_control_url_of_another_form_is_named(url):
    with pytest.raises(BadRequest, match="control_url"):
        Transport(url)


async def test_an_agent_renews_its_certificate_when_it_is_told_to(server, tmp_path):
    one = [SimulatedHost(name="h1")]
    async with Fleet(server.url, one, ticket=await server.ticket(), state_dir=tmp_path):
        await server.until(lambda: server.reports)
    before = identity.load(tmp_path / "h1")
    async with server.database.transaction() as tx:
        await tx.execute("UPDATE host_certificates SET expires_at = now() + interval '9 days'")
    server.link.certificates._known.clear()
    async with Fleet(server.url, one, ticket="used", state_dir=tmp_path, heartbeat=0.2):
        async with asyncio.timeout(PATIENCE):
            while (after := identity.load(tmp_path / "h1")) == before:
                await asyncio.sleep(0.02)
        result = await server.result(await server.send("h1", spawn(), operation="op"))
        assert result.outcome == "succeeded"
    assert after.key != before.key
    assert after.host_id == before.host_id


async def test_a_new_ticket_gives_the_host_a_new_identity_and_a_useless_one_leaves_the_old(server, tmp_path):
    async def begin(ticket):
        settings = Settings(
            control_url=server.url, host="h1", state_dir=tmp_path, enroll_token=ticket, datapath="simulated"
        )
        async with Transport(server.url) as transport:
            agent = Agent(settings, transport, MemoryJournal(), SimulatedHypervisor(), SimulatedDatapath())
            task = asyncio.create_task(agent.run())
            await asyncio.wait_for(agent.enrolled.wait(), PATIENCE)
            task.cancel()
            await asyncio.wait([task])
        return identity.load(tmp_path)

    first = await begin(await server.ticket())
    async with server.database.transaction() as tx:
        await server.link.enrolment.revoke(tx, "h1")
    assert await begin("used long ago") == first
    second = await begin(await server.ticket("h1"))
    assert (second.host_id, second.key == first.key) == (first.host_id, False)


async def settled(agent):
    """The control plane has every result, and the journal knows it."""
    async with asyncio.timeout(PATIENCE):
        while await agent._journal.unacknowledged():
            await asyncio.sleep(0.02)
