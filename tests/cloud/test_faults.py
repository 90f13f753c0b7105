"""Every operation on servers, with a fault at every step and point: the world after it is as if nothing had happened,
or as if nothing had gone wrong.

The scenarios come from the definitions: an operation that is added is in here with no further work, as soon as
``BEGIN`` says how a user starts it. Steps are taken one by one (not fused), so that each point is really reached. All
scenarios of a test run side by side in one cloud with two conductors, each on a server of its own.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
import pytest

from moorage.audit import audit
from moorage.compute.operations import DEFINITIONS
from moorage.core.errors import Conflict
from moorage.operations import Definition, Runner, Step
from moorage.operations.faults import Crash
from moorage.operations.model import Operation
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.support.between import Between
from tests.support.cloud import Client, TestCloud, running_cloud
from tests.support.identity import Identity

KINDS = {d.kind: d for d in DEFINITIONS}
STEPS = [(d.kind, s) for d in DEFINITIONS for s in d.steps]
UNDONE = [(kind, s) for kind, s in STEPS if s.undo is not None]
LEASE = 1.0
# All scenarios of a test may stand still at once, each with a place in a conductor and a connection of its own.
AT_ONCE = 100


class Fault:
    """One scenario: raises ``error`` at a point of one operation, so many times; ``turn`` makes its last step fail.

    It takes the first operation of its kind that is begun for nobody else; ``subject`` says whose that was.
    """

    def __init__(
        self,
        kind: str,
        step: str,
        point: str = "",
        direction: str = "forward",
        error: BaseException | None = None,
        times: int = 1,
    ) -> None:
        self.kind, self.step = kind, step
        self.point, self.direction, self.error, self.times = point, direction, error, times
        self.turn = direction == "undo"
        self.operation = self.subject = ""
        self.reached = 0

    @property
    def name(self) -> str:
        return f"{self.kind} {self.direction} {self.step} {self.point}"

    async def at(self, point: str, op: Operation, step: str) -> None:
        last = KINDS[self.kind].steps[-1].name
        if self.turn and (point, step, op.direction) == ("before", last, "forward"):
            raise Conflict("injected: the last step fails")
        if (point, step, op.direction) == (
            self.point,
            self.step,
            self.direction,
        ) and self.reached < self.times:
            self.reached += 1
            await self.strike(op)

    async def strike(self, _op: Operation) -> None:
        assert self.error is not None
        raise self.error

    def reply(self, step: str) -> str | None:
        """What becomes of the host's answer."""


class Stolen(Fault):
    """The lease is taken away in the middle, and the fence has moved before the conductor goes on."""

    database: Database

    async def strike(self, op: Operation) -> None:
        # Again and again: its conductor renews it meanwhile.
        async with asyncio.timeout(180):
            while True:
                async with self.database.transaction() as tx:
                    taken = await tx.execute(
                        "UPDATE operations SET lease_until = now() - interval '1 second' WHERE id = $1 AND fence = $2",
                        (op.id, op.fence),
                    )
                if not taken:
                    return
                await asyncio.sleep(0.02)


class Reply(Fault):
    """The answer to a remote step, or to its undo, is lost or comes twice."""

    def __init__(self, kind: str, step: str, fate: str, *, undo: bool = False) -> None:
        super().__init__(kind, step, fate, "undo" if undo else "forward", times=0)
        self.fate = fate
        self._before = 1 if undo else 0

    def reply(self, step: str) -> str | None:
        if step != self.step:
            return None
        if self._before:
            self._before -= 1
            return None
        if self.reached:
            return None
        self.reached, self.times = 1, 1
        return self.fate


class Armed:
    """The faults of a test; what the engine and the network ask."""

    def __init__(self) -> None:
        self.pending: list[Fault] = []
        self.taken: dict[str, Fault | None] = {}

    def arm(self, faults: list[Fault]) -> None:
        self.pending = list(faults)

    async def at(self, point: str, op: Operation, step: str) -> None:
        if op.id not in self.taken:
            found = next((f for f in self.pending if f.kind == op.kind), None)
            self.taken[op.id] = found
            if found is not None:
                self.pending.remove(found)
                found.operation, found.subject = op.id, op.subject
        fault = self.taken[op.id]
        if fault is not None:
            await fault.at(point, op, step)

    def reply(self, operation: str, step: str) -> str | None:
        fault = self.taken.get(operation)
        return fault.reply(step) if fault is not None else None


