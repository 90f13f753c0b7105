"""Decisions: every failing check of every host, replayable rankings, the one-line summary."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.scheduling import Amounts, HostRow, HostTable, PlanRecord, Request, plan, summary
from moorage.scheduling.plan import RANKED, REFUSED, Reason

REQUEST = Request(resources={"VCPU": 2, "MEMORY_MB": 1024})


def host(name: str, memory: int = 4096, **fields: object) -> HostRow:
    resources = {"VCPU": Amounts(total=8, allocation_ratio=2.0), "MEMORY_MB": Amounts(total=memory)}
    return HostRow(name=name, **{"resources": resources, **fields})  # type: ignore[arg-type]


def test_summary_reads_as_promised() -> None:
    table = HostTable.of(
        [
            host("a", 512),
            host("b", 256),
            host("c", enabled=False, disabled_reason="rack 3"),
            host("d", up=False),
        ]
    )
    decision = plan(REQUEST, table, seed=1)
    assert decision.ranking == []
    assert summary(decision) == "4 hosts: 2 short of memory by 512 MB, 1 disabled, 1 down"


def test_every_failing_check_of_every_host_is_listed() -> None:
    table = HostTable.of([host("a", 512, up=False, enabled=False, disabled_reason="worn", zone="z1")])
    request = msgspec.structs.replace(
        REQUEST,
        availability_zone="z2",
        physical_networks=("physnet0",),
        requested_host="b",
        excluded={"a": "binding failed"},
        required_traits=("HW_CPU_X86_AVX",),
    )
    found = {r.check: r for r in plan(request, table, seed=1).refusals}
    assert set(found) == {
        "requested_host", "up", "enabled", "excluded", "zone", "physical_network", "trait", "resource",
    }  # fmt: skip
    assert (found["resource"].subject, found["resource"].needed, found["resource"].available) == (
        "MEMORY_MB", 1024, 512,
    )  # fmt: skip
    assert found["enabled"].detail == "worn"
    assert found["excluded"].detail == "binding failed"


@pytest.mark.parametrize(
    ("amounts", "reason", "available"),
    [
        (Amounts(total=100, reserved=90), "short", 10),
        (Amounts(total=100, used=95), "short", 5),
        (Amounts(total=100, min_unit=40), "below_min_unit", 40),
        (Amounts(total=100, max_unit=20), "above_max_unit", 20),
        (Amounts(total=100, step_size=8), "off_step", 8),
        (None, "absent", 0),
    ],
)
def test_a_resource_says_what_stands_in_the_way(amounts: Amounts | None, reason: str, available: int) -> None:
    table = HostTable.of([HostRow(name="a", resources={} if amounts is None else {"DISK_GB": amounts})])
    (refusal,) = plan(Request(resources={"DISK_GB": 30}), table, seed=0).refusals
    assert (refusal.reason, refusal.needed, refusal.available) == (reason, 30, available)


def test_spread_prefers_the_emptiest_host() -> None:
    table = HostTable.of([host("a", 2048), host("b", 8192), host("c", 4096)])
    assert [r.host for r in plan(REQUEST, table, seed=7).ranking] == ["b", "c", "a"]


def test_ties_are_broken_by_the_seed_alone() -> None:
    table = HostTable.of([host(f"h{i}") for i in range(20)])
    orders = [tuple(r.host for r in plan(REQUEST, table, seed=seed).ranking) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_requested_host_alone_is_ranked() -> None:
    table = HostTable.of([host("a"), host("b")])
    decision = plan(msgspec.structs.replace(REQUEST, requested_host="b"), table, seed=1)
    assert [r.host for r in decision.ranking] == ["b"]
    assert summary(decision) == "2 hosts: 1 not the requested host, 1 suitable"


def test_no_hosts_at_all() -> None:
    assert summary(plan(REQUEST, HostTable.of([]), seed=1)) == "no hosts"


def test_owner_sees_no_figures_names_or_remarks() -> None:
    table = HostTable.of([host("secret-a", 512), host("secret-b", enabled=False, disabled_reason="gossip")])
    request = msgspec.structs.replace(
        REQUEST,
        excluded={"secret-b": "tenant x is noisy"},
        together=("secret-a",),
        apart=("secret-b",),
        drawn={"secret-a": 1.0},
    )
    record = plan(request, table, seed=1).record().for_owner(lambda name: f"alias{len(name)}")
    text = msgspec.json.encode(record).decode()
    assert not [word for word in ("secret", "gossip", "noisy") if word in text]
    assert all(refusal.available is None for refusal in record.refusals)
    assert {refusal.needed for refusal in record.refusals if refusal.check == "resource"} == {1024}
    # The one figure that is left: how much the nearest host falls short by.
    assert record.summary == "2 hosts: 1 disabled, 1 short of memory by 512 MB"


def test_owner_sees_ranks_and_no_scores() -> None:
    table = HostTable.of([host("a", 2048), host("bb", 8192), host("ccc", 4096)])
    record = plan(REQUEST, table, seed=7).record()
    assert record.ranking[0].score != record.ranking[1].score
    shown = record.for_owner(lambda name: f"alias{len(name)}").ranking
    assert [(r.host, r.score) for r in shown] == [("alias2", None), ("alias3", None), ("alias1", None)]


def test_a_record_survives_storage() -> None:
    record = plan(REQUEST, HostTable.of([host("a"), host("b", 1)]), seed=3).record()
    assert msgspec.json.decode(msgspec.json.encode(record), type=PlanRecord) == record


amounts = st.builds(
    Amounts,
    total=st.integers(1, 64),
    used=st.integers(0, 64),
    allocation_ratio=st.sampled_from([0.5, 1.0, 1.5, 4.0]),
    min_unit=st.integers(1, 4),
    max_unit=st.integers(4, 64),
    step_size=st.integers(1, 3),
)
rows = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from(["z1", "z2"]), amounts, amounts), max_size=8
)


@settings(max_examples=150)
@given(rows, st.integers(1, 16), st.integers(1, 16))
def test_a_host_is_ranked_exactly_when_nothing_refuses_it(
    hosts: list[tuple[bool, bool, str, Amounts, Amounts]], cpus: int, memory: int
) -> None:
    table = HostTable.of(
        [
            HostRow(name=f"h{i}", up=up, enabled=on, zone=zone, resources={"VCPU": cpu, "MEMORY_MB": mem})
            for i, (up, on, zone, cpu, mem) in enumerate(hosts)
        ]
    )
    request = Request(resources={"VCPU": cpus, "MEMORY_MB": memory}, availability_zone="z1")
    decision = plan(request, table, seed=0)

    def fits(have: Amounts, want: int) -> bool:
        return (
            have.used + want <= int(have.total * have.allocation_ratio)
            and have.min_unit <= want <= have.max_unit
            and want % have.step_size == 0
        )

    expected = {
        f"h{i}"
        for i, (up, on, zone, cpu, mem) in enumerate(hosts)
        if up and on and zone == "z1" and fits(cpu, cpus) and fits(mem, memory)
    }
    assert {r.host for r in decision.ranking} == expected
    assert {r.host for r in decision.refusals} == set(table.names) - expected

    # What is told of many at once is what is told of each.
    told = Counter((r.check, r.reason, r.subject) for r in decision.refusals)
    assert {(r.check, r.reason, r.subject): r.hosts for r in decision.record().reasons or ()} == told
    first = {r.host: r for r in reversed(decision.refusals)}.values()
    for subject, word in (("VCPU", "CPUs"), ("MEMORY_MB", "memory")):
        short = [
            (r.needed or 0) - (r.available or 0) for r in first if (r.reason, r.subject) == ("short", subject)
        ]
        by = f"{len(short)} short of {word} by {min(short)}" if short else f"short of {word}"
        assert (by in summary(decision)) == bool(short)


def test_company_is_kept_or_avoided_and_says_so() -> None:
    table = HostTable.of([host("a"), host("b"), host("c")])
    near = plan(msgspec.structs.replace(REQUEST, together=("b",)), table, seed=1)
    assert [r.host for r in near.ranking] == ["b"]
    assert {(r.host, r.check, r.reason) for r in near.refusals} == {
        ("a", "together", "affinity"),
        ("c", "together", "affinity"),
    }
    away = plan(msgspec.structs.replace(REQUEST, apart=("b", "nowhere")), table, seed=1)
    assert {r.host for r in away.ranking} == {"a", "c"}
    assert summary(away) == "3 hosts: 2 suitable, 1 taken by a server of the group"
    assert plan(msgspec.structs.replace(REQUEST, together=()), table, seed=1).ranking == []


def test_a_host_may_draw_or_repel() -> None:
    table = HostTable.of([host("a", 2048), host("b", 8192), host("c", 4096)])
    drawn = plan(msgspec.structs.replace(REQUEST, drawn={"a": 4.0, "b": -4.0}), table, seed=1)
    assert [r.host for r in drawn.ranking] == ["a", "c", "b"]


def test_a_record_keeps_the_best_hosts_and_how_many_would_do() -> None:
    names = [f"h{number}" for number in range(3 * RANKED)]
    decision = plan(REQUEST, HostTable.of([host(name) for name in names]), seed=1)
    record = decision.record()
    assert record.ranking == decision.ranking[:RANKED]
    assert record.suitable == record.for_owner(str).suitable == len(names)
    assert list(decision.best()) == [ranked.host for ranked in decision.ranking]


def test_a_record_keeps_some_refused_hosts_whole_and_counts_all_by_reason() -> None:
    far = [host(f"far{number}", 512, enabled=False) for number in range(2 * REFUSED)]
    near = [host(f"near{number}", 512) for number in range(REFUSED - 1)]
    decision = plan(REQUEST, HostTable.of([host("roomy"), *far, *near]), seed=1)
    record = decision.record()
    kept = {refusal.host for refusal in record.refusals}
    # Those that fail the fewest checks, then in the order of the table; of each everything it fails.
    assert kept == {*(each.name for each in near), "far0"}
    assert record.refusals == [refusal for refusal in decision.refusals if refusal.host in kept]
    assert record.refused == len(far) + len(near)
    assert record.reasons == [
        Reason(check="resource", reason="short", subject="MEMORY_MB", hosts=len(far) + len(near)),
        Reason(check="enabled", reason="disabled", hosts=len(far)),
    ]
    assert record.for_owner(str).reasons == record.reasons


def test_sums_of_reasons_show_an_owner_no_host() -> None:
    table = HostTable.of([host("secret-a"), host("secret-b")])
    request = msgspec.structs.replace(REQUEST, requested_host="secret-a")
    record = plan(request, table, seed=1).record().for_owner(lambda name: f"alias{len(name)}")
    assert record.reasons == [
        Reason(check="requested_host", reason="not_requested", subject="alias8", hosts=1)
    ]
