"""Every operation on servers, with a fault at every step and point: the world after it is as if nothing had happened,
or as if nothing had gone wrong.

The scenarios come from the definitions (``support/points.py``): an operation that is added is in here with no further
work, as soon as ``BEGIN`` says how a user starts it. All scenarios of a test run side by side in one cloud with two
conductors (``rig.py``), each on a server of its own.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
import pytest

from moorage.compute.operations import DEFINITIONS, DELETE
from moorage.core.errors import Conflict
from moorage.operations import Definition, Step
from moorage.operations.definition import StepDefinition
from moorage.operations.faults import Crash
from moorage.operations.model import UNDO
from moorage.store.database import Database
from tests.cloud.rig import AT_ONCE, KINDS, NOTHING, Fault, Reply, Rig, Still, Stolen, rigged
from tests.support.identity import Identity
from tests.support.points import Point, points

STEPS = [(d.kind, s) for d in DEFINITIONS for s in d.steps]
REMOTE = [(kind, s) for kind, s in STEPS if s.kind == "remote"]
# What another host may do instead, and what there is an undo of.
ELSEWHERE = {kind for kind, s in STEPS if s.on_refusal is not None}
UNDONE = {kind for kind, s in STEPS if s.undo is not None}


def _everywhere(*at: str, direction: str = "forward") -> list[tuple[str, Point]]:
    return [(d.kind, point) for d in DEFINITIONS for point in points(d, *at, direction=direction)]


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    found = Database(database_url, size=AT_ONCE)
    await found.open()
    yield found
    await found.close()


@pytest.fixture
async def rig(database: Database, identity: Identity, image_id: str) -> AsyncIterator[Rig]:
    async with rigged(database, identity, image_id) as found:
        yield found


async def _stopped(rig: Rig) -> str:
    made = await rig.active()
    await rig.act(made, {"os-stop": None})
    await rig.demo.wait_for(made, "SHUTOFF")
    return made


# How to bring a server into the state from which an operation starts, how a user starts it, and where it leads.
Prepare = Callable[[Rig], Awaitable[str]]
Start = Callable[[Rig, str], Awaitable[Any]]
BEGIN: dict[str, tuple[Prepare | None, Start, str]] = {
    "server.boot": (None, lambda rig, _: rig.boot(), "ACTIVE"),
    "server.delete": (
        Rig.active,
        lambda rig, s: rig.demo.request("compute", "DELETE", f"/servers/{s}"),
        "gone",
    ),
    "server.stop": (Rig.active, lambda rig, s: rig.act(s, {"os-stop": None}), "SHUTOFF"),
    "server.start": (_stopped, lambda rig, s: rig.act(s, {"os-start": None}), "ACTIVE"),
    "server.reboot": (Rig.active, lambda rig, s: rig.act(s, {"reboot": {"type": "HARD"}}), "ACTIVE"),
}


def test_every_operation_can_be_begun() -> None:
    assert set(BEGIN) == set(KINDS)


async def _prepare(rig: Rig, kinds: list[str]) -> list[str]:
    """For an operation of each kind a server, side by side; "" for what begins with none."""
    armed, rig.armed.pending = rig.armed.pending, []
    prepares = [BEGIN[kind][0] for kind in kinds]
    servers = await asyncio.gather(*(p(rig) if p is not None else _nothing() for p in prepares))
    await rig.settled()
    rig.armed.pending = armed
    return servers


async def _begin(rig: Rig, kinds: list[str], servers: list[str]) -> list[str]:
    """Begin one operation of each kind, side by side; the servers' ids."""
    begun = await asyncio.gather(*(BEGIN[k][1](rig, s) for k, s in zip(kinds, servers, strict=True)))
    return [s or str(b) for s, b in zip(servers, begun, strict=True)]


async def _nothing() -> str:
    return ""


class Reference(msgspec.Struct, frozen=True):
    """What there is of a server before and after an operation, when nothing goes wrong."""

    before: dict[str, Any]
    after: dict[str, Any]