class Rig:
    def __init__(
        self,
        cloud: TestCloud,
        demo: Client,
        database: Database,
        armed: Armed,
        between: Between,
        body: dict[str, Any],
    ) -> None:
        self.cloud, self.demo, self.database, self.body = cloud, demo, database, body
        self.armed, self.between = armed, between

    async def settled(self) -> None:
        """No operation is open."""
        async with asyncio.timeout(300):
            while await self.sql(
                "SELECT 1 FROM operations WHERE state IN ('ready', 'running', 'waiting') LIMIT 1"
            ):
                await asyncio.sleep(0.05)

    async def sql(self, statement: str, *args: Any) -> list[Any]:
        async with self.database.read() as tx:
            return await tx.fetch(statement, args)

    async def boot(self) -> str:
        made = await self.demo.make("compute", "/servers", self.body)
        return str(made["server"]["id"])

    async def active(self) -> str:
        made = await self.boot()
        assert (await self.demo.wait_for(made, "ACTIVE", "ERROR"))["status"] == "ACTIVE"
        return made

    async def act(self, server_id: str, body: Any) -> None:
        status, found = await self.demo.request("compute", "POST", f"/servers/{server_id}/action", body)
        assert status == 202, found

    async def delete(self, server_id: str) -> None:
        await self.demo.request("compute", "DELETE", f"/servers/{server_id}")
        await self.demo.wait_for(server_id, "gone")

    async def held(self, server_id: str) -> dict[str, Any]:
        """All that there is of one server; its own host is called "its"."""
        row = (await self.sql("SELECT host, vm_state, task_state FROM servers WHERE id = $1", server_id))[0]

        def named(host: str | None) -> str | None:
            return "its" if host is not None and host == row[0] else host

        ports = "SELECT id FROM ports WHERE device_id = $1"
        bindings = await self.sql(f"SELECT host, status FROM bindings WHERE port_id IN ({ports})", server_id)  # noqa: S608
        addresses = f"SELECT count(*) FROM port_fixed_ips WHERE port_id IN ({ports})"  # noqa: S608
        claims = "SELECT resource_class, used FROM allocations WHERE consumer_id = $1"
        guests = [
            (named(name), guest.power_state)
            for name, agent in self.cloud.fleet.agents.items()
            for guest in await agent.guests.hypervisor.guests()
            if guest.server_id == server_id
        ]
        return {
            "server": (named(row[0]), row[1], row[2]),
            "ports": len(await self.sql(ports, server_id)),
            "bindings": [(named(b[0]), b[1]) for b in bindings],
            "addresses": (await self.sql(addresses, server_id))[0][0],
            "claims": sorted((c[0], c[1]) for c in await self.sql(claims, server_id)),
            "guests": guests,
        }

    async def world(self) -> dict[str, int]:
        """What is held by all, counted."""
        tables = ("ports", "port_fixed_ips", "bindings", "allocations", "consumers")
        found = {t: (await self.sql(f"SELECT count(*) FROM {t}"))[0][0] for t in tables}  # noqa: S608  own names
        used = await self.sql("SELECT coalesce(sum(used), 0) FROM inventories")
        servers = await self.sql("SELECT count(*) FROM servers WHERE deleted_at IS NULL")
        agents = self.cloud.fleet.agents.values()
        guests = sum([len(await agent.guests.hypervisor.guests()) for agent in agents])
        return {**found, "used": int(used[0][0]), "servers": servers[0][0], "guests": guests}

    async def check(self) -> None:
        report = await audit(self.database, grace=0)
        # What agents report comes with their next heartbeat, later than this check.
        findings = [f for f in report.findings if not f.invariant.startswith("guest.")]
        assert not findings, findings


