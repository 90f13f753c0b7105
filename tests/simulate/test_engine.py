"""Runs: capacity holds, servers leave, groups keep together or apart, the same seed gives the same run."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.simulate.engine import PACKING, Simulation
from moorage.simulate.model import Arrival, Part, Stock, World
from moorage.simulate.report import Recorder
from moorage.simulate.topology import ChildPattern, Description, HostPattern, described


def cloud(racks: int = 2, per_rack: int = 2, **inventory: int | Stock) -> World:
    name = "r{rack}h{number}"
    pattern = HostPattern(
        name=name, racks=racks, per_rack=per_rack, zones=("a", "b"), inventory=inventory or {"VCPU": 4}
    )
    return described(Description(hosts=[pattern]))


def numa(hosts: int, cpus: int = 4) -> World:
    node = ChildPattern(name="numa{i}", count=2, inventory={"VCPU": cpus}, traits=["HW_NUMA_ROOT"])
    pattern = HostPattern(name="h{n}", per_rack=hosts, inventory={"DISK_GB": 100}, children=[node])
    return described(Description(hosts=[pattern]))


def servers(count: int, **fields: object) -> list[Arrival]:
    wanted = {"resources": {"VCPU": 1}, **fields}
    return [Arrival(id=f"s{n}", at=float(n), **wanted) for n in range(count)]  # type: ignore[arg-type]


def test_all_that_fit_are_placed_and_the_rest_is_told_why() -> None:
    outcomes = list(Simulation(cloud()).run(servers(18)))
    assert Counter(o.host for o in outcomes[:16]) == {"r0h0": 4, "r0h1": 4, "r1h0": 4, "r1h1": 4}
    for outcome in outcomes[16:]:
        assert outcome.host is None
        assert outcome.reason == "4 hosts: 4 short of CPUs by 1"
        assert (outcome.main, outcome.room) == ("short of CPUs", False)


def test_what_leaves_makes_room() -> None:
    stream = [Arrival(id=f"s{n}", at=float(n), lifetime=16.0, resources={"VCPU": 1}) for n in range(64)]
    simulation = Simulation(cloud())
    assert all(o.host is not None for o in simulation.run(stream))
    assert simulation.used["VCPU"] == 16


def test_packing_fills_one_host_before_the_next() -> None:
    outcomes = list(Simulation(cloud(), weighers=PACKING).run(servers(6)))
    assert sorted(Counter(o.host for o in outcomes).values()) == [2, 4]


def test_parts_come_from_one_provider_each() -> None:
    wide = Part(resources={"VCPU": 6})
    split = Part(resources={"VCPU": 3})
    stream = [
        Arrival(id="wide", resources={"DISK_GB": 1}, parts=[wide]),
        Arrival(id="split", resources={"DISK_GB": 1}, parts=[split, split], isolate=True),
        Arrival(id="again", resources={"DISK_GB": 1}, parts=[split, split], isolate=True),
    ]
    simulation = Simulation(numa(1))
    found = {o.id: o for o in simulation.run(stream)}
    assert found["split"].host == "h0"
    assert found["wide"].host is None
    assert found["wide"].room, "8 CPUs are free in all"
    assert found["again"].host is None
    assert simulation.used == {"VCPU": 6, "DISK_GB": 1}


@pytest.mark.parametrize(
    ("policy", "hosts"),
    [
        ("affinity", [4]),
        ("anti-affinity", [1, 1, 1, 1]),
        ("soft-affinity", [4]),
        ("soft-anti-affinity", [1, 1, 1, 1]),
    ],
)
def test_groups_keep_together_or_apart(policy: str, hosts: list[int]) -> None:
    stream = servers(4, group="g", policy=policy)
    outcomes = list(Simulation(cloud()).run(stream))
    assert sorted(Counter(o.host for o in outcomes).values()) == hosts


def test_a_group_that_is_full_refuses_and_soft_policies_do_not() -> None:
    hard = list(Simulation(cloud()).run(servers(5, group="g", policy="anti-affinity")))
    assert hard[4].reason == "4 hosts: 4 taken by a server of the group"
    assert hard[4].room
    soft = list(Simulation(cloud()).run(servers(5, group="g", policy="soft-anti-affinity")))
    assert soft[4].host is not None


def test_different_domains_never_share_a_rack() -> None:
    stream = [
        Arrival(id=f"s{n}", at=n, resources={"VCPU": 1}, group="g", policy="fault-domain", domain=str(n % 3))
        for n in range(9)
    ]
    outcomes = list(Simulation(cloud(racks=3)).run(stream))
    racks = defaultdict(set)
    for arrival, outcome in zip(stream, outcomes, strict=True):
        assert outcome.host is not None
        racks[outcome.host[:2]].add(arrival.domain)
    assert all(len(domains) == 1 for domains in racks.values())


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    world = cloud(racks=4, per_rack=5)
    runs = [[o.host for o in Simulation(world, seed=seed).run(servers(40))] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


arrivals = st.lists(
    st.tuples(
        st.integers(1, 5), st.integers(0, 3), st.integers(1, 20), st.sampled_from([None, "a", "b", "c"])
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60)
@given(arrivals, st.booleans())
def test_no_provider_is_ever_over_its_capacity(
    wanted: list[tuple[int, int, int, str | None]], pack: bool
) -> None:
    world = numa(3)
    stream = [
        Arrival(
            id=f"s{n}",
            at=float(n),
            lifetime=float(stays),
            resources={"DISK_GB": 1},
            parts=[Part(resources={"VCPU": cpus})] * (1 + parts // 2),
            isolate=parts == 3,
            group=group,
            policy="anti-affinity" if group else None,
        )
        for n, (cpus, parts, stays, group) in enumerate(wanted)
    ]
    simulation = Simulation(world, weighers=PACKING) if pack else Simulation(world)
    recorder = Recorder(simulation)
    for arrival, outcome in zip(stream, simulation.run(stream), strict=True):
        recorder.note(arrival, outcome)
        for (provider, name), (used, _) in simulation._used.items():
            spec = next(p for p in world.providers if p.uuid == provider)
            assert 0 <= used <= spec.inventories[name].total
    report = recorder.report()
    assert report.accepted + report.refused == len(stream)
    assert sum(report.reasons.values()) == report.refused
