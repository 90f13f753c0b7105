"""Who goes first: what is urgent, what has begun, and the projects in turn. By order and count, never by time."""

from moorage.operations import URGENT, Definition, Step, journal, local, operation, submit, wait
from moorage.operations.model import Operation
from operations.conftest import Conductor
from operations.world import Gate, World, eventually
from tests.support.points import Point


async def do_it(_step: Step) -> None:
    """Nothing to do."""


async def told(step: Step) -> bool:
    return bool(await step.tx.fetch("SELECT 1 FROM marks WHERE subject = $1", (step.subject,)))


WORK = operation("test.work", version=1, steps=(local(do_it),))
DELETE = operation("test.delete", version=1, priority=URGENT, steps=(local(do_it),))
LONG = operation("test.long", version=1, steps=(wait(told, deadline=600.0), local(do_it)))
ALL = [WORK, DELETE, LONG]


class Order:
    """The subjects in the order in which a conductor takes them up."""

    def __init__(self, step: str = "do_it") -> None:
        self.step = step
        self.seen: list[str] = []

    async def at(self, point: str, op: Operation, step: str) -> None:
        if (point, step) == ("before", self.step):
            self.seen.append(op.subject)


async def ask(world: World, definition: Definition, subject: str, project: str = "") -> str:
    async with world.database.transaction() as tx:
        return await submit(tx, definition, subject=subject, params={}, project=project)


async def test_a_flood_of_slow_work_does_not_starve_what_is_urgent(
    world: World, conductor: Conductor
) -> None:
    """All the work stands still; deletes end all the same, as a place is kept for them."""
    gate = Gate(Point("do_it", "before"), "test.work")
    await conductor(definitions=ALL, faults=gate, concurrency=4)
    flood = [await ask(world, WORK, f"w:{n}") for n in range(40)]
    await gate.reached(3)
    for operation_id in [await ask(world, DELETE, f"d:{n}") for n in range(10)]:
        assert await world.ended(operation_id) == "done"
    begun = await world.sql("SELECT count(*) FROM operations WHERE kind = 'test.work' AND fence > 0")
    assert begun[0][0] == 3
    gate.open.set()
    for operation_id in flood:
        assert await world.ended(operation_id) == "done"


async def test_no_more_is_driven_at_once_than_is_configured(world: World, conductor: Conductor) -> None:
    gates = [Gate(Point("do_it", "before"), kind) for kind in ("test.work", "test.delete")]

    class Both:
        async def at(self, point: str, op: Operation, step: str) -> None:
            for gate in gates:
                await gate.at(point, op, step)

    found = [await ask(world, DELETE, f"d:{n}") for n in range(20)]
    found += [await ask(world, WORK, f"w:{n}") for n in range(20)]
    await conductor(definitions=ALL, faults=Both(), concurrency=4)
    await gates[1].reached(4)
    running = await world.sql("SELECT count(*) FROM operations WHERE state = 'running'")
    assert running[0][0] == 4
    for gate in gates:
        gate.open.set()
    for operation_id in found:
        assert await world.ended(operation_id) == "done"


async def test_what_is_urgent_goes_first(world: World, conductor: Conductor) -> None:
    order = Order()
    work = [await ask(world, WORK, f"w:{n}") for n in range(20)]
    deletes = [await ask(world, DELETE, f"d:{n}") for n in range(3)]
    await conductor(definitions=ALL, faults=order, concurrency=1)
    for operation_id in [*work, *deletes]:
        assert await world.ended(operation_id) == "done"
    assert order.seen == ["d:0", "d:1", "d:2", *[f"w:{n}" for n in range(20)]]


async def test_projects_take_turns(world: World, conductor: Conductor) -> None:
    """One that asks for much waits for its own: another's first is next, and later ones alternate."""
    order = Order()
    found = [await ask(world, WORK, f"a{n}", "a") for n in range(8)]
    found += [await ask(world, WORK, f"b{n}", "b") for n in range(3)]
    await conductor(definitions=ALL, faults=order, concurrency=1)
    for operation_id in found:
        assert await world.ended(operation_id) == "done"
    assert order.seen == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4", "a5", "a6", "a7"]


async def test_who_comes_late_gets_the_next_turn_and_not_every_turn(
    world: World, conductor: Conductor
) -> None:
    class Late(Order):
        """Another project comes while the first one's sixth is done."""

        async def at(self, point: str, op: Operation, step: str) -> None:
            await super().at(point, op, step)
            if (point, op.subject) == ("before", "a5"):
                found.extend([await ask(world, WORK, f"late{n}", "late") for n in range(4)])

    order = Late()
    found = [await ask(world, WORK, f"a{n}", "a") for n in range(10)]
    await conductor(definitions=ALL, faults=order, concurrency=1)
    for operation_id in found:
        assert await world.ended(operation_id) == "done"
    assert order.seen[6:] == ["a6", "late0", "a7", "late1", "a8", "late2", "a9", "late3"]


async def test_what_has_begun_is_finished_before_more_is_begun(world: World, conductor: Conductor) -> None:
    order = Order()
    begun = [await ask(world, LONG, f"long:{n}") for n in range(5)]
    first = await conductor(definitions=ALL, faults=order, concurrency=1)
    for operation_id in begun:
        await world.until(operation_id, "waiting")
    await first.stop()
    more = [await ask(world, WORK, f"w:{n}") for n in range(5)]
    async with world.database.transaction() as tx:
        for n in range(5):
            await tx.execute("INSERT INTO marks VALUES ($1, 'told')", (f"long:{n}",))
        await journal.signal(tx, *[f"long:{n}" for n in range(5)])
    await conductor(definitions=ALL, faults=order, concurrency=1)

    async def all_done() -> bool:
        left = await world.sql("SELECT 1 FROM operations WHERE state <> 'done'")
        return not left

    await eventually(all_done)
    assert len(more) == 5
    assert [subject.partition(":")[0] for subject in order.seen] == ["long"] * 5 + ["w"] * 5
