"""Random forests and queries, and a plain, obviously correct search to compare with."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import msgspec

from moorage.placement.names import SHARING_TRAIT
from moorage.placement.query import Candidate, Query, RequestGroup
from moorage.placement.reads import Held

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = ("agg1", "agg2", "agg3")


def record(uuid: str, parent: str | None = None, root: str | None = None, **kw: Any) -> Held:
    inventories = [[rc, *figures, 1] for rc, figures in kw.get("inventory", {}).items()]
    return Held(
        uuid, uuid, 0, parent, root or uuid, kw.get("traits", []), kw.get("aggregates", []), inventories
    )


def stock(total: int, used: int = 0, *, low: int = 1, high: int = 99, step: int = 1) -> list[Any]:
    return [total, 0, low, high, step, 1.0, used]


class Plain:
    """Enumerates every assignment of providers to (group, class) and keeps those that the rules allow."""

    def __init__(self, records: list[Held], query: Query) -> None:
        self.by_id = {r.id: r for r in records}
        self.query = query

    def root(self, uuid: str) -> str:
        parent = self.by_id[uuid].parent_id
        return uuid if parent is None else self.root(parent)

    def anchors(self, uuid: str) -> set[str]:
        found = {self.root(uuid)}
        me = self.by_id[uuid]
        if SHARING_TRAIT in (me.traits or []):
            for other in self.by_id.values():
                if set(other.aggregates or []) & set(me.aggregates or []):
                    found.add(self.root(other.id))
        return found

    def cell(self, uuid: str, rc: str) -> list[Any] | None:
        return next((c for c in self.by_id[uuid].inventories or [] if c[0] == rc), None)

    def fits(self, uuid: str, rc: str, amount: int) -> bool:
        cell = self.cell(uuid, rc)
        if cell is None:
            return False
        _, total, reserved, low, high, step, ratio, used, _ = cell
        return (
            used + amount <= int((total - reserved) * ratio) and low <= amount <= high and amount % step == 0
        )

    def conditions(self, group: RequestGroup, uuid: str) -> bool:
        me, top = self.by_id[uuid], self.by_id[self.root(uuid)]
        mine = set(me.aggregates or [])
        if not group.suffix:
            mine |= set(top.aggregates or [])
        if group.in_tree is not None and (
            group.in_tree not in self.by_id or self.root(group.in_tree) != top.id
        ):
            return False
        if any(not names & mine for names in group.member_of) or group.not_member_of & mine:
            return False
        traits = set(me.traits or [])
        if group.forbidden & traits:
            return False
        return not group.suffix or all(names & traits for names in group.required)

    def group_choices(self, group: RequestGroup, anchor: str) -> list[tuple[tuple[str, str, int], ...]]:
        near = [u for u in self.by_id if anchor in self.anchors(u) and self.conditions(group, u)]
        wants = list(group.resources.items())
        if not wants:
            return [((u, "", 0),) for u in near]
        if group.suffix:
            return [
                tuple((u, rc, n) for rc, n in wants)
                for u in near
                if all(self.fits(u, rc, n) for rc, n in wants)
            ]
        found = []
        for choice in itertools.product(near, repeat=len(wants)):
            if not all(self.fits(u, rc, n) for u, (rc, n) in zip(choice, wants, strict=True)):
                continue
            traits = {t for u in choice for t in self.by_id[u].traits or []}
            if all(names & traits for names in group.required):
                found.append(tuple((u, rc, n) for u, (rc, n) in zip(choice, wants, strict=True)))
        return found

    def ancestors(self, uuid: str) -> set[str]:
        parent = self.by_id[uuid].parent_id
        return {uuid} | (self.ancestors(parent) if parent else set())

    def allowed(self, choice: tuple[tuple[tuple[str, str, int], ...], ...]) -> bool:
        query = self.query
        if not all(self.has_room(uuid, rc, n) for (uuid, rc), n in self.sums(choice).items()):
            return False
        if not query.nested:
            together = {u for option in choice for u, _, _ in option}
            if len({self.root(u) for u in together}) < len(together):
                return False
        if query.isolate:
            single = [o[0][0] for g, o in zip(query.groups, choice, strict=True) if g.suffix]
            if len(set(single)) < len(single):
                return False
        used = {g.suffix: {u for u, _, _ in o} for g, o in zip(query.groups, choice, strict=True)}
        for suffixes in query.same_subtree:
            members = set().union(*(used[s] for s in suffixes))
            if not any(all(top in self.ancestors(u) for u in members) for top in members):
                return False
        return True

    def has_room(self, uuid: str, rc: str, amount: int) -> bool:
        cell = self.cell(uuid, rc)
        assert cell is not None
        return cell[7] + amount <= int((cell[1] - cell[2]) * cell[6]) and amount <= cell[4]

    def sums(self, choice: Any) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for uuid, rc, n in itertools.chain(*choice):
            if n:
                found[uuid, rc] = found.get((uuid, rc), 0) + n
        return found

    def search(self) -> set[Any]:
        found = set()
        for anchor in (r.id for r in self.by_id.values() if r.parent_id is None):
            traits = set(self.by_id[anchor].traits or [])
            if not self.query.root_required <= traits or self.query.root_forbidden & traits:
                continue
            for choice in itertools.product(*(self.group_choices(g, anchor) for g in self.query.groups)):
                if self.allowed(choice):
                    found.add(self.key(choice))
        return found

    def key(self, choice: Any) -> Any:
        sums = self.sums(choice)
        served = frozenset(
            (g.suffix, frozenset(u for u, _, _ in o)) for g, o in zip(self.query.groups, choice, strict=True)
        )
        return frozenset((u, rc, n) for (u, rc), n in sums.items()), served


def key_of(candidate: Candidate) -> Any:
    """What makes two candidates the same: resources and mappings, in no order."""
    given = candidate.allocations.items()
    return (
        frozenset((p, rc, n) for p, amounts in given for rc, n in amounts.items()),
        frozenset((s, frozenset(ps)) for s, ps in candidate.mappings.items()),
    )


# --- the generators: each case is a seed --------------------------------------------------------------------------


def some(rng: Random, values: tuple[str, ...], least: int, most: int) -> list[str]:
    return sorted(rng.sample(values, min(len(values), rng.randint(least, most))))


def random_provider(rng: Random, uuid: str, parent: str | None, root: str) -> Held:
    inventory = {
        rc: stock(
            rng.randint(2, 8),
            rng.choice([0, 0, 0, 1, 3]),
            low=rng.choice([1, 1, 1, 1, 2]),
            high=rng.choice([2, 4, 99, 99]),
            step=rng.choice([1, 1, 1, 1, 2]),
        )
        for rc in some(rng, CLASSES, 0, 3)
    }
    traits = some(rng, TRAITS, 0, 2) + ([SHARING_TRAIT] if rng.random() < 0.12 else [])
    return record(
        uuid, parent, root, inventory=inventory, traits=traits, aggregates=some(rng, AGGREGATES, 0, 2)
    )


def random_forest(rng: Random) -> list[Held]:
    """Some trees of up to six providers; smaller ones where there are several, for the plain search's sake."""
    records: list[Held] = []
    count = rng.choice([1, 2, 3])
    for tree in range(count):
        members: list[str] = []
        for number in range(rng.randint(1, 6 if count == 1 else 4 if count == 2 else 3)):
            uuid = f"t{tree}p{number}"
            parent = rng.choice(members) if members else None
            records.append(random_provider(rng, uuid, parent, members[0] if members else uuid))
            members.append(uuid)
    return records


