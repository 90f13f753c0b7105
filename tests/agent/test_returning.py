"""A host that starts, or was cut off, finds out what it may still run before it touches anything."""

import asyncio

import pytest

from moorage.agent.fleet import Fleet, SimulatedHost
from moorage.agent.hypervisors.simulated import Behaviour
from moorage.wire.messages import ConsoleOutput, StopGuest
from support.agent_server import PATIENCE, AgentServer
from tests.agent.test_agent import spawn

HOST = [SimulatedHost(name="h1")]


def fleet_in(server: AgentServer, folder, ticket="used", **kw) -> Fleet:
    return Fleet(server.url, HOST, ticket=ticket, state_dir=folder, heartbeat=0.2, poll_wait=2, **kw)


async def with_guests(server: AgentServer, folder, *guests: str) -> None:
    """Guests that a first process of the host leaves behind."""
    async with fleet_in(server, folder, await server.ticket()):
        for guest in guests:
            result = await server.result(await server.send("h1", spawn(guest), operation=f"boot {guest}"))
            assert result.outcome == "succeeded"
    server.judged.clear()


def guests_of(fleet: Fleet) -> set[str]:
    return set(fleet.agents["h1"].guests.hypervisor._guests)


def plugged(fleet: Fleet) -> set[str]:
    return fleet.agents["h1"].guests.datapath.plugged


async def until(question) -> None:
    async with asyncio.timeout(PATIENCE):
        while not question():
            await asyncio.sleep(0.02)


async def test_each_guest_has_its_verdict_and_is_treated_by_it(server, tmp_path):
    await with_guests(server, tmp_path, "mine", "moved", "strange")
    server.verdicts = {"moved": "destroy", "strange": "unknown"}
    async with fleet_in(server, tmp_path) as fleet:
        await until(lambda: guests_of(fleet) == {"mine", "strange"} and plugged(fleet))
        # What is not known is left as it is: it runs, and its port is not plugged, for it may be plugged elsewhere.
        assert plugged(fleet) == {"mine-p0"}
        states = await fleet.agents["h1"].guests.hypervisor.guests()
        assert {s.power_state for s in states} == {"running"}


async def test_nothing_is_touched_before_the_verdict(server, tmp_path):
    await with_guests(server, tmp_path, "g1")
    asked, answer = asyncio.Event(), asyncio.Event()
    judge = server.judge

    async def slow(tx, host, guests):
        asked.set()
        await answer.wait()
        return await judge(tx, host, guests)

    server.link.judge = slow
    sent = await server.send("h1", StopGuest(server_id="g1"), operation="stop")
    async with fleet_in(server, tmp_path) as fleet:
        await asyncio.wait_for(asked.wait(), PATIENCE)
        # The reports go on meanwhile; three of them are time enough for what must not happen.
        before = len(server.events)
        for _ in range(3):
            server.link.registry._touched.discard("h1")  # what the first process said counts for nothing
            await until(lambda: "h1" in server.link.registry._touched)
        assert sent not in server.results
        assert plugged(fleet) == set()
        assert server.events[before:] == []
        answer.set()
        assert (await server.result(sent)).outcome == "succeeded"


async def test_a_guest_that_moved_while_its_host_was_cut_off_is_removed_at_its_return(server, tmp_path):
    await with_guests(server, tmp_path, "g1", "g2")
    async with fleet_in(server, tmp_path) as fleet:
        await until(lambda: fleet.agents["h1"].returning._sure)
        await server.silence()
        server.verdicts = {"g1": "destroy"}
        await until(lambda: not fleet.agents["h1"].returning._sure)
        await server.serve()
        await until(lambda: guests_of(fleet) == {"g2"})
        gone = ("port.unplugged", {"port_id": "g1-p0"})
        await until(lambda: gone in [(e.kind, e.data) for _, e in server.events])


async def test_what_had_not_begun_at_the_cut_is_dropped_and_comes_again(server, tmp_path):
    await with_guests(server, tmp_path, "g1")
    async with fleet_in(server, tmp_path) as fleet:
        await until(lambda: fleet.agents["h1"].returning._sure)
        agent, go_on = fleet.agents["h1"], asyncio.Event()
        agent.guests.hypervisor._take_time = go_on.wait
        first = await server.send("h1", spawn("g2"), operation="long")
        second = await server.send("h1", ConsoleOutput(server_id="g2"), operation="next")
        await until(lambda: agent._loop.busy == 2)
        await server.silence()
        await until(lambda: agent._loop.busy == 1)
        go_on.set()
        await server.serve()
        assert (await server.result(first)).outcome == "succeeded"
        assert (await server.result(second)).outcome == "succeeded"
        assert [len(server.results[c]) for c in (first, second)] == [1, 1]


@pytest.mark.parametrize("trouble", ["unknown", "power_off", "undefine"])
async def test_what_is_not_settled_is_asked_about_again(server, tmp_path, trouble):
    await with_guests(server, tmp_path, "g1")
    server.verdicts = {"g1": "unknown" if trouble == "unknown" else "destroy"}
    behaviour = Behaviour(fault_rates={trouble: 1.0})
    fleet = fleet_in(server, tmp_path, behaviour=behaviour)
    async with fleet:
        returning = fleet.agents["h1"].returning
        returning._again = 0.0
        if returning._ask_at is not None:  # it has asked by now, and would wait for a minute
            returning._ask_at = 0.0
        await until(lambda: len(server.judged) >= 2)
        assert guests_of(fleet) == {"g1"}
        behaviour.fault_rates.clear()
        server.verdicts = {"g1": "destroy"}
        await until(lambda: guests_of(fleet) == set())


async def test_a_host_without_guests_asks_nothing(server):
    async with Fleet(server.url, HOST, ticket=await server.ticket(), heartbeat=0.2):
        await until(lambda: len(server.reports) == 1)
        result = await server.result(await server.send("h1", spawn(), operation="op"))
        assert result.outcome == "succeeded"
    assert server.judged == []
