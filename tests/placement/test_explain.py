"""Explanations and capacity, compared with a plain search: what is refused is refused for the reason given."""

import functools
import itertools
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from moorage.placement import forest
from moorage.placement.candidates import Search
from moorage.placement.capacity import capacity
from moorage.placement.columns import Columns
from moorage.placement.explain import COMBINATION, Explainer, GroupFailures
from moorage.placement.names import SHARING_TRAIT
from moorage.placement.query import Query, RequestGroup
from moorage.placement.reads import Held
from tests.support.forests import Plain, random_case, random_forest, random_group, record, stock


def columns_of(records: list[Held]) -> Columns:
    columns = Columns()
    forest.apply(columns, set(), records, {})
    return columns


def search(records: list[Held], query: Query) -> Search:
    return Search(columns_of(records), query)


def one(**resources: int) -> Query:
    return Query(groups=(RequestGroup(resources=resources),))


def test_a_shortage_says_what_is_needed_and_the_best_there_is() -> None:
    records = [
        record("a", inventory={"VCPU": stock(8, 6), "DISK_GB": stock(50)}),
        record("a1", "a", "a", inventory={"VCPU": stock(8, 5)}),
        record("b", inventory={"VCPU": stock(8)}),
        record("c", inventory={"VCPU": stock(8), "DISK_GB": stock(50)}),
    ]
    found = Explainer(search(records, one(VCPU=4, DISK_GB=10))).explain(limit=10)
    assert (found.considered, found.serving) == (3, 1)
    assert found.summary == "3 roots: 1 suitable, 1 short of CPUs by 1, 1 short of disk"
    told = {
        root.name: [(f.subject, f.reason, f.needed, f.available) for f in root.failures]
        for root in found.roots
    }
    assert told == {"a": [("VCPU", "short", 4, 3)], "b": [("DISK_GB", "absent", 10, 0)]}
    assert {(r.subject, r.roots, r.short_by) for r in found.reasons} == {("VCPU", 1, 1), ("DISK_GB", 1, None)}


def test_a_root_that_is_named_is_explained_however_many_others_fail() -> None:
    records = [record(f"h{n}", inventory={"VCPU": stock(8, 8)}) for n in range(20)]
    asked = Query(groups=(RequestGroup(resources={"VCPU": 2}, in_tree="h17"),))
    (root,) = Explainer(search(records, asked)).explain(limit=1).roots
    assert (root.name, [(f.subject, f.reason, f.needed, f.available) for f in root.failures]) == (
        "h17",
        [("VCPU", "short", 2, 0)],
    )


@pytest.mark.parametrize(
    ("figures", "reason", "available"),
    [
        (stock(64, high=2), "above_max_unit", 2),
        (stock(64, low=8), "below_min_unit", 8),
        (stock(64, step=3), "off_step", 3),
        (stock(64, 62), "short", 2),
        (stock(64, 70), "short", 0),
    ],
)
def test_a_unit_in_the_way_is_named(figures: list[Any], reason: str, available: int) -> None:
    found = Explainer(search([record("a", inventory={"VCPU": figures})], one(VCPU=4))).explain(limit=1)
    (failure,) = found.roots[0].failures
    assert (failure.reason, failure.available) == (reason, available)


def test_traits_aggregates_and_one_provider_of_all_are_told_apart() -> None:
    records = [
        record("a", traits=["CUSTOM_A"], inventory={"VCPU": stock(8)}),
        record("b", inventory={"VCPU": stock(8)}, aggregates=["agg1"]),
        record("c", traits=["CUSTOM_A"], aggregates=["agg1"]),
        record("c1", "c", "c", inventory={"VCPU": stock(8)}, aggregates=["agg1"]),
    ]
    group = RequestGroup(
        suffix="_p",
        resources={"VCPU": 1},
        required=(frozenset({"CUSTOM_A"}),),
        member_of=(frozenset({"agg1"}),),
    )
    found = Explainer(search(records, Query(groups=(group,)))).explain(limit=10)
    told = {root.name: [(f.condition, f.reason) for f in root.failures] for root in found.roots}
    assert told == {
        "a": [("member_of", "not_in_aggregate")],
        "b": [("required", "missing_trait")],
        "c": [("provider", "no_single_provider")],
    }


def test_groups_that_do_not_fit_together_lack_a_combination() -> None:
    groups = tuple(RequestGroup(suffix=f"_{n}", resources={"VCPU": 3}) for n in range(3))
    found = Explainer(search([record("a", inventory={"VCPU": stock(8)})], Query(groups=groups))).explain(
        limit=1
    )
    assert [f.condition for f in found.roots[0].failures] == [COMBINATION]
    assert found.summary == "1 root: 1 without a combination of providers for all"


def test_the_limit_cuts_the_roots_and_not_the_figures() -> None:
    records = [record(f"h{n}", inventory={"VCPU": stock(2)}) for n in range(30)]
    found = Explainer(search(records, one(VCPU=4))).explain(limit=7)
    assert len(found.roots) == 7
    assert found.reasons[0].roots == found.considered == 30


