"""The search in columns against a plain, obviously correct one, on random forests and queries."""

from __future__ import annotations

import functools
from random import Random
from typing import Any

import msgspec
import pytest

from moorage.placement import forest
from moorage.placement.candidates import Search
from moorage.placement.columns import Columns
from moorage.placement.forest import build
from moorage.placement.index import Index
from moorage.placement.matching import conditions
from moorage.placement.model import UsedRow
from moorage.placement.query import Query, RequestGroup
from moorage.placement.reads import Held
from support.forests import Plain, key_of, random_case, random_provider, record, stock, uuid_of
from support.queries import through_http

ALL = 10**6
FUNCTION = "SRIOV_NET_VF"


def keys(search: Search, limit: int = ALL, *, breadth_first: bool = True) -> set[Any]:
    found = [key_of(candidate) for candidate in search.candidates(limit, breadth_first=breadth_first)]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("block", range(8))
def test_columns_find_what_a_plain_search_finds(block: int) -> None:
    across = 0
    for seed in range(400 * block, 400 * (block + 1)):
        rng = Random(seed)
        records, query = random_case(rng)
        plain = Plain(records, through_http(rng, query, rng.choice([None, 1, 1000])))
        found = check(records, plain)
        across += len(records) > 11 and any(spread(plain, allocations) for allocations, _ in found)
    # The cases are worth trying: among them are candidates over several large trees.
    assert across > 5


def spread(plain: Plain, allocations: Any) -> bool:
    return len({plain.root(provider) for provider, _, _ in allocations}) > 1


def check(records: list[Held], plain: Plain) -> set[Any]:
    query, expected = plain.query, plain.search()
    columns = build(records)
    assert keys(Search(columns, query)) == expected
    assert keys(Search(columns, query), breadth_first=False) == expected
    for limit in (1, 3):
        few = keys(Search(columns, query), limit)
        assert few <= expected
        assert len(few) == min(limit, len(expected))
    return expected


class World:
    """A forest that changes, in the index and as plain records."""

    def __init__(self, records: list[Held]) -> None:
        self.records = {r.id: r for r in records}
        self.index = Index()
        self.version = 1
        self.index.apply_providers((), [self.copy(uuid) for uuid in self.records])

    def root(self, uuid: str) -> str:
        parent = self.records[uuid].parent_id
        return uuid if parent is None else self.root(parent)

    def below(self, uuid: str) -> set[str]:
        children = [r.id for r in self.records.values() if r.parent_id == uuid]
        return {uuid}.union(*(self.below(child) for child in children))

    def use(self, uuid: str, used: int) -> None:
        self.version += 1
        rows = [UsedRow(uuid, cell[0], used, self.version) for cell in self.records[uuid].inventories or []]
        for cell in self.records[uuid].inventories or []:
            cell[7], cell[8] = used, self.version
        self.index.apply_used(rows)

    def put(self, new: Held) -> None:
        self.version += 1
        cells = [[*cell[:8], self.version] for cell in new.inventories or []]
        self.records[new.id] = Held(
            new.id, new.name, 0, new.parent_id, new.root_id, new.traits, new.aggregates, cells
        )
        self.index.apply_providers([new.id], [self.copy(new.id)])

    def copy(self, uuid: str) -> Held:
        r = self.records[uuid]
        cells = [list(cell) for cell in r.inventories or []]
        return Held(r.id, r.name, 0, r.parent_id, self.root(uuid), r.traits, r.aggregates, cells)

    def remove(self, uuid: str) -> None:
        for gone in self.below(uuid):
            del self.records[gone]
            self.index.apply_providers([gone], [])

    def change(self, rng: Random) -> None:
        uuid = rng.choice(sorted(self.records))
        act = rng.choice(["use", "use", "put", "add", "move", "remove"])
        if act == "use":
            self.use(uuid, rng.randint(0, 4))
        elif act == "put":
            self.put(random_provider(rng, uuid, self.records[uuid].parent_id, self.root(uuid)))
        elif act == "add" and len(self.records) < 18:
            fresh = uuid_of(9, self.version)
            self.put(random_provider(rng, fresh, rng.choice([None, uuid, uuid]), fresh))
        elif act == "move":
            others = sorted(set(self.records) - self.below(uuid))
            self.put(msgspec.structs.replace(self.records[uuid], parent_id=rng.choice([None, *others])))
        elif act == "remove" and self.below(uuid) != set(self.records):
            self.remove(uuid)

    def plain(self, query: Query) -> set[Any]:
        return Plain(list(self.records.values()), query).search()


