"""Operations: order, undo, refusals, waits, cancellation, take-over, at every step and point."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.core.errors import Conflict
from moorage.operations import (
    Command,
    Refusal,
    Runner,
    Step,
    back_to,
    journal,
    local,
    operation,
    remote,
    wait,
)
from moorage.operations.faults import Crash
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals


class World:
    """What the test operation changes: a table of marks, a hand-operated host."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.commands: list[dict[str, Any]] = []
        self.bad_hosts: set[str] = set()
        self.auto = True

    async def send(self, tx: Tx, **command: Any) -> str:
        command["id"] = f"c{len(self.commands)}"
        self.commands.append(command)
        if self.auto:
            tx.on_commit(lambda: asyncio.get_running_loop().create_task(self.reply(command)) and None)
        return str(command["id"])

    async def reply(self, command: dict[str, Any]) -> bool:
        bad = command["kind"] == "make" and command["host"] in self.bad_hosts
        async with self.database.transaction() as tx:
            if not bad:
                sql = (
                    "INSERT INTO marks VALUES ($1)"
                    if command["kind"] == "make"
                    else "DELETE FROM marks WHERE name=$1"
                )
                await tx.execute(
                    sql + (" ON CONFLICT DO NOTHING" if "INSERT" in sql else ""),
                    (f"guest@{command['host']}",),
                )
            return await journal.complete(
                tx,
                operation=command["operation"],
                step=command["step"],
                fence=command["fence"],
                command=command["id"],
                outcome="refused" if bad else "succeeded",
                error={"code": "host.bad", "message": "bad host"} if bad else None,
            )


async def _mark(tx: Tx, name: str) -> None:
    await tx.execute("INSERT INTO marks VALUES ($1)", (name,))


async def _unmark(tx: Tx, prefix: str) -> None:
    await tx.execute("DELETE FROM marks WHERE name LIKE $1", (prefix + "%",))


async def make_ports(step: Step) -> Any:
    await _mark(step.tx, "ports")
    return {"n": 1}


async def drop_ports(step: Step) -> None:
    await _unmark(step.tx, "ports")


async def pick_host(step: Step) -> Any:
    excluded = {r["host"] for r in step.refusals}
    free = [h for h in ("h1", "h2", "h3") if h not in excluded]
    if not free:
        raise Conflict("no host is left")
    await _mark(step.tx, f"claim@{free[0]}")
    return free[0]


async def unpick(step: Step) -> None:
    await _unmark(step.tx, "claim@")


async def bind(step: Step) -> Any:
    if step.data["pick_host"] in step.params.get("unbindable", ()):
        raise Refusal("cannot bind", subject=step.data["pick_host"])
    await _mark(step.tx, "bound")


async def unbind(step: Step) -> None:
    await _unmark(step.tx, "bound")


async def make_guest(step: Step) -> Command:
    return Command(step.data["pick_host"], "make", {})


async def drop_guest(step: Step) -> Command:
    return Command(step.data["pick_host"], "drop", {})


async def plugged(step: Step) -> bool:
    return bool(await step.tx.fetch("SELECT 1 FROM marks WHERE name = 'plug'"))


async def finish(step: Step) -> None:
    await _mark(step.tx, "active")


async def failed(step: Step) -> None:
    await step.tx.execute("INSERT INTO marks VALUES ('error') ON CONFLICT DO NOTHING")


BOOT = operation(
    "test.boot",
    version=1,
    steps=(
        local(make_ports, undo=drop_ports),
        local(pick_host, undo=unpick),
        local(bind, undo=unbind, on_refusal=back_to(pick_host)),
        remote(make_guest, undo=drop_guest, on_refusal=back_to(pick_host)),
        wait(plugged, deadline=lambda world: world.deadline),
        local(finish),
    ),
    on_failure=failed,
)
STEPS = [s.name for s in BOOT.steps]
DONE = {"ports", "claim@h1", "bound", "guest@h1", "plug", "active"}


class Inject:
    """Raises once at one point."""

    def __init__(self, point: str, step: str, direction: str, error: BaseException) -> None:
        self.wanted = (point, step, direction)
        self.error: BaseException | None = error
        self.reached = False

    def at(self, point: str, kind: str, step: str, direction: str) -> None:  # noqa: ARG002  the engine's protocol
        if self.wanted == (point, step, direction) and self.error is not None:
            error, self.error, self.reached = self.error, None, True
            raise error


@pytest.fixture
async def world(database: Database) -> World:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE marks (name text PRIMARY KEY)")
    found = World(database)
    found.deadline = 30.0
    return found


@pytest.fixture
async def signals(database: Database) -> AsyncIterator[Signals]:
    found = Signals(database)
    await found.start()
    yield found
    await found.stop()


