"""Work is bounded whatever is asked: what cannot fit is seen before it is tried, and what was not tried is not denied."""

import itertools
from random import Random

import pytest

from moorage.placement import candidates
from moorage.placement.candidates import Search
from moorage.placement.capacity import capacity
from moorage.placement.columns import TOUCHED
from moorage.placement.explain import Explainer
from moorage.placement.forest import build
from moorage.placement.index import Index
from moorage.placement.model import UsedRow
from moorage.placement.names import SHARING_TRAIT
from moorage.placement.query import Query, RequestGroup
from moorage.placement.reads import Held
from tests.support.forests import Plain, key_of, record, stock

PLAIN = RequestGroup(resources={"VCPU": 1})
BANDWIDTH, PACKETS, NET = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC", "CUSTOM_PHYSNET"


def port(suffix: str, *traits: str, **resources: int) -> RequestGroup:
    return RequestGroup(
        suffix=suffix, resources=resources, required=tuple(frozenset({trait}) for trait in traits)
    )


def functions(host: str, count: int, with_trait: int = 0) -> list[Held]:
    """A host with so many functions of one place each; the first few have the trait."""
    leaves = [
        record(
            f"{host}-{i}",
            host,
            host,
            inventory={"SRIOV_NET_VF": stock(1)},
            traits=[NET] if i < with_trait else [],
        )
        for i in range(count)
    ]
    return [record(host, inventory={"VCPU": stock(20)}), *leaves]


def test_groups_of_several_kinds_that_are_too_many_in_sum_cost_no_walk_and_hide_no_host() -> None:
    # Six of twelve ports need a trait that seven functions have; eleven functions cannot serve twelve ports.
    records = list(
        itertools.chain.from_iterable(
            functions(f"host{number:04}", 12 if number == 1999 else 11, with_trait=7)
            for number in range(2000)
        )
    )
    ports = (port(f"_{i}", *([NET] if i < 6 else []), SRIOV_NET_VF=1) for i in range(12))
    search = Search(build(records), Query(groups=(PLAIN, *ports)))
    (only,) = search.candidates(1)
    assert only.root == "host1999"
    assert search.pauses == 0


def test_isolated_groups_of_several_kinds_need_as_many_providers() -> None:
    ports = (port(f"_{i}", *([NET] if i < 2 else []), SRIOV_NET_VF=1) for i in range(4))
    search = Search(build(functions("host", 3, with_trait=2)), Query(groups=(PLAIN, *ports), isolate=True))
    assert not search.shape.trees.any()


def test_groups_in_one_subtree_that_may_not_share_are_not_tried_on_leaves() -> None:
    ports = tuple(port(f"_{i}", SRIOV_NET_VF=1) for i in range(8))
    query = Query(groups=(PLAIN, *ports), isolate=True, same_subtree=(frozenset(p.suffix for p in ports),))
    search = Search(build([each for n in range(100) for each in functions(f"host{n}", 64)]), query)
    assert search.candidates(10) == []
    assert (search.pauses, search.undecided) == (0, set())
    assert "100 without a combination" in Explainer(search).explain(1).summary


def agents(host: str, rates: dict[int, int]) -> list[Held]:
    """A host with an agent for each packet rate, each with so many bridges of one port's bandwidth."""
    records = [record(host, inventory={"VCPU": stock(8)})]
    for at, (rate, bridges) in enumerate(rates.items()):
        agent = f"{host}-{at}"
        records.append(record(agent, host, host, inventory={PACKETS: stock(rate)}))
        records += [
            record(f"{agent}-{i}", agent, host, inventory={BANDWIDTH: stock(10)}) for i in range(bridges)
        ]
    return records


def ports_with_rates(count: int) -> Query:
    """Ports (bug 1979072's shape: two groups each, in one subtree) of one packet rate and one bandwidth."""
    groups, pairs = [PLAIN], []
    for i in range(count):
        groups += [port(f"_bw{i}", **{BANDWIDTH: 10}), port(f"_pps{i}", **{PACKETS: 2})]
        pairs.append(frozenset({f"_bw{i}", f"_pps{i}"}))
    return Query(groups=tuple(groups), same_subtree=tuple(pairs))


def test_ports_of_two_groups_each_are_decided_on_every_host() -> None:
    # Where packets are, bandwidth is not: four ports fit, and no sum tells that six do not.
    records = [each for n in range(20) for each in agents(f"host{n}", {99: 3, 3: 8})]
    six, four = Search(build(records), ports_with_rates(6)), Search(build(records), ports_with_rates(4))
    assert six.candidates(10) == []
    assert not six.serving().any()
    assert six.undecided == set()
    assert len({c.root for c in four.candidates(20)}) == 20


def random_likes(rng: Random) -> list[Held]:
    """A tree in which many providers are alike."""
    records = [record("root", inventory={"VCPU": stock(4), "DISK_GB": stock(rng.choice([1, 3]))})]
    for middle in range(rng.randint(1, 2)):
        name = f"m{middle}"
        records.append(record(name, "root", "root", inventory={"CUSTOM_RATE": stock(rng.randint(1, 4))}))
        traits = [NET] if rng.random() < 0.5 else []
        records += [
            record(
                f"{name}{i}", name, "root", inventory={"DISK_GB": stock(rng.choice([2, 3]))}, traits=traits
            )
            for i in range(rng.randint(2, 3))
        ]
    return records