@pytest.mark.parametrize("block", range(4))
def test_after_any_changes_repeated_requests_find_what_a_plain_search_finds(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows move together as soon as half of them are dead.
    monkeypatch.setattr(forest, "MANY", 4)
    for seed in range(100 * block, 100 * (block + 1)):
        rng = Random(seed)
        records, query = random_case(rng)
        world = World(records)
        expected = world.plain(query)
        for _ in range(6):
            assert keys(world.index.search(query), 3) <= expected
            world.change(rng)
            expected = world.plain(query)
            assert keys(world.index.search(query)) == expected
            # Nothing is remembered here: columns that changed in place are those of the forest as it is.
            assert keys(Search(world.index.columns, query)) == expected


@pytest.mark.parametrize("seed", range(100))
def test_the_order_in_which_providers_are_read_does_not_matter(seed: int) -> None:
    rng = Random(seed)
    records, query = random_case(rng)
    index = Index()
    for one in rng.sample(records, len(records)):
        index.apply_providers([one.id], [one])
    assert keys(index.search(query)) == Plain(records, query).search()


@pytest.mark.parametrize("seed", range(100))
def test_each_condition_by_itself_holds_where_there_are_candidates(seed: int) -> None:
    rng = Random(seed)
    records, query = random_case(rng)
    columns = build(records)
    roots = {candidate.root for candidate in Search(columns, query).candidates(ALL)}
    trees = {int(columns.tree[columns.row_of[root]]) for root in roots}
    for condition in conditions(columns, query):
        if condition.kind == "required" and not condition.suffix:
            continue  # met by the group's providers together
        if condition.kind in {"member_of", "not_member_of"} and not condition.suffix:
            continue  # the root's membership counts for its tree
        assert trees <= {at for at, met in enumerate(condition.trees.tolist()) if met}, condition


def test_a_limit_is_spread_over_hosts() -> None:
    records = []
    for number in range(4):
        root = f"host{number}"
        records.append(record(root, inventory={"VCPU": stock(4)}))
        records += [record(f"{root}-pf{i}", root, root, inventory={"DISK_GB": stock(4)}) for i in range(3)]
    query = Query(groups=(RequestGroup(resources={"VCPU": 1, "DISK_GB": 1}),))
    columns = build(records)
    roots = [c.root for c in Search(columns, query).candidates(6)]
    assert roots == ["host0", "host1", "host2", "host3", "host0", "host1"]


def test_two_port_groups_share_a_bridge_unless_isolated() -> None:
    records = [
        record("root", inventory={"VCPU": stock(8)}),
        record("agent", "root", "root"),
        record("br0", "agent", "root", inventory={"NET_BW_EGR_KILOBIT_PER_SEC": [3000, 0, 1, 9999, 1, 1.0, 0]},
               traits=["CUSTOM_PHYSNET_PHYSNET0"]),
        record("br1", "agent", "root", inventory={"NET_BW_EGR_KILOBIT_PER_SEC": [3000, 0, 1, 9999, 1, 1.0, 0]},
               traits=["CUSTOM_PHYSNET_PHYSNET1"]),
    ]  # fmt: skip
    ports = tuple(
        RequestGroup(
            suffix=s,
            resources={"NET_BW_EGR_KILOBIT_PER_SEC": 1000},
            required=(frozenset({"CUSTOM_PHYSNET_PHYSNET0"}),),
        )
        for s in ("_p1", "_p2")
    )
    columns = build(records)
    together = Query(groups=(RequestGroup(resources={"VCPU": 1}), *ports))
    (only,) = Search(columns, together).candidates(100)
    assert only.allocations == {"root": {"VCPU": 1}, "br0": {"NET_BW_EGR_KILOBIT_PER_SEC": 2000}}
    assert only.mappings == {"": ["root"], "_p1": ["br0"], "_p2": ["br0"]}
    apart = Query(groups=together.groups, isolate=True)
    assert Search(columns, apart).candidates(100) == []


@pytest.mark.parametrize("used", [0, 1])
def test_what_is_used_already_counts_when_groups_meet_on_one_provider(used: int) -> None:
    # Upstream's pruned search forgets it here and offers candidates that cannot be claimed.
    records = [
        record("root", inventory={"VCPU": stock(4)}),
        record("pf", "root", "root", inventory={FUNCTION: stock(2, used)}),
    ]
    ports = tuple(RequestGroup(suffix=s, resources={FUNCTION: 1}) for s in ("_1", "_2"))
    columns = build(records)
    found = Search(columns, Query(groups=(RequestGroup(resources={"VCPU": 1}), *ports))).candidates(100)
    assert len(found) == (0 if used else 1)


@functools.cache
def functions(hosts: int, free: int, left: int, of: int) -> Columns:
    """Hosts of 64 physical functions with `of` virtual ones each; `free` have so many left, the others none."""
    records = []
    for number in range(hosts):
        root = f"host{number}"
        records.append(record(root, inventory={"VCPU": stock(8)}))
        records += [
            record(
                f"{root}-pf{i}", root, root, inventory={FUNCTION: stock(of, of - left if i < free else of)}
            )
            for i in range(64)
        ]
    return build(records)


def eight(isolate: bool) -> Query:
    ports = (RequestGroup(suffix=f"_{i}", resources={FUNCTION: 1}) for i in range(8))
    return Query(groups=(RequestGroup(resources={"VCPU": 1}), *ports), isolate=isolate)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(
    ("hosts", "free", "left", "of"),
    [(100, 64, 1, 1), (100, 9, 1, 1), (100, 8, 1, 1), (1000, 64, 8, 8), (1000, 8, 8, 8)],
)
def test_eight_groups_over_64_functions_never_explode(
    hosts: int, free: int, left: int, of: int, isolate: bool
) -> None:
    # Bugs 2126751 and 2070257: all products of 8 groups over 64 functions can never be listed.
    search = Search(functions(hosts, free, left, of), eight(isolate))
    found = search.candidates(hosts)
    assert len({c.root for c in found}) == hosts
    for candidate in found:
        taken = [amounts[FUNCTION] for amounts in candidate.allocations.values() if FUNCTION in amounts]
        assert sum(taken) == 8
        assert max(taken) == 1 or (left > 1 and not isolate)
    assert search.pauses == 0


@pytest.mark.parametrize(
    ("hosts", "free", "left", "of", "isolate"),
    [(100, 7, 1, 1, False), (100, 7, 1, 1, True), (100, 1, 7, 8, False), (1000, 7, 8, 8, True)],
)
def test_eight_groups_that_find_seven_places_cost_no_walk(
    hosts: int, free: int, left: int, of: int, isolate: bool
) -> None:
    search = Search(functions(hosts, free, left, of), eight(isolate))
    assert not search.shape.trees.any()
    assert search.candidates(hosts) == []
    assert search.pauses == 0


def test_groups_that_differ_and_do_not_fit_together_are_given_up_fairly() -> None:
    # Amounts that no packing of the functions takes, which no sum tells; the last host has one place more.
    records = []
    for number in range(6):
        root = f"host{number}"
        records.append(record(root, inventory={"VCPU": stock(8)}))
        sizes = [10] * 8 + ([10] if number == 5 else [])
        records += [
            record(f"{root}-pf{i}", root, root, inventory={"DISK_GB": stock(size)})
            for i, size in enumerate(sizes)
        ]
    amounts = [6, 6, 6, 6, 6, 6, 6, 6, 7]
    ports = tuple(RequestGroup(suffix=f"_{i}", resources={"DISK_GB": n}) for i, n in enumerate(amounts))
    search = Search(build(records), Query(groups=(RequestGroup(resources={"VCPU": 1}), *ports)))
    (only,) = search.candidates(1)
    assert only.root == "host5"
    assert all(n <= 10 for amounts in only.allocations.values() for n in amounts.values())


def test_depth_first_gives_all_of_a_host_before_the_next() -> None:
    records = []
    for number in range(3):
        root = f"host{number}"
        records.append(record(root, inventory={"VCPU": stock(4)}))
        records += [record(f"{root}-pf{i}", root, root, inventory={"DISK_GB": stock(4)}) for i in range(3)]
    query = Query(groups=(RequestGroup(resources={"VCPU": 1, "DISK_GB": 1}),))
    search = Search(build(records), query)
    assert [c.root for c in search.candidates(4, breadth_first=False)] == ["host0"] * 3 + ["host1"]


def test_names_that_come_and_go_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "MANY", 20)
    index = Index()
    query = Query(groups=(RequestGroup(resources={"VCPU": 1}, required=(frozenset({"CUSTOM_LAST"}),)),))
    for number in range(200):
        trait = "CUSTOM_LAST" if number == 199 else f"CUSTOM_{number}"
        index.apply_providers(["host"], [record("host", inventory={"VCPU": stock(4)}, traits=[trait])])
        assert len(keys(index.search(query))) == (number == 199)
    assert len(index.columns.traits) < 30