@contextlib.asynccontextmanager
async def rigged(
    database: Database, identity: Identity, image_id: str, *, repeat: bool = False, **options: Any
) -> AsyncIterator[Rig]:
    """A cloud of three hosts behind a bad network, and a second conductor."""
    armed = Armed()
    between = Between(armed, repeat_commands=repeat)
    unlimited = {f"quota__{name}": -1 for name in ("instances", "cores", "ram")}
    conductor = {"lease": LEASE, "poll": 0.1, "concurrency": AT_ONCE}
    settings: dict[str, Any] = {f"conductor__{name}": value for name, value in conductor.items()}
    settings |= {**unlimited, **options}
    with between.in_place():
        async with running_cloud(database, identity, hosts=3, faults=armed, fuse=False, **settings) as cloud:
            one = cloud.cloud
            definitions = one.runner.environment.catalogue.definitions.values()
            second = Runner(
                database, one.signals, definitions, one.services, one.link.enqueue,
                **conductor, faults=armed, fuse=False,
            )  # fmt: skip
            await second.start()
            demo = await cloud.client()
            body = server(image_id, await flavor(cloud), await network(demo))
            try:
                yield Rig(cloud, demo, database, armed, between, body)
            finally:
                await second.stop()


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


async def _begin(rig: Rig, kinds: list[str]) -> list[str]:
    """Begin one operation of each kind, side by side; the servers' ids."""
    armed, rig.armed.pending = rig.armed.pending, []
    prepares = [BEGIN[kind][0] for kind in kinds]
    servers = await asyncio.gather(*(p(rig) if p is not None else _nothing() for p in prepares))
    await rig.settled()
    rig.armed.pending = armed
    begun = await asyncio.gather(*(BEGIN[k][1](rig, s) for k, s in zip(kinds, servers, strict=True)))
    return [s or str(b) for s, b in zip(servers, begun, strict=True)]


async def _nothing() -> str:
    return ""


async def _references(rig: Rig) -> dict[str, dict[str, Any]]:
    """What there is of a server after each kind of operation, when nothing goes wrong."""
    kinds = list(KINDS)
    servers = await _begin(rig, kinds)
    for kind, server_id in zip(kinds, servers, strict=True):
        await rig.demo.wait_for(server_id, BEGIN[kind][2])
    await rig.settled()
    found = {kind: await rig.held(s) for kind, s in zip(kinds, servers, strict=True)}
    await _delete_all(rig, servers)
    return found


async def _delete_all(rig: Rig, servers: list[str]) -> None:
    await asyncio.gather(*(rig.delete(s) for s in servers))
    await rig.settled()


@contextlib.asynccontextmanager
async def _played(
    rig: Rig, faults: list[Fault], status: Callable[[str], str]
) -> AsyncIterator[dict[str, Fault]]:
    """Play all faults side by side; inside, the servers are in ``status(kind)``; after it nothing is left of them."""
    before = await rig.world()
    rig.armed.arm(faults)
    servers = await _begin(rig, [f.kind for f in faults])
    for fault, server_id in zip(faults, servers, strict=True):
        await rig.demo.wait_for(server_id, status(fault.kind))
    await rig.settled()
    by_server = {f.subject.partition(":")[2]: f for f in faults}
    assert set(by_server) == set(servers), "each fault had an operation of its own"
    missed = [f.name for f in faults if f.reached != f.times or not f.times]
    assert not missed, missed
    await rig.check()
    yield by_server
    await _delete_all(rig, servers)
    assert await rig.world() == before
    await rig.check()


async def _as_if_nothing_had_happened(rig: Rig, faults: list[Fault]) -> None:
    wanted = await _references(rig)
    async with _played(rig, faults, lambda kind: BEGIN[kind][2]) as servers:
        for server_id, fault in servers.items():
            assert await rig.held(server_id) == wanted[fault.kind], fault.name


NOTHING = {
    "server": (None, "error", None),
    "ports": 0,
    "bindings": [],
    "addresses": 0,
    "claims": [],
    "guests": [],
}


async def _undone(rig: Rig, faults: list[Fault]) -> None:
    wanted = await _references(rig)
    async with _played(rig, faults, lambda _: "ERROR") as servers:
        for server_id, fault in servers.items():
            held = await rig.held(server_id)
            if any(step.undo is not None for step in KINDS[fault.kind].steps):
                assert held == NOTHING, fault.name
                continue
            # There is no way back from these: what the guest may still use is held.
            kept = ("ports", "addresses", "claims", "bindings")
            boot = wanted["server.boot"]
            assert {k: held[k] for k in kept} == {k: boot[k] for k in kept}, fault.name


