"""A host whose slots are all taken by slow boots does what is short all the same, and in bounds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage.agent.agent import Agent
from moorage.agent.fleet import Fleet, SimulatedHost
from moorage.wire.messages import ConsoleOutput, DestroyGuest
from support.agent_server import PATIENCE, AgentServer
from tests.agent.test_agent import spawn

HOST = [SimulatedHost(name="h1")]


async def until(question) -> None:
    async with asyncio.timeout(PATIENCE):
        while not question():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def host_of(server: AgentServer) -> AsyncIterator[Agent]:
    async with Fleet(server.url, HOST, ticket=await server.ticket(), heartbeat=0.2, poll_wait=2) as fleet:
        yield fleet.agents["h1"]


def guests_of(agent: Agent) -> set[str]:
    return set(agent.guests.hypervisor._guests)


async def boots(server: AgentServer, *guests: str) -> list[str]:
    return [await server.send("h1", spawn(guest), operation=f"boot {guest}") for guest in guests]


async def flood(server: AgentServer, agent: Agent) -> list[str]:
    """Boots that take an hour in every slot, and one more that waits for one."""
    agent.guests.hypervisor.behaviour.latency = 3600.0
    slow = [f"slow{n}" for n in range(agent.settings.max_commands)]
    await boots(server, *slow)
    await until(lambda: guests_of(agent) >= set(slow))
    await boots(server, "waits")
    await until(lambda: agent._loop.busy == len(slow) + 1)
    return slow


async def test_deletes_and_consoles_do_not_wait_for_slow_boots(server):
    async with host_of(server) as agent:
        for sent in await boots(server, "g1", "g2"):
            await server.result(sent)
        await flood(server, agent)
        asked = await server.send("h1", ConsoleOutput(server_id="g2"), operation="console")
        assert (await server.result(asked)).outcome == "succeeded"
        gone = await server.send("h1", DestroyGuest(server_id="g1"), operation="delete g1")
        assert (await server.result(gone)).outcome == "succeeded"
        assert "g1" not in guests_of(agent)
        assert "waits" not in guests_of(agent)


async def test_a_delete_takes_the_place_of_its_guests_boot_that_has_not_begun(server):
    async with host_of(server) as agent:
        slow = await flood(server, agent)
        asked = await server.send("h1", ConsoleOutput(server_id="waits"), operation="console")
        await until(lambda: agent._loop.busy == len(slow) + 2)
        gone = await server.send("h1", DestroyGuest(server_id="waits"), operation="delete")
        assert (await server.result(gone)).outcome == "succeeded"
        # It had its turn before the delete: there was no such guest.
        assert (await server.result(asked)).error.code == "agent.guest_unknown"
        await until(lambda: agent._loop.busy == len(slow))
        assert guests_of(agent) == set(slow)


async def test_a_delete_waits_for_what_is_under_way_at_its_guest(server):
    async with host_of(server) as agent:
        go_on = asyncio.Event()
        agent.guests.hypervisor._take_time = go_on.wait
        (boot,) = await boots(server, "g1")
        await until(lambda: guests_of(agent) == {"g1"})
        # The second delete, of another operation, takes the place of the first, which has not begun.
        sent = [await server.send("h1", DestroyGuest(server_id="g1"), operation=f"delete{n}") for n in (1, 2)]
        await until(lambda: agent._loop.busy == 2 and sent[1] in agent._loop._running)
        assert guests_of(agent) == {"g1"}
        go_on.set()
        assert (await server.result(sent[1])).outcome == "succeeded"
        assert guests_of(agent) == set()
        assert boot not in server.results
        assert sent[0] not in server.results


async def test_stale_guests_are_removed_while_boots_take_every_slot(server):
    async with host_of(server) as agent:
        await server.result((await boots(server, "moved"))[0])
        slow = await flood(server, agent)
        server.verdicts = {"moved": "destroy"}
        await server.silence()
        await until(lambda: not agent.returning._sure)
        await server.serve()
        await until(lambda: guests_of(agent) == set(slow))


async def test_no_more_deletes_are_carried_out_at_once_than_there_are_slots(server):
    async with host_of(server) as agent:
        most = agent.settings.max_commands
        guests = [f"g{n}" for n in range(2 * most + 1)]
        for sent in await boots(server, *guests):
            await server.result(sent)
        go_on, under_way, peak = asyncio.Event(), set(), 0
        unplug = agent.guests.datapath.unplug

        async def held(vif):
            nonlocal peak
            under_way.add(vif.port_id)
            peak = max(peak, len(under_way))
            await go_on.wait()
            under_way.discard(vif.port_id)
            return await unplug(vif)

        agent.guests.datapath.unplug = held
        sent = [await server.send("h1", DestroyGuest(server_id=g), operation=f"delete {g}") for g in guests]
        await until(lambda: agent._loop.busy == len(guests) and len(under_way) == most)
        go_on.set()
        assert {(await server.result(each)).outcome for each in sent} == {"succeeded"}
        assert peak == most
