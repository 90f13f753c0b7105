"""A cloud in which operations meet faults: what strikes where, what there is of a server, and what there is of all.

Steps are taken one by one (not fused), so that each point is really reached. Two conductors drive the operations, and
hosts are behind a bad network.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from moorage.audit import audit
from moorage.compute.operations import DEFINITIONS
from moorage.core.errors import Conflict
from moorage.operations import Runner
from moorage.operations.model import FORWARD, UNDO, Operation
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.support.between import Between
from tests.support.cloud import Client, TestCloud, running_cloud
from tests.support.identity import Identity
from tests.support.points import Passes, Point

KINDS = {d.kind: d for d in DEFINITIONS}
LEASE = 1.0
# All scenarios of a test may stand still at once, each with a place in a conductor and a connection of its own.
AT_ONCE = 100


class Fault:
    """One scenario: raises ``error`` at a point of one operation, so many times; on the way back its last step fails.

    It takes the first operation of its kind that is begun for nobody else; ``subject`` says whose that was.
    """

    def __init__(self, kind: str, point: Point, error: BaseException | None = None, times: int = 1) -> None:
        self.kind, self.point, self.error, self.times = kind, point, error, times
        self.turn = point.direction == UNDO
        self.operation = self.subject = ""
        self.reached = 0

    @property
    def name(self) -> str:
        return f"{self.kind} {self.point}"

    @property
    def server(self) -> str:
        return self.subject.partition(":")[2]

    async def at(self, now: Point, op: Operation) -> None:
        last = KINDS[self.kind].steps[-1].name
        if self.turn and now == Point(last, "before"):
            raise Conflict("injected: the last step fails")
        if now == self.point and self.reached < self.times:
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


class Still(Fault):
    """The conductor stands still until ``go_on``.

    Where it has sent a command by then, nobody else goes on either: the answer to that does not come.
    """

    def __init__(self, kind: str, point: Point) -> None:
        super().__init__(kind, point)
        self.stands, self.go_on = asyncio.Event(), asyncio.Event()
        self._answered = False

    async def strike(self, _op: Operation) -> None:
        self.stands.set()
        await self.go_on.wait()

    def reply(self, step: str) -> str | None:
        waits = self.point == Point(step, "recorded") and not self._answered
        self._answered |= waits
        return "never" if waits else None


class Reply(Fault):
    """So many answers to a remote step, or to its undo, have this fate (see ``Between``)."""

    def __init__(self, kind: str, step: str, fate: str, direction: str = FORWARD, times: int = 1) -> None:
        super().__init__(kind, Point(step, fate, direction, answered=True), times=times)
        # An undo's answers come after the one to the step.
        self._before = 1 if self.turn else 0

    def reply(self, step: str) -> str | None:
        if step != self.point.step:
            return None
        if self._before:
            self._before -= 1
            return None
        if self.reached == self.times:
            return None
        self.reached += 1
        return self.point.at


class Armed:
    """The faults of a test; what the engine and the network ask."""

    def __init__(self) -> None:
        self.pending: list[Fault] = []
        self.taken: dict[str, Fault | None] = {}
        self._passes = Passes()

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
        now = self._passes.now(point, op, step)
        if fault is not None:
            await fault.at(now, op)

    def reply(self, operation: str, step: str) -> str | None:
        fault = self.taken.get(operation)
        return fault.reply(step) if fault is not None else None


NOTHING: dict[str, Any] = {
    "server": (None, "error", None),
    "ports": 0,
    "bindings": [],
    "addresses": 0,
    "claims": [],
    "guests": [],
}
"""What is held of a server (``Rig.held``) that could not be made."""


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
async def rigged(database: Database, identity: Identity, image_id: str, **options: Any) -> AsyncIterator[Rig]:
    """A cloud of three hosts behind a bad network, and a second conductor."""
    armed = Armed()
    between = Between(armed)
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