async def test_a_crash_at_every_point_of_every_step_ends_as_if_nothing_had_happened(rig: Rig) -> None:
    points = ("before", "effect", "recorded")
    await _as_if_nothing_had_happened(
        rig, [Fault(kind, s.name, point, error=Crash()) for kind, s in STEPS for point in points]
    )


async def test_a_failure_at_every_step_undoes_all_of_it(rig: Rig) -> None:
    await _undone(
        rig,
        [
            Fault(kind, s.name, point, error=Conflict("injected"))
            for kind, s in STEPS
            for point in ("before", "effect")
        ],
    )


async def test_every_undo_is_repeated_until_it_ends(rig: Rig) -> None:
    await _undone(
        rig,
        [
            Fault(kind, s.name, point, "undo", error, times=2)
            for kind, s in UNDONE
            for point in ("before", "effect")
            for error in (Crash(), Conflict("injected: the undo fails"))
        ],
    )


async def test_a_lease_taken_away_in_the_middle_of_any_step_changes_nothing(rig: Rig) -> None:
    Stolen.database = rig.database
    await _as_if_nothing_had_happened(
        rig, [Stolen(kind, s.name, point) for kind, s in STEPS for point in ("before", "effect")]
    )
    await _undone(
        rig, [Stolen(kind, s.name, point, "undo") for kind, s in UNDONE for point in ("before", "effect")]
    )


FATES = ("lost", "unacknowledged", "twice")


async def test_an_answer_that_is_lost_or_comes_twice_changes_nothing(rig: Rig) -> None:
    remote = [(kind, s) for kind, s in STEPS if s.kind == "remote"]
    assert {kind for kind, _ in remote} == set(KINDS)
    await _as_if_nothing_had_happened(
        rig, [Reply(kind, s.name, fate) for kind, s in remote for fate in FATES]
    )
    back = [(kind, s) for kind, s in remote if s.undo is not None]
    await _undone(rig, [Reply(kind, s.name, fate, undo=True) for kind, s in back for fate in FATES])


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
    faults: list[Fault] = [Reply(kind, s.name, "never") for kind, s in STEPS if s.kind == "remote"]
    back = {kind for kind, s in STEPS if s.on_refusal is not None}
    async with asyncio.TaskGroup() as tasks:
        for each in faults:
            tasks.create_task(_in_vain(rig, each))
        async with _played(rig, faults, lambda kind: BEGIN[kind][2] if kind in back else "ERROR") as servers:
            for server_id, fault in servers.items():
                if fault.kind in back:
                    held = await rig.held(server_id)
                    assert held["guests"] == [("its", "running")]
                    assert await rig.sql(
                        "SELECT 1 FROM operations WHERE id = $1 AND round = 1", fault.operation
                    )


def doubled(definition: Definition) -> Definition:
    """Every undo is done twice."""

    def twice(function: Any) -> Any:
        @wraps(function)
        async def run(step: Step) -> Any:
            await function(step)
            return await function(step)

        return run

    steps = tuple(
        msgspec.structs.replace(s, undo=twice(s.undo)) if s.undo is not None else s for s in definition.steps
    )
    return msgspec.structs.replace(definition, steps=steps)


@pytest.fixture
def all_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.server.cloud.DEFINITIONS", tuple(map(doubled, DEFINITIONS)))


@pytest.mark.usefixtures("all_doubled")
async def test_commands_and_undos_that_are_repeated_find_their_work_done(
    database: Database, identity: Identity, image_id: str
) -> None:
    async with rigged(database, identity, image_id, repeat=True) as rig:
        first = Counter(kind for kind, _ in STEPS)
        assert set(first) == set(KINDS)
        references = await _references(rig)
        assert references["server.boot"]["guests"] == [("its", "running")]
        assert references["server.stop"]["guests"] == [("its", "shutdown")]
        await _undone(rig, [Fault(kind, s.name, "before", "undo", Crash()) for kind, s in UNDONE])
        assert rig.between.repeated >= 2 * len(KINDS)


async def test_a_delete_during_the_build_stops_it(rig: Rig) -> None:
    before = await rig.world()
    for latency in (0.0, 0.05, 0.3):
        rig.cloud.fleet.behaviour.latency = latency
        server_id = await rig.boot()
        await asyncio.sleep(latency / 2)
        await rig.delete(server_id)
        await rig.settled()
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