@pytest.mark.parametrize("seed", range(250))
def test_a_root_is_explained_exactly_when_a_plain_search_finds_nothing_in_it(seed: int) -> None:
    rng = Random(seed)
    records, query = random_case(rng)
    plain = Plain(records, query)
    roots = {r.id for r in records if r.parent_id is None}
    serving = {
        anchor
        for anchor in roots
        if any(anchor in _anchors(plain, choice) for choice in _choices(plain, anchor))
    }
    found = Explainer(search(records, query)).explain(limit=100)
    assert {root.uuid for root in found.roots} == roots - serving
    assert found.serving == len(serving)
    for root in found.roots:
        assert root.failures
        for failure in root.failures:
            if failure.condition == "resources":
                assert failure.needed is not None
                group = next(g for g in query.groups if g.suffix == failure.group)
                near = [u for u in plain.by_id if root.uuid in plain.anchors(u)]
                assert not any(plain.fits(u, failure.subject, group.resources[failure.subject]) for u in near)


@pytest.mark.parametrize("seed", range(100))
def test_what_many_trees_lack_for_a_group_is_what_each_of_them_lacks(seed: int) -> None:
    rng = Random(seed)
    columns = columns_of(random_forest(rng))
    group = random_group(rng, "_1", bare=rng.random() < 0.2)
    explainer = Explainer(Search(columns, Query(groups=(group,))))
    failing = np.flatnonzero(columns.living_trees & ~explainer.search.serving())
    each = [explainer.failures(int(tree))[0] for tree in failing]
    many = list(GroupFailures(columns, group).first(failing)) if len(failing) else []
    kinds = [(failure.condition, failure.subject, failure.reason) for failure in each]
    assert {(f.condition, f.subject, f.reason): count for f, count in many} == Counter(kinds)
    for failure, _ in many:
        assert failure in each
        if failure.reason == "short":
            alike = [f for f, kind in zip(each, kinds, strict=True) if kind[1:] == (failure.subject, "short")]
            assert failure.available == max(f.available or 0 for f in alike)


def _choices(plain: Plain, anchor: str) -> list[Any]:
    traits = set(plain.by_id[anchor].traits or [])
    query = plain.query
    if not query.root_required <= traits or query.root_forbidden & traits:
        return []
    product = itertools.product(*(plain.group_choices(group, anchor) for group in query.groups))
    return [choice for choice in product if plain.allowed(choice)]


def _anchors(plain: Plain, choice: Any) -> set[str]:
    return functools.reduce(set.intersection, (plain.anchors(u) for option in choice for u, _, _ in option))


def most(plain: Plain, anchor: str) -> int:
    """By trying everything: how many shapes fit in one tree that shares with no other."""
    uses = [tuple(sorted(plain.sums(choice).items())) for choice in _choices(plain, anchor)]
    room = {
        (u, cell[0]): int((cell[1] - cell[2]) * cell[6]) - cell[7]
        for u, held in plain.by_id.items()
        for cell in held.inventories or []
    }

    @functools.cache
    def best(free: tuple[tuple[tuple[str, str], int], ...]) -> int:
        left = dict(free)
        found = 0
        for use in set(uses):
            after = {**left}
            for key, amount in use:
                after[key] -= amount
            if all(after[key] >= 0 for key, _ in use):
                found = max(found, 1 + best(tuple(sorted(after.items()))))
        return found

    return best(tuple(sorted(room.items())))


@pytest.mark.parametrize("seed", range(150))
def test_capacity_is_what_fits_when_everything_is_tried(seed: int) -> None:
    rng = Random(1000 + seed)
    records, query = random_case(rng)
    if len(records) > 4 or len(query.groups) > 2:
        records, query = records[:4], Query(groups=query.groups[:2], isolate=query.isolate)
    if not any(group.resources for group in query.groups):
        query = one(VCPU=1)
    # What is shared is counted once for each tree that it serves: an upper bound, not to be compared.
    records = [
        record(r.id, r.parent_id, r.root_id, traits=[t for t in r.traits or [] if t != SHARING_TRAIT],
               aggregates=r.aggregates, inventory={c[0]: c[1:8] for c in r.inventories or []})
        for r in records
    ]  # fmt: skip
    plain = Plain(records, query)
    expected = sum(most(plain, r.id) for r in records if r.parent_id is None)
    found = capacity(search(records, query)).everywhere
    if found.exact:
        assert found.total == expected
    else:
        assert found.total >= expected


def test_most_shapes_of_ports_are_counted_exactly() -> None:
    def host(name: str) -> list[Held]:
        return [
            record(name, inventory={"VCPU": stock(16), "MEMORY_MB": stock(64)}, aggregates=["rack1"]),
            record(f"{name}:pf0", name, name, inventory={"SRIOV_NET_VF": stock(5)}),
            record(f"{name}:pf1", name, name, inventory={"SRIOV_NET_VF": stock(2)}),
        ]

    ports = tuple(RequestGroup(suffix=f"_{n}", resources={"SRIOV_NET_VF": 1}) for n in range(2))
    plain = RequestGroup(resources={"VCPU": 1, "MEMORY_MB": 4})
    records = [*host("a"), *host("b")]
    for isolate, each in ((True, 2), (False, 3)):
        found = capacity(search(records, Query(groups=(plain, *ports), isolate=isolate)))
        assert (found.everywhere.total, found.everywhere.exact, found.everywhere.roots) == (2 * each, True, 2)
        assert found.aggregates["rack1"].total == 2 * each
