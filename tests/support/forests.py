"""Random forests and queries, and a plain, obviously correct search to compare with."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import msgspec

from moorage.placement.names import SHARING_TRAIT
from moorage.placement.query import Candidate, Query, RequestGroup
from moorage.placement.reads import Held

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = tuple(f"a0000000-0000-4000-8000-{number:012}" for number in range(3))
MOST_CHOICES = 3_000
"""What the plain search goes through in a moment: a query with more is drawn again, with fewer groups."""


def uuid_of(tree: int, number: int) -> str:
    return f"{tree:08}-0000-4000-8000-{number:012}"


def record(uuid: str, parent: str | None = None, root: str | None = None, **kw: Any) -> Held:
    inventories = [[rc, *figures, 1] for rc, figures in kw.get("inventory", {}).items()]
    return Held(
        uuid, uuid, 0, parent, root or uuid, kw.get("traits", []), kw.get("aggregates", []), inventories
    )


def stock(
    total: int,
    used: int = 0,
    *,
    reserved: int = 0,
    low: int = 1,
    high: int = 99,
    step: int = 1,
    ratio: float = 1.0,
) -> list[Any]:
    return [total, reserved, low, high, step, ratio, used]


class Plain:
    """Enumerates every assignment of providers to (group, class) and keeps those that the rules allow."""

    def __init__(self, records: list[Held], query: Query) -> None:
        self.by_id = {r.id: r for r in records}
        self.query = query
        self.anchors_of = {uuid: self.anchors(uuid) for uuid in self.by_id}

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
        near = [u for u in self.by_id if anchor in self.anchors_of[u] and self.conditions(group, u)]
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

    def roots(self) -> list[str]:
        """The roots that may be the one of a candidate."""
        tops = ((r.id, set(r.traits or [])) for r in self.by_id.values() if r.parent_id is None)
        wanted, unwanted = self.query.root_required, self.query.root_forbidden
        return [uuid for uuid, traits in tops if wanted <= traits and not unwanted & traits]

    def choices(self) -> int:
        """How many combinations `search` goes through."""
        return sum(
            math.prod(len(self.group_choices(group, root)) for group in self.query.groups)
            for root in self.roots()
        )

    def search(self) -> set[Any]:
        found = set()
        for anchor in self.roots():
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


def random_stock(rng: Random, least: int) -> list[Any]:
    return stock(
        rng.randint(least, 8),
        rng.choice([0, 0, 0, 1, 3]),
        reserved=rng.choice([0, 0, 0, 1, 2]),
        low=rng.choice([1, 1, 1, 1, 2]),
        high=rng.choice([2, 4, 99, 99]),
        step=rng.choice([1, 1, 1, 1, 2]),
        ratio=rng.choice([1.0, 1.0, 1.0, 1.5, 0.7, 2.5]),
    )


def random_provider(rng: Random, uuid: str, parent: str | None, root: str, *, plenty: bool = False) -> Held:
    classes = some(rng, CLASSES, 2 if plenty else 0, 3)
    inventory = {rc: random_stock(rng, 5 if plenty else 2) for rc in classes}
    traits = some(rng, TRAITS, 0, 2) + ([SHARING_TRAIT] if rng.random() < 0.2 else [])
    return record(
        uuid, parent, root, inventory=inventory, traits=traits, aggregates=some(rng, AGGREGATES, 0, 2)
    )


def random_forest(rng: Random) -> list[Held]:
    """Up to three trees of up to six providers, some of which share what they have with other trees."""
    records: list[Held] = []
    plenty = rng.random() < 0.4
    for tree in range(rng.choice([1, 2, 3])):
        members: list[str] = []
        for number in range(rng.randint(1, 6)):
            uuid = uuid_of(tree, number)
            parent = rng.choice(members) if members else None
            root = members[0] if members else uuid
            records.append(random_provider(rng, uuid, parent, root, plenty=plenty))
            members.append(uuid)
    return records


def random_group(rng: Random, suffix: str, *, simple: bool = False, bare: bool = False) -> RequestGroup:
    """A group; `simple` is one that the API had before 1.29, `bare` one of conditions alone."""

    def maybe(made: Any, otherwise: Any) -> Any:
        return made if rng.random() < 0.1 else otherwise

    def names(values: tuple[str, ...], most: int = 2) -> frozenset[str]:
        return frozenset(some(rng, values, 1, most))

    required = tuple(names(TRAITS, 1 if simple else 2) for _ in range(rng.randint(1, 2)))
    required = required if bare else maybe(required, ())
    alone = frozenset().union(*(traits for traits in required if len(traits) == 1))
    return RequestGroup(
        suffix=suffix,
        resources={} if bare else {rc: rng.choice([1, 1, 1, 2, 3]) for rc in some(rng, CLASSES, 1, 2)},
        required=required,
        forbidden=maybe(names(TRAITS, 1), frozenset()) - alone,
        member_of=maybe(tuple(names(AGGREGATES) for _ in range(rng.randint(1, 2))), ()),
        not_member_of=frozenset() if simple else maybe(names(AGGREGATES), frozenset()),
        in_tree=uuid_of(rng.randint(0, 3), rng.randint(0, 2)) if not simple and rng.random() < 0.05 else None,
    )


def random_query(rng: Random, most: int = 4) -> Query:
    """A query that a client may send, of at most so many groups."""
    if rng.random() < 0.15:
        return Query(
            groups=random_groups(rng, ("1", "2", "33"), most, simple=True),
            isolate=rng.random() < 0.3,
            nested=False,
        )
    groups = random_groups(rng, ("-PORT", "2", "_1"), most)
    suffixes = tuple(group.suffix for group in groups if group.suffix)
    subtrees = [frozenset(some(rng, suffixes, 1, 3)) for _ in range(rng.choice([0, 0, 1, 2])) if suffixes]
    # Groups without resources only say what is near those that have some.
    groups = tuple(
        random_group(rng, group.suffix, bare=True)
        if group.suffix in frozenset().union(*subtrees) and rng.random() < 0.3
        else group
        for group in groups
    )
    if not any(group.resources for group in groups):
        groups = (msgspec.structs.replace(groups[0], resources={CLASSES[0]: 1}), *groups[1:])
    root = frozenset(some(rng, TRAITS, 1, 1)) if rng.random() < 0.15 else frozenset()
    return Query(
        groups=groups,
        isolate=rng.random() < 0.3,
        same_subtree=tuple(subtrees),
        root_required=root,
        root_forbidden=frozenset({"CUSTOM_C"} if rng.random() < 0.15 else ()) - root,
    )


def random_groups(
    rng: Random, suffixes: tuple[str, ...], most: int, *, simple: bool = False
) -> tuple[RequestGroup, ...]:
    chosen = some(rng, suffixes, 0, min(3, most))
    groups = [random_group(rng, suffix, simple=simple) for suffix in chosen]
    if groups and rng.random() < 0.5:
        # Ports are often alike.
        groups = [msgspec.structs.replace(groups[0], suffix=suffix) for suffix in chosen]
    if not groups or (len(groups) < most and rng.random() < 0.6):
        groups.insert(0, random_group(rng, "", simple=simple))
    return tuple(groups)


def random_case(rng: Random) -> tuple[list[Held], Query]:
    """A forest and a query that the plain search can answer: of fewer groups, where there would be too much to try."""
    records = random_forest(rng)
    for most in (4, 3, 2):
        query = random_query(rng, most)
        if Plain(records, query).choices() <= MOST_CHOICES:
            return records, query
    return records, random_query(rng, 1)