async def _references(rig: Rig) -> dict[str, Reference]:
    """By kind."""
    kinds = list(KINDS)
    prepared = await _prepare(rig, kinds)
    before = [await rig.held(s) if s else {} for s in prepared]
    servers = await _begin(rig, kinds, prepared)
    for kind, server_id in zip(kinds, servers, strict=True):
        await rig.demo.wait_for(server_id, BEGIN[kind][2])
    await rig.settled()
    after = [await rig.held(s) for s in servers]
    await _delete_all(rig, servers)
    return {k: Reference(b, a) for k, b, a in zip(kinds, before, after, strict=True)}


async def _delete_all(rig: Rig, servers: list[str]) -> None:
    await asyncio.gather(*(rig.delete(s) for s in servers))
    await rig.settled()


@contextlib.asynccontextmanager
async def _played(
    rig: Rig, faults: list[Fault], ends: Callable[[Fault], tuple[str, str]]
) -> AsyncIterator[None]:
    """Play all faults side by side; inside, servers and operations are in the states ``ends``; after it nothing is left."""
    before = await rig.world()
    rig.armed.arm(faults)
    kinds = [f.kind for f in faults]
    servers = await _begin(rig, kinds, await _prepare(rig, kinds))
    assert len(set(servers)) == len(faults)
    status = dict(zip(servers, kinds, strict=True))
    for fault in faults:
        # Who has which server is known once all have begun.
        async with asyncio.timeout(180):
            while not fault.server:
                await asyncio.sleep(0.02)
        await rig.demo.wait_for(fault.server, ends(fault)[0])
    await rig.settled()
    assert {f.server: f.kind for f in faults} == status, "each fault had an operation of its own"
    missed = [f.name for f in faults if f.reached != f.times]
    assert not missed, missed
    states = dict(await rig.sql("SELECT id, state FROM operations"))
    assert {f.name: states[f.operation] for f in faults} == {f.name: ends(f)[1] for f in faults}
    await rig.check()
    yield
    await _delete_all(rig, servers)
    assert await rig.world() == before
    await rig.check()


async def _as_if_nothing_had_happened(rig: Rig, faults: list[Fault]) -> None:
    wanted = await _references(rig)
    async with _played(rig, faults, lambda f: (BEGIN[f.kind][2], "done")):
        for fault in faults:
            assert await rig.held(fault.server) == wanted[fault.kind].after, fault.name


def _host_did(fault: Fault) -> bool:
    """Whether the fault came when the host had done its part."""
    definition, step = KINDS[fault.kind], fault.point.step
    remote = next(i for i, s in enumerate(definition.steps) if s.kind == "remote")
    return fault.point.answered or definition.index(step) > remote


async def _undone(rig: Rig, faults: list[Fault]) -> None:
    wanted = await _references(rig)
    async with _played(rig, faults, lambda _: ("ERROR", "failed")):
        for fault in faults:
            reference, held = wanted[fault.kind], await rig.held(fault.server)
            if fault.kind in UNDONE:
                assert held == NOTHING, fault.name
                continue
            # There is no way back from these: what the guest may still use is held, and the guest is as its host left it.
            guests = (reference.after if _host_did(fault) else reference.before)["guests"]
            error = {"server": ("its", "error", None), "guests": guests}
            assert held == {**reference.before, **error}, fault.name


async def test_a_crash_at_every_point_of_every_step_ends_as_if_nothing_had_happened(rig: Rig) -> None:
    await _as_if_nothing_had_happened(rig, [Fault(kind, point, Crash()) for kind, point in _everywhere()])


async def test_a_failure_at_every_step_undoes_all_of_it(rig: Rig) -> None:
    at = _everywhere("before", "effect")
    await _undone(rig, [Fault(kind, point, Conflict("injected")) for kind, point in at])


async def test_what_a_host_reports_as_failed_is_undone_and_an_undo_is_repeated(rig: Rig) -> None:
    """Whatever the host has done by then. A boot is repeated on another host."""
    forward = [Reply(kind, s.name, "failed") for kind, s in REMOTE]
    await _undone(
        rig,
        [f for f in forward if f.kind not in ELSEWHERE]
        + [Reply(kind, s.name, "failed", UNDO, times=2) for kind, s in REMOTE if s.undo is not None],
    )
    await _as_if_nothing_had_happened(rig, [f for f in forward if f.kind in ELSEWHERE])


