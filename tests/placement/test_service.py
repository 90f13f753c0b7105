"""Placement in process: reports in, decisions and claims out, as booting a server does it."""

from __future__ import annotations

import asyncio
from collections import Counter

from moorage.core.ids import new_id
from moorage.placement.hosts import HostStates
from moorage.placement.model import Inventory
from moorage.placement.query import RequestGroup
from moorage.placement.service import PlacementService, query_of
from moorage.scheduling import Request, summary
from moorage.store.database import Database

REQUEST = Request(resources={"VCPU": 1, "MEMORY_MB": 512})


def inventory(memory: int = 4096) -> dict[str, Inventory]:
    return {
        "VCPU": Inventory(total=8, allocation_ratio=4.0),
        "MEMORY_MB": Inventory(total=memory, reserved=512),
        "DISK_GB": Inventory(total=100),
    }


async def cloud(
    database: Database, hosts: int, networks: tuple[str, ...] = ("physnet0",)
) -> PlacementService:
    service = PlacementService(database)
    await service.start()
    for number in range(hosts):
        async with database.transaction() as tx:
            await service.report_host(
                tx,
                host_name=f"host{number}",
                provider_uuid=new_id(),
                inventory=inventory(),
                physical_networks=networks,
            )
    await service.follower.catch_up()
    return service


def states(hosts: int, down: int = 0) -> HostStates:
    return HostStates.of((f"host{n}", n >= down, True, None, "nova") for n in range(hosts))


async def boot(
    service: PlacementService, known: HostStates, seed: int, request: Request = REQUEST
) -> str | None:
    async with service.database.transaction() as tx:
        placed = await service.place(
            tx, request=request, states=known, seed=seed, consumer=new_id(), project_id="p", user_id="u"
        )
    return placed.host


async def test_a_repeated_report_costs_no_statement(database: Database) -> None:
    service = await cloud(database, 0)
    report = {
        "host_name": "h",
        "provider_uuid": new_id(),
        "inventory": inventory(),
        "traits": ["HW_CPU_X86_AVX", "CUSTOM_FAST"],
        "physical_networks": ["phys-net 1"],
    }
    async with database.transaction() as tx:
        assert await service.report_host(tx, **report)
    async with database.transaction() as tx:
        assert not await service.report_host(tx, **report)
        assert tx.statements == 0
    other = PlacementService(database)
    await other.start()
    changes = await count_changes(database)
    async with database.transaction() as tx:
        await other.report_host(tx, **report)
    assert await count_changes(database) == changes
    await service.follower.catch_up()
    assert service.index.columns.trait("CUSTOM_PHYSNET_PHYS_NET_1").any()


async def count_changes(database: Database) -> int:
    async with database.read() as tx:
        return int((await tx.fetch("SELECT count(*) FROM placement_changes"))[0][0])


async def test_servers_that_start_together_spread(database: Database) -> None:
    service = await cloud(database, 16)
    known = states(16)
    placed = await asyncio.gather(*(boot(service, known, seed) for seed in range(16)))
    # Claims overlap, yet what is expected of them sends each server to another host.
    assert len(set(placed)) == 16


async def test_a_host_lost_to_another_process_is_told_and_the_next_taken(database: Database) -> None:
    service = await cloud(database, 2)
    other = PlacementService(database)
    await other.start()
    request = Request(resources={"VCPU": 1, "MEMORY_MB": 3584})
    first = await boot(other, states(2), 1, request)
    async with database.transaction() as tx:
        for seed in range(20):
            if service.plan(request, states(2), seed).ranking[0].host == first:
                break
        placed = await service.place(
            tx, request=request, states=states(2), seed=seed, consumer=new_id(), project_id="p", user_id="u"
        )
    assert placed.host != first
    (lost,) = placed.refused
    assert (lost.host, lost.check, lost.subject, lost.needed, lost.available) == (
        first,
        "claim",
        "MEMORY_MB",
        3584,
        0,
    )
    assert await boot(service, states(2), 1, request) is None


async def test_until_the_cloud_is_full_and_then_with_reasons(database: Database) -> None:
    service = await cloud(database, 3)
    known = states(3, down=1)
    request = Request(resources={"VCPU": 1, "MEMORY_MB": 1024})
    placed = Counter([await boot(service, known, seed, request) for seed in range(8)])
    assert placed == {"host1": 3, "host2": 3, None: 2}
    decision = service.plan(request, known, 1)
    assert summary(decision) == "3 hosts: 2 short of memory by 512 MB, 1 down"


async def test_a_physical_network_must_reach_the_host(database: Database) -> None:
    service = await cloud(database, 2)
    request = Request(resources={"VCPU": 1}, physical_networks=("physnet0", "physnet9"))
    refusals = service.plan(request, states(2), 1).refusals
    assert {(r.host, r.subject) for r in refusals} == {("host0", "physnet9"), ("host1", "physnet9")}


async def test_another_process_learns_of_claims_by_the_log(database: Database) -> None:
    service = await cloud(database, 1)
    other = PlacementService(database)
    await other.start()
    assert await boot(service, states(1), 1) == "host0"
    await other.follower.catch_up()
    column = other.index.columns.classes["MEMORY_MB"]
    assert column.used.tolist() == [512]


async def test_a_host_without_a_provider_is_refused(database: Database) -> None:
    service = await cloud(database, 1)
    decision = service.plan(REQUEST, states(2), 1)
    assert [r.host for r in decision.ranking] == ["host0"]
    assert {(r.host, r.reason) for r in decision.refusals} == {("host1", "absent")}


async def test_ports_with_bandwidth_map_to_their_providers(database: Database) -> None:
    service = await cloud(database, 1)
    root = service.index.columns.ids[0]
    bridge = new_id()
    async with database.transaction() as tx:
        await service.ledger.ensure_provider(tx, uuid=bridge, name="br0", parent=root)
        await service.ledger.set_inventory(tx, bridge, {"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(total=1000)})
    await service.follower.catch_up()
    port = RequestGroup(suffix="_port", resources={"NET_BW_EGR_KILOBIT_PER_SEC": 600})
    query = query_of(REQUEST, [port])
    (candidate,) = service.candidates(query)
    assert candidate.mappings == {"": [root], "_port": [bridge]}
    async with database.transaction() as tx:
        await service.ledger.claim(
            tx, consumer=new_id(), project_id="p", user_id="u", allocations=candidate.allocations
        )
    assert service.candidates(query) == []
