"""Operations: order, undo, refusals, waits, deadlines, cancellation, at every step and point."""

import pytest

from moorage.core.errors import Conflict
from moorage.operations import Command, Step, back_to, journal, local, operation, remote
from moorage.operations.faults import Crash
from moorage.operations.model import Operation
from operations.conftest import Conductor
from operations.world import (
    BOOT,
    DONE,
    HOUR,
    SHORT,
    STEPS,
    UNDONE,
    Fault,
    Faults,
    World,
    bind,
    boot,
    eventually,
    finish,
    mark,
    pick_host,
)
from tests.support.points import points

fused = pytest.mark.parametrize("fuse", [True, False], ids=["fused", "singly"])


@fused
async def test_every_step_runs_once_in_order(world: World, conductor: Conductor, fuse: bool) -> None:
    await conductor(fuse=fuse)
    assert await world.ended(await world.begin()) == "done"
    assert await world.marks() == DONE
    log = await world.sql("SELECT step, event FROM operation_steps ORDER BY at")
    assert [r[0] for r in log if r[1] == "succeeded"] == STEPS
    assert (await world.sql("SELECT count(*) = count(DISTINCT at) FROM operation_steps"))[0][0]


@fused
async def test_a_failure_at_any_step_undoes_everything(
    world: World, conductor: Conductor, fuse: bool
) -> None:
    faults = [
        Fault(f"server:{point}", point, Conflict("injected")) for point in points(BOOT, "before", "effect")
    ]
    await conductor(faults=Faults(*faults), fuse=fuse)
    for fault, operation_id in [(f, await world.begin(f.subject)) for f in faults]:
        outcome = await world.ended(operation_id)
        assert fault.reached, fault.point
        # With fused steps the first failure only rolls the batch back: the step is taken again alone and may pass.
        assert await world.marks(fault.subject) == (UNDONE if outcome == "failed" else DONE), fault.point
        assert outcome == "failed" or fuse


@fused
async def test_a_crash_at_any_point_is_taken_over(world: World, conductor: Conductor, fuse: bool) -> None:
    faults = [Fault(f"server:{point}", point, Crash()) for point in points(BOOT)]
    await conductor(faults=Faults(*faults), fuse=fuse, lease=SHORT)
    for fault, operation_id in [(f, await world.begin(f.subject)) for f in faults]:
        assert await world.ended(operation_id) == "done"
        assert fault.reached or (fuse and fault.point.at == "recorded"), fault.point
        assert await world.marks(fault.subject) == DONE, fault.point


class LastStepFails:
    """Every operation turns round at its end."""

    async def at(self, point: str, op: Operation, step: str) -> None:
        if (point, step, op.direction) == ("before", STEPS[-1], "forward"):
            raise Conflict("the last step fails")


async def test_undo_survives_crash_and_failure(world: World, conductor: Conductor) -> None:
    faults = [
        Fault(f"server:{point}-{name}", point, error, times)
        for point in points(BOOT, direction="undo")
        for name, error, times in (("crash", Crash(), 1), ("failure", Conflict("the undo fails"), 2))
        if point.at != "recorded" or isinstance(error, Crash)
    ]
    await conductor(faults=Faults(LastStepFails(), *faults), fuse=False, lease=SHORT)
    for fault, operation_id in [(f, await world.begin(f.subject)) for f in faults]:
        assert await world.ended(operation_id) == "failed"
        assert not fault.left, fault.point
        assert await world.marks(fault.subject) == UNDONE, fault.point


async def test_an_undo_at_which_its_host_fails_is_repeated(world: World, conductor: Conductor) -> None:
    world.failing["drop", "server:1"] = 2
    await conductor(faults=LastStepFails())
    assert await world.ended(await world.begin()) == "failed"
    assert sum(c["kind"] == "drop" for c in world.commands) == 3
    assert await world.marks() == UNDONE


@pytest.mark.parametrize(
    ("bad", "unbindable", "host"), [(["h1"], [], "h2"), ([], ["h1", "h2"], "h3"), (["h1"], ["h2"], "h3")]
)
async def test_a_refusal_goes_to_the_next_host_with_the_same_ports(
    world: World, conductor: Conductor, bad: list[str], unbindable: list[str], host: str
) -> None:
    await conductor()
    operation_id = await world.begin(bad=bad, unbindable=unbindable)
    assert await world.ended(operation_id) == "done"
    assert await world.marks() == {"ports", f"claim@{host}", "bound", f"guest@{host}", "plug", "active"}
    refusals = (await world.get(operation_id)).refusals
    assert [r["host"] for r in refusals] == sorted({*bad, *unbindable})
    made = "SELECT 1 FROM operation_steps WHERE step = 'make_ports' AND event = 'succeeded'"
    assert len(await world.sql(made)) == 1


async def test_no_host_left_fails_and_leaves_nothing(world: World, conductor: Conductor) -> None:
    await conductor()
    assert await world.ended(await world.begin(bad=["h1", "h2", "h3"])) == "failed"
    assert await world.marks() == UNDONE


async def test_a_wait_is_woken_by_a_signal_and_ended_by_its_deadline(
    world: World, conductor: Conductor
) -> None:
    await conductor()
    operation_id = await world.begin("server:woken", plug=False)

    async def waits() -> bool:
        found = await world.get(operation_id)
        return (found.step, found.state) == ("plugged", "waiting")

    await eventually(waits)
    async with world.database.transaction() as tx:
        await tx.execute("INSERT INTO marks VALUES ('server:woken', 'plug')")
        await journal.signal(tx, "server:woken")
    assert await world.ended(operation_id) == "done"
    world.deadline = 0.2
    assert await world.ended(await world.begin("server:late", plug=False)) == "failed"
    assert await world.marks("server:late") == {"error"}