async def test_every_undo_is_repeated_until_it_ends(rig: Rig) -> None:
    await _undone(
        rig,
        [
            Fault(kind, point, error, times=2)
            for kind, point in _everywhere("before", "effect", direction=UNDO)
            for error in (Crash(), Conflict("injected: the undo fails"))
        ],
    )


async def test_a_lease_taken_away_in_the_middle_of_any_step_changes_nothing(rig: Rig) -> None:
    Stolen.database = rig.database
    at = ("before", "effect")
    await _as_if_nothing_had_happened(rig, [Stolen(kind, point) for kind, point in _everywhere(*at)])
    await _undone(rig, [Stolen(kind, point) for kind, point in _everywhere(*at, direction=UNDO)])


FATES = ("lost", "unacknowledged", "twice")


async def test_an_answer_that_is_lost_or_comes_twice_changes_nothing(rig: Rig) -> None:
    assert {kind for kind, _ in REMOTE} == set(KINDS)
    await _as_if_nothing_had_happened(
        rig, [Reply(kind, s.name, fate) for kind, s in REMOTE for fate in FATES]
    )
    back = [(kind, s) for kind, s in REMOTE if s.undo is not None]
    await _undone(rig, [Reply(kind, s.name, fate, UNDO) for kind, s in back for fate in FATES])


async def _in_vain(rig: Rig, fault: Fault) -> None:
    """Return once the time is over in which the fault's operation waits for the answer that does not come."""
    async with asyncio.timeout(300):
        while True:
            async with rig.database.transaction() as tx:
                over = fault.reached and await tx.execute(
                    "UPDATE operations SET data = jsonb_set(data, '{_until}', to_jsonb(now() - interval '1 second')), "
                    "wake_at = now() WHERE id = $1 AND state = 'waiting' AND sent",
                    (fault.operation,),
                )
            if over:
                return
            await asyncio.sleep(0.05)


async def test_an_answer_that_never_comes_ends_in_time(rig: Rig) -> None:
    """A boot goes to the next host once the guest is gone from the first; others end in ERROR."""
    never: list[Fault] = [Reply(kind, s.name, "never") for kind, s in REMOTE]
    for faults, play in (
        ([f for f in never if f.kind in ELSEWHERE], _as_if_nothing_had_happened),
        ([f for f in never if f.kind not in ELSEWHERE], _undone),
    ):
        async with asyncio.TaskGroup() as tasks:
            for each in faults:
                tasks.create_task(_in_vain(rig, each))
            await play(rig, faults)
    rounds = dict(await rig.sql("SELECT id, round FROM operations"))
    assert all(rounds[f.operation] == (f.kind in ELSEWHERE) for f in never)


class Doubled:
    """Definitions whose steps and undos are done twice, one upon the other, while ``on``; what has been.

    Steps in our own database share a transaction with their record, so nothing but this repeats them. All bear it but
    one: a host is claimed once between two undos. A second decision would see the first one's claim, prefer another
    host, and be refused by the ledger, which takes two claims of one server for two that decided at once.
    """

    ONCE = "claim_host"

    def __init__(self) -> None:
        self.on = False
        self.done: set[tuple[str, str, str]] = set()
        self.definitions = tuple(map(self._twice, DEFINITIONS))

    def _twice(self, definition: Definition) -> Definition:
        def twice(step: StepDefinition) -> StepDefinition:
            key = (definition.kind, step.name)
            run = step.run if step.name == self.ONCE else self._function(step.run, (*key, "run"))
            undo = self._function(step.undo, (*key, "undo")) if step.undo is not None else None
            return msgspec.structs.replace(step, run=run, undo=undo)

        return msgspec.structs.replace(definition, steps=tuple(map(twice, definition.steps)))

    def _function(self, function: Any, key: tuple[str, str, str]) -> Any:
        @wraps(function)
        async def run(step: Step) -> Any:
            first = await function(step)
            if not self.on:
                return first
            again = await function(step)
            assert again == first, key
            self.done.add(key)
            return again

        return run


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Doubled:
    found = Doubled()
    monkeypatch.setattr("moorage.server.cloud.DEFINITIONS", found.definitions)
    return found