def random_ask(rng: Random) -> Query:
    """Groups of which several are alike, or differ in amounts alone."""
    ports = [
        port(
            f"_{i}",
            *([NET] if rng.random() < 0.2 else []),
            **{rng.choice(["DISK_GB", "DISK_GB", "DISK_GB", "CUSTOM_RATE"]): rng.randint(1, 3)},
        )
        for i in range(rng.randint(2, 4))
    ]
    names = [p.suffix for p in ports]
    demands = [frozenset(rng.sample(names, 2)) for _ in range(rng.choice([0, 0, 1, 2]))]
    plain = RequestGroup(resources={"VCPU": 1} | ({"DISK_GB": 1} if rng.random() < 0.3 else {}))
    return Query(groups=(plain, *ports), isolate=rng.random() < 0.3, same_subtree=tuple(demands))


@pytest.mark.parametrize("block", range(4))
def test_what_is_alike_is_tried_once_and_nothing_is_lost(block: int) -> None:
    found = 0
    for seed in range(250 * block, 250 * (block + 1)):
        rng = Random(seed)
        records, query = random_likes(rng), random_ask(rng)
        expected = Plain(records, query).search()
        search = Search(build(records), query)
        assert {key_of(candidate) for candidate in search.candidates(10**6)} == expected, seed
        assert search.undecided == set()
        found += bool(expected)
    assert 50 < found < 200, "both answers are among the cases"


def hard(hosts: int) -> tuple[list[Held], Query]:
    """Amounts that are even and places that are odd, all of them different: only trying all tells that they don't fit."""
    sizes = range(31, 31 + 2 * 9, 2)
    records = []
    for host in range(hosts):
        records.append(record(f"host{host}", inventory={"VCPU": stock(8)}))
        records += [
            record(f"host{host}-{size}", f"host{host}", f"host{host}", inventory={"DISK_GB": stock(size)})
            for size in sizes
        ]
    # Each place loses one: there is room for the sum of the places but nine.
    amounts = [*range(14, 38, 2), 44]
    assert sum(sizes) - len(sizes) < sum(amounts) <= sum(sizes)
    ports = (port(f"_{i:02}", DISK_GB=amount) for i, amount in enumerate(amounts))
    return records, Query(groups=(PLAIN, *ports))


def test_what_cannot_be_tried_in_time_is_told_as_that() -> None:
    records, query = hard(20)
    columns = build(records)
    search = Search(columns, query)
    assert search.candidates(10) == []
    assert search.pauses == candidates.MOST_PAUSES

    told = Explainer(Search(columns, query))
    found = told.explain(20)
    assert told.search.pauses <= candidates.MOST_PAUSES
    assert found.summary == "20 roots: 20 not decided, as there are too many combinations to try"
    assert {f.reason for root in found.roots for f in root.failures} == {"not_decided"}
    assert [(r.condition, r.roots) for r in found.reasons] == [("undecided", 20)]

    counted = capacity(Search(columns, query)).everywhere
    assert (counted.exact, counted.roots) == (False, 20)

    tried = Search(columns, query)
    assert [tried.first_in(tree) for tree in range(20)] == [None] * 20
    assert tried.pauses <= candidates.MOST_PAUSES
    assert tried.undecided == set(range(20))


@pytest.mark.parametrize("racks", [4, 1], ids=["racks", "one for all"])
def test_what_a_sharing_provider_has_left_counts_at_once_in_the_trees_that_it_serves_alone(
    racks: int,
) -> None:
    hosts = TOUCHED + 8 if racks == 1 else 8
    shares = [
        record(
            f"disk{rack}",
            inventory={"DISK_GB": stock(10)},
            traits=[SHARING_TRAIT],
            aggregates=[f"rack{rack}"],
        )
        for rack in range(racks)
    ]
    records = [
        record(f"host{n}", inventory={"VCPU": stock(4)}, aggregates=[f"rack{n % racks}"])
        for n in range(hosts)
    ]
    index = Index()
    index.load([*shares, *records])
    query = Query(groups=(RequestGroup(resources={"VCPU": 1, "DISK_GB": 4}),))

    def serving() -> set[str]:
        return {name for c in index.search(query).candidates(10**6) for name in c.allocations} - {
            f"disk{rack}" for rack in range(racks)
        }

    everybody = {f"host{n}" for n in range(hosts)}
    assert serving() == everybody
    firsts = index.search(query).shape.firsts
    before = dict(firsts)
    index.apply_used([UsedRow("disk0", "DISK_GB", 7, 2)])
    assert serving() == {f"host{n}" for n in range(hosts) if n % racks != 0}
    if racks > 1:
        others = [index.columns.tree_of_name[f"host{n}"] for n in range(hosts) if n % racks]
        kept = [firsts[tree] is before[tree] for tree in others]
        assert all(kept), "what was found elsewhere is not looked for again"
    index.apply_used([UsedRow("disk0", "DISK_GB", 6, 3)])
    assert serving() == everybody