async def marks(database: Database) -> set[str]:
    async with database.read() as tx:
        return {r[0] for r in await tx.fetch("SELECT name FROM marks")}


async def ended(database: Database, operation_id: str, *, within: float = 20) -> str:
    async with asyncio.timeout(within):
        while True:
            async with database.read() as tx:
                op = await journal.get(tx, operation_id)
            if op.state in ("done", "failed", "cancelled", "stuck"):
                return op.state
            await asyncio.sleep(0.01)


def runner(world: World, signals: Signals, **kw: Any) -> Runner:
    return Runner(world.database, signals, [BOOT], world, world.send, lease=0.5, poll=0.1, **kw)


async def begin(world: World, *, plug: bool = True, **params: Any) -> str:
    async with world.database.transaction() as tx:
        if plug:
            await tx.execute("INSERT INTO marks VALUES ('plug') ON CONFLICT DO NOTHING")
        return await journal.submit(tx, BOOT, subject="server:1", params=params)


@pytest.mark.parametrize("fuse", [True, False])
async def test_every_step_runs_once_in_order(world: World, signals: Signals, fuse: bool) -> None:
    conductor = runner(world, signals, fuse=fuse)
    await conductor.start()
    operation_id = await begin(world)
    assert await ended(world.database, operation_id) == "done"
    assert await marks(world.database) == DONE
    async with world.database.read() as tx:
        log = [tuple(r) for r in await tx.fetch("SELECT step, event FROM operation_steps ORDER BY at")]
    assert [s for s, e in log if e == "succeeded"] == STEPS
    await conductor.stop()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("point", ["before", "effect"])
@pytest.mark.parametrize("fuse", [True, False])
async def test_a_failure_at_any_step_undoes_everything(
    world: World, signals: Signals, step: str, point: str, fuse: bool
) -> None:
    inject = Inject(point, step, "forward", Conflict("injected"))
    conductor = runner(world, signals, faults=inject, fuse=fuse)
    await conductor.start()
    operation_id = await begin(world)
    outcome = await ended(world.database, operation_id)
    assert inject.reached
    # With fused steps the first failure only rolls the batch back: the step is taken again alone and may pass.
    expected = {"failed": {"plug", "error"}, "done": DONE}
    assert await marks(world.database) == expected[outcome]
    if not fuse:
        assert outcome == "failed"
    await conductor.stop()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("point", ["before", "effect", "recorded"])
@pytest.mark.parametrize("fuse", [True, False])
async def test_a_crash_at_any_point_is_taken_over(
    world: World, signals: Signals, step: str, point: str, fuse: bool
) -> None:
    inject = Inject(point, step, "forward", Crash())
    conductor = runner(world, signals, faults=inject, fuse=fuse)
    await conductor.start()
    operation_id = await begin(world)
    assert await ended(world.database, operation_id) == "done"
    assert inject.reached or (fuse and point == "recorded")
    assert await marks(world.database) == DONE
    await conductor.stop()


@pytest.mark.parametrize("step", STEPS[:-1])
@pytest.mark.parametrize("point", ["before", "effect", "recorded"])
@pytest.mark.parametrize("error", [Crash(), Conflict("undo fails")])
async def test_undo_survives_crash_and_failure(
    world: World, signals: Signals, step: str, point: str, error: BaseException
) -> None:
    if point == "recorded" and not isinstance(error, Crash):
        error = Crash()

    class Both(Inject):
        def at(self, point: str, kind: str, step: str, direction: str) -> None:
            assert kind == "test.boot"
            if (point, step, direction) == ("before", "finish", "forward"):
                raise Conflict("the last step fails")
            super().at(point, kind, step, direction)

    inject = Both(point, step, "undo", error)
    conductor = runner(world, signals, faults=inject, fuse=False)
    await conductor.start()
    operation_id = await begin(world)
    assert await ended(world.database, operation_id) == "failed"
    assert inject.reached
    assert await marks(world.database) == {"plug", "error"}
    await conductor.stop()


@pytest.mark.parametrize(
    ("bad", "unbindable", "host"), [({"h1"}, [], "h2"), (set(), ["h1", "h2"], "h3"), ({"h1"}, ["h2"], "h3")]
)
async def test_a_refusal_goes_to_the_next_host_with_the_same_ports(
    world: World, signals: Signals, bad: set[str], unbindable: list[str], host: str
) -> None:
    world.bad_hosts = bad
    conductor = runner(world, signals)
    await conductor.start()
    operation_id = await begin(world, unbindable=unbindable)
    assert await ended(world.database, operation_id) == "done"
    assert await marks(world.database) == {
        "ports",
        f"claim@{host}",
        "bound",
        f"guest@{host}",
        "plug",
        "active",
    }
    async with world.database.read() as tx:
        op = await journal.get(tx, operation_id)
        made = await tx.fetch(
            "SELECT 1 FROM operation_steps WHERE step = 'make_ports' AND event = 'succeeded'"
        )
    assert [r["host"] for r in op.refusals] == sorted(bad | set(unbindable))
    assert len(made) == 1
    await conductor.stop()