async def test_steps_commands_and_undos_that_are_repeated_find_their_work_done(
    doubled: Doubled, database: Database, identity: Identity, image_id: str
) -> None:
    async with rigged(database, identity, image_id) as rig:
        undisturbed = await _references(rig)
        doubled.on = rig.between.repeat_commands = True
        assert await _references(rig) == undisturbed
        at = _everywhere("before", direction=UNDO)
        await _undone(rig, [Fault(kind, point, Crash()) for kind, point in at])
        runs = {(kind, s.name, "run") for kind, s in STEPS if s.name != doubled.ONCE}
        assert doubled.done == runs | {(kind, s.name, "undo") for kind, s in STEPS if s.undo is not None}
        kinds = dict(await rig.sql("SELECT id, kind FROM operations"))
        # Of each remote step its command, and that of its undo.
        told = {(kinds[operation], step, kind) for operation, step, kind in rig.between.repeated}
        commands = Counter((kind, step) for kind, step, _ in told)
        assert commands == {(kind, s.name): 1 + (s.undo is not None) for kind, s in REMOTE}


async def test_a_delete_in_the_middle_of_anything_stops_it(rig: Rig) -> None:
    """At every step of every operation; the server is shown as being deleted from then on, and as nothing else."""
    before = await rig.world()
    # Before each step, and with its command out. (Between a step's effect and its record its rows are locked: the request
    # for the delete waits until they are not.)
    at = _everywhere("before") + [(kind, Point(s.name, "recorded")) for kind, s in REMOTE]
    still = [Still(kind, point) for kind, point in at if kind != DELETE.kind]
    # What has its last step left ends with it.
    last = {f.name for f in still if f.point.step == KINDS[f.kind].steps[-1].name}
    kinds = [f.kind for f in still]
    prepared = await _prepare(rig, kinds)
    deletes = [Still(DELETE.kind, Point("destroy_guest", "before")) for _ in still]
    rig.armed.arm([*still, *deletes])
    await _begin(rig, kinds, prepared)
    async with asyncio.timeout(180):
        await asyncio.gather(*(f.stands.wait() for f in still))
    for fault in still:
        status, _ = await rig.demo.request("compute", "DELETE", f"/servers/{fault.server}")
        assert status == 204, fault.name
    for fault in still:
        fault.go_on.set()
    async with asyncio.timeout(180):
        await asyncio.gather(*(f.stands.wait() for f in deletes))
    for fault in still:
        held = await rig.held(fault.server)
        assert held["server"][2] == "deleting", (fault.name, held)
        assert held["server"][1] != "error", (fault.name, held)
    for fault in deletes:
        fault.go_on.set()
    for fault in still:
        await rig.demo.wait_for(fault.server, "gone")
    await rig.settled()
    states = dict(await rig.sql("SELECT id, state FROM operations"))
    assert {f.name: states[f.operation] for f in still} == {
        f.name: "done" if f.name in last else "cancelled" for f in still
    }
    assert await rig.world() == before
    await rig.check()


async def test_a_host_that_refuses_is_left_and_the_ports_are_kept(rig: Rig) -> None:
    rig.cloud.fleet.behaviour.fault_rates = {"define": 0.8}
    made = [await rig.boot() for _ in range(6)]
    for server_id in made:
        await rig.demo.wait_for(server_id, "ACTIVE", "ERROR")
    await rig.settled()
    rig.cloud.fleet.behaviour.fault_rates = {}
    await rig.check()
    again = await rig.sql(
        "SELECT 1 FROM operation_steps WHERE step = 'create_ports' AND event = 'succeeded' AND round > 0"
    )
    assert await rig.sql("SELECT 1 FROM operations WHERE round > 0")
    assert not again
    await _delete_all(rig, made)