def random_group(rng: Random, suffix: str) -> RequestGroup:
    def maybe(made: Any, otherwise: Any) -> Any:
        return made if rng.random() < 0.15 else otherwise

    def names(values: tuple[str, ...]) -> frozenset[str]:
        return frozenset(some(rng, values, 1, 2))

    least = 0 if suffix and rng.random() < 0.2 else 1
    return RequestGroup(
        suffix=suffix,
        resources={rc: rng.choice([1, 1, 2, 2, 3]) for rc in some(rng, CLASSES, least, 2 if least else 0)},
        required=maybe(tuple(names(TRAITS) for _ in range(rng.randint(1, 2))), ()),
        forbidden=maybe(frozenset(some(rng, TRAITS, 1, 1)), frozenset()),
        member_of=maybe(tuple(names(AGGREGATES) for _ in range(rng.randint(1, 2))), ()),
        not_member_of=maybe(frozenset(some(rng, AGGREGATES, 1, 1)), frozenset()),
        in_tree=rng.choice(["t0p0", "t0p1", "t1p0", "nowhere"]) if rng.random() < 0.05 else None,
    )


def random_query(rng: Random) -> Query:
    suffixes = some(rng, ("_1", "_2", "_3"), 0, 3)
    groups = [random_group(rng, suffix) for suffix in suffixes]
    if groups and rng.random() < 0.5:
        # Ports are often alike.
        groups = [msgspec.structs.replace(groups[0], suffix=suffix) for suffix in suffixes]
    if not groups or rng.random() < 0.6:
        groups.insert(0, random_group(rng, ""))
    subtrees = [
        frozenset(some(rng, tuple(suffixes), 1, 3)) for _ in range(rng.choice([0, 0, 1, 2])) if suffixes
    ]
    root = frozenset(some(rng, TRAITS, 1, 1)) if rng.random() < 0.15 else frozenset()
    return Query(
        groups=tuple(groups),
        isolate=rng.random() < 0.3,
        same_subtree=tuple(subtrees),
        root_required=root,
        root_forbidden=frozenset({"CUSTOM_C"} if rng.random() < 0.15 else ()) - root,
        nested=rng.random() < 0.85,
    )