async def test_no_host_left_fails_and_leaves_nothing(world: World, signals: Signals) -> None:
    world.bad_hosts = {"h1", "h2", "h3"}
    conductor = runner(world, signals)
    await conductor.start()
    operation_id = await begin(world)
    assert await ended(world.database, operation_id) == "failed"
    assert await marks(world.database) == {"plug", "error"}
    await conductor.stop()


async def test_a_wait_is_woken_by_a_signal_and_ended_by_its_deadline(world: World, signals: Signals) -> None:
    conductor = runner(world, signals)
    await conductor.start()
    operation_id = await begin(world, plug=False)
    await asyncio.sleep(0.3)
    async with world.database.transaction() as tx:
        await tx.execute("INSERT INTO marks VALUES ('plug')")
        await journal.signal(tx, "server:1")
    assert await ended(world.database, operation_id) == "done"
    world.deadline = 0.2
    async with world.database.transaction() as tx:
        await tx.execute("DELETE FROM marks")
    operation_id = await begin(world, plug=False)
    assert await ended(world.database, operation_id) == "failed"
    assert await marks(world.database) == {"error"}
    await conductor.stop()


async def test_cancel_while_the_host_works_undoes_and_ignores_the_late_result(
    world: World, signals: Signals
) -> None:
    world.auto = False
    conductor = runner(world, signals)
    await conductor.start()
    operation_id = await begin(world)
    while not world.commands:
        await asyncio.sleep(0.01)
    async with world.database.transaction() as tx:
        assert await journal.cancel(tx, "server:1", kinds=["test.boot"])
    while len(world.commands) < 2:
        await asyncio.sleep(0.01)
    assert not await world.reply(world.commands[0])
    assert await world.reply(world.commands[1])
    assert await ended(world.database, operation_id) == "cancelled"
    assert await marks(world.database) == {"plug", "error"}
    await conductor.stop()


async def test_one_operation_of_a_subject_at_a_time_in_order(world: World, signals: Signals) -> None:
    first = await begin(world, plug=False)
    second = await begin(world, plug=False)
    conductor = runner(world, signals)
    await conductor.start()
    await asyncio.sleep(0.5)
    async with world.database.read() as tx:
        assert (await journal.get(tx, first)).state == "waiting"
        assert (await journal.get(tx, second)).state == "ready"
    async with world.database.transaction() as tx:
        await journal.cancel(tx, "server:1", kinds=["test.boot"])
    assert await ended(world.database, second) == "cancelled"
    await conductor.stop()


async def test_two_conductors_share_the_work_and_an_orderly_stop_hands_over(
    world: World, signals: Signals
) -> None:
    one, two = runner(world, signals), runner(world, signals)
    await one.start()
    await two.start()
    async with world.database.transaction() as tx:
        ids = [await journal.submit(tx, NOTHING, subject=f"n:{i}", params={}) for i in range(20)]
    three = Runner(world.database, signals, [NOTHING], world, world.send, lease=30, poll=0.1)
    await three.start()
    for operation_id in ids:
        assert await ended(world.database, operation_id) == "done"
    for conductor in (one, two, three):
        await conductor.stop()


async def tell_nobody(step: Step) -> Command | None:
    return None


TELL = operation("test.tell", version=1, steps=(remote(tell_nobody), local(finish)))


async def test_a_remote_step_with_nobody_to_tell_is_passed(world: World, signals: Signals) -> None:
    conductor = Runner(world.database, signals, [TELL], world, world.send, poll=0.1)
    await conductor.start()
    async with world.database.transaction() as tx:
        operation_id = await journal.submit(tx, TELL, subject="server:1", params={})
    assert await ended(world.database, operation_id) == "done"
    await conductor.stop()


async def nothing(step: Step) -> None:
    await asyncio.sleep(0)


NOTHING = operation("test.nothing", version=1, steps=(local(nothing),))


def test_a_table_that_cannot_be_driven_is_refused() -> None:
    with pytest.raises(ValueError, match="goes back"):
        operation("x", version=1, steps=(local(bind, on_refusal=back_to(pick_host)), local(pick_host)))
    with pytest.raises(ValueError, match="one name"):
        operation("x", version=1, steps=(local(bind), local(bind)))
    assert sa