@pytest.mark.parametrize("step", ["make_guest", "plugged"])
async def test_an_operation_that_is_not_done_in_time_is_undone(
    world: World, conductor: Conductor, step: str
) -> None:
    """Whatever it waits for: a host, or an event."""
    await conductor(deadlines={"test.boot": HOUR})
    world.hold = step == "make_guest"
    operation_id = await world.begin(plug=step != "plugged")

    async def waits() -> bool:
        found = await world.get(operation_id)
        return (found.step, found.state) == (step, "waiting")

    async def undo_sent() -> bool:
        return len(world.commands) == 2

    await eventually(waits)
    await world.sql("UPDATE operations SET created_at = created_at - interval '1 hour', wake_at = now()")
    if world.hold:
        await eventually(undo_sent)
        await world.reply(world.commands[1])
    assert await world.ended(operation_id) == "failed"
    assert (await world.get(operation_id)).error["code"] == "operation.deadline"
    assert await world.marks() - {"plug"} == {"error"}


async def test_the_deadline_of_a_definition_holds_where_none_is_configured(
    world: World, conductor: Conductor
) -> None:
    await conductor(definitions=[boot(deadline=0.5)])
    assert await world.ended(await world.begin(plug=False)) == "failed"


async def test_a_configured_deadline_of_nothing_is_no_limit(world: World, conductor: Conductor) -> None:
    await conductor(definitions=[boot(deadline=1e-6)], deadlines={"test.boot": 0.0})
    assert await world.ended(await world.begin()) == "done"


async def test_cancel_while_the_host_works_undoes_and_ignores_the_late_result(
    world: World, conductor: Conductor
) -> None:
    world.hold = True
    await conductor()
    operation_id = await world.begin()

    async def sent(count: int) -> None:
        async def there() -> bool:
            return len(world.commands) >= count

        await eventually(there)

    await sent(1)
    async with world.database.transaction() as tx:
        assert await journal.cancel(tx, "server:1", kinds=["test.boot"])
    await sent(2)
    assert not await world.reply(world.commands[0])
    assert await world.reply(world.commands[1])
    assert await world.ended(operation_id) == "cancelled"
    assert await world.marks() == UNDONE


async def test_a_host_that_is_not_heard_of_is_not_waited_for(world: World, conductor: Conductor) -> None:
    """The next host is tried as soon as the guest is surely gone from the silent one: when that is back."""
    world.hold = True
    await conductor(look=0.05)
    operation_id = await world.begin()
    await world.until(operation_id, "waiting")
    world.silent.add("h1")

    async def undo_failed() -> bool:
        found = await world.get(operation_id)
        return found.data.get("_undo_error", {}).get("code") == "operation.host_silent"

    await eventually(undo_failed)
    assert {c["host"] for c in world.commands} == {"h1"}, "nothing is built elsewhere meanwhile"
    assert len(world.commands) == 1, "a host that is not heard of gets no pile of commands"
    assert await world.marks() == {"ports", "claim@h1", "bound", "plug"}, "what may be in use is held"
    world.hold = False
    world.silent.clear()
    assert await world.ended(operation_id) == "done"
    assert (await world.get(operation_id)).refusals[0]["code"] == "operation.host_silent"
    assert await world.marks() == {"ports", "claim@h2", "bound", "guest@h2", "plug", "active"}


async def test_a_step_can_go_on_without_a_host_that_is_not_heard_of(
    world: World, conductor: Conductor
) -> None:
    definition = operation(
        "test.leave", version=1, steps=(remote(make_on_h1, on_silence=leave), local(finish))
    )
    world.hold = True
    await conductor(definitions=[definition], look=0.05)
    before = await world.begin("server:before", of=definition)
    await world.until(before, "waiting")
    world.silent.add("h1")
    after = await world.begin("server:after", of=definition)
    for subject, operation_id in (("server:before", before), ("server:after", after)):
        assert await world.ended(operation_id) == "done"
        assert await world.marks(subject) == {"plug", "left", "active"}

    async def both_out() -> bool:
        return len(world.commands) == 2

    await eventually(both_out)  # they are in the host's queue for its return
    assert not await world.reply(world.commands[0])


async def make_on_h1(step: Step) -> Command:
    return Command("h1", "make", {"subject": step.subject, "bad": ()})


async def leave(step: Step) -> None:
    await mark(step.tx, step.subject, "left")


async def tell_nobody(step: Step) -> Command | None:
    return None


TELL = operation("test.tell", version=1, steps=(remote(tell_nobody), local(finish)))


async def test_a_remote_step_with_nobody_to_tell_is_passed(world: World, conductor: Conductor) -> None:
    await conductor(definitions=[TELL])
    assert await world.ended(await world.begin(of=TELL)) == "done"


def test_a_table_that_cannot_be_driven_is_refused() -> None:
    with pytest.raises(ValueError, match="goes back"):
        operation("x", version=1, steps=(local(bind, on_refusal=back_to(pick_host)), local(pick_host)))
    with pytest.raises(ValueError, match="one name"):
        operation("x", version=1, steps=(local(bind), local(bind)))
