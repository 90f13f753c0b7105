"""Several conductors over one database: who may drive what, and what a dead one leaves to the others."""

import asyncio

from moorage.core import config
from moorage.operations import Step, journal, local, operation, submit
from moorage.operations.model import Operation
from moorage.server.options import options
from moorage.store.database import Database
from operations.conftest import Conductor
from operations.test_engine import LastStepFails
from operations.world import BOOT, DONE, HOUR, STEPS, UNDONE, Faults, Gate, World, eventually
from tests.support.points import Point, points


async def nothing(_step: Step) -> None:
    await asyncio.sleep(0)


NOTHING = operation("test.nothing", version=1, steps=(local(nothing),))


async def test_several_conductors_share_the_work(world: World, conductor: Conductor) -> None:
    all_work, drove = asyncio.Event(), [Noted() for _ in range(3)]
    for noted in drove:
        noted.go_on = all_work
        await conductor(definitions=[NOTHING], faults=noted, concurrency=2)
    begun = [await world.begin(f"n:{i}", of=NOTHING) for i in range(60)]

    async def each_has_some() -> bool:
        return all(noted.seen for noted in drove)

    # Each stands still at its first ones, so that there is work for the next, whoever comes first.
    await eventually(each_has_some)
    all_work.set()
    for operation_id in begun:
        assert await world.ended(operation_id) == "done"
    assert sum(len(noted.seen) for noted in drove) == len(set.union(*(noted.seen for noted in drove))) == 60


class Noted:
    """Which operations a conductor drove; it goes on with them at ``go_on``."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.go_on = asyncio.Event()

    async def at(self, _point: str, op: Operation, _step: str) -> None:
        self.seen.add(op.id)
        await self.go_on.wait()


async def test_what_a_dead_conductor_drove_is_taken_over_when_its_lease_has_run_out(
    world: World, conductor: Conductor
) -> None:
    gate = Gate(Point("bind", "effect"))
    first = await conductor(faults=gate, lease=HOUR)
    operation_id = await world.begin()
    await gate.reached()
    await first.kill()
    second = await conductor(lease=HOUR)
    # What it can claim, it claims in order: this one began later and is done, the other is not touched.
    assert await world.ended(await world.begin("server:2")) == "done"
    assert (await world.get(operation_id)).state == "running"
    owner = await world.sql("SELECT owner FROM operations WHERE id = $1", operation_id)
    assert owner[0][0] == first.owner != second.owner
    await world.sql("UPDATE operations SET lease_until = now() - interval '1 second'")
    assert await world.ended(operation_id) == "done"
    assert await world.marks() == DONE


def test_a_dead_conductor_is_replaced_within_forty_seconds_as_configured_by_default() -> None:
    """The lease has been renewed at most just now; the others look for such work at every poll."""
    conductor = config.load(options(), environ={}).conductor
    assert conductor.lease + conductor.poll <= 40


async def test_a_lease_that_is_renewed_is_not_taken_away(world: World, conductor: Conductor) -> None:
    gate = Gate(Point("bind", "effect"))
    await conductor(faults=gate, lease=3.0)
    operation_id = await world.begin()
    await gate.reached()
    # The second comes when the operation is the first's: whoever claims it is not told by a test.
    await conductor(lease=3.0)
    until = "SELECT lease_until FROM operations WHERE id = $1"
    first = (await world.sql(until, operation_id))[0][0]

    # Renewed by so much, it has been held for longer than a lease lasts.
    async def renewed_for_long() -> bool:
        now = await world.sql("SELECT lease_until - $2::timestamptz > interval '3 seconds' FROM operations "
                              "WHERE id = $1", operation_id, first)  # fmt: skip
        return bool(now[0][0])

    await eventually(renewed_for_long)
    assert (await world.get(operation_id)).fence == 1
    gate.open.set()
    assert await world.ended(operation_id) == "done"


async def test_an_orderly_stop_hands_over_at_once(world: World, conductor: Conductor) -> None:
    gate = Gate(Point("bind", "effect"))
    first = await conductor(faults=gate, lease=HOUR)
    operation_id = await world.begin()
    await gate.reached()
    await conductor(lease=HOUR, poll=HOUR)
    await first.stop(within=0.1)
    assert await world.ended(operation_id) == "done"
    assert await world.marks() == DONE


async def test_an_orderly_stop_lets_what_runs_come_to_its_next_record(
    world: World, conductor: Conductor
) -> None:
    gate = Gate(Point("make_ports", "effect"))
    world.hold = True
    first = await conductor(faults=gate, lease=HOUR, fuse=False)
    operation_id = await world.begin()
    await gate.reached()
    stopping = asyncio.create_task(first.stop(within=HOUR))
    await asyncio.sleep(0)
    gate.open.set()
    await stopping
    found = await world.get(operation_id)
    # It went on until it had to wait for its host.
    assert found.fence == 1
    assert (found.step, found.state) == ("make_guest", "waiting")


async def test_a_conductor_whose_lease_was_taken_away_writes_nothing_more(
    world: World, conductor: Conductor
) -> None:
    """At every step and point, forward and back: it stands still while another takes over and ends the operation."""
    back = points(BOOT, "before", "recorded", direction="undo")
    for point in points(BOOT, "before", "recorded") + back:
        subject, undone = f"server:{point}", point.direction == "undo"
        gate = Gate(point)
        turn = [LastStepFails()] if undone else []
        first = await conductor(faults=Faults(*turn, gate), lease=HOUR, fuse=False, concurrency=1)
        operation_id = await world.begin(subject)
        await gate.reached()
        second = await conductor(faults=Faults(*turn), lease=HOUR, fuse=False)
        await world.sql(
            "UPDATE operations SET lease_until = now() - interval '1 second' WHERE id = $1",
            operation_id,
        )
        assert await world.ended(operation_id) == ("failed" if undone else "done"), point
        gate.open.set()
        await first.stop()
        assert await world.marks(subject) == (UNDONE if undone else DONE), point
        log = "SELECT count(*) FROM operation_steps WHERE operation = $1 AND event = 'succeeded'"
        assert (await world.sql(log, operation_id))[0][0] == len(STEPS) - undone
        await second.stop()


async def test_a_transaction_of_a_conductor_that_stands_still_holds_nobody_up(
    world: World, conductor: Conductor, database_url: str
) -> None:
    """Stopped, or cut off with its machine: what it has locked is let go, and its lease runs out."""
    gate = Gate(Point("finish", "effect"))
    own = Database(database_url, idle_timeout=0.5)
    await own.open()
    await conductor(database=own, faults=gate, lease=HOUR, concurrency=1, fuse=False)
    operation_id = await world.begin()
    await gate.reached()
    await conductor()
    await world.sql("UPDATE operations SET lease_until = now() - interval '1 second'")
    # The same rows are written by the other: it would wait for the locks of the first.
    assert await world.ended(operation_id) == "done"
    assert await world.marks() == DONE
    gate.open.set()
    await own.close()


async def test_what_lost_its_connection_is_given_back_and_not_held_for_the_lease(
    world: World, conductor: Conductor
) -> None:
    gate = Gate(Point("bind", "effect"))
    await conductor(faults=gate, lease=HOUR)
    operation_id = await world.begin()
    await gate.reached()
    # Each is gone when this returns: one that is still going would be handed to the test itself.
    await world.sql(
        "SELECT pg_terminate_backend(pid, 50000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    gate.open.set()
    assert await world.ended(operation_id) == "done"
    assert await world.marks() == DONE


async def test_one_operation_of_a_subject_at_a_time_in_order(world: World, conductor: Conductor) -> None:
    first = await world.begin(plug=False)
    second = await world.begin(plug=False)
    await conductor()
    await world.until(first, "waiting")
    assert await world.ended(await world.begin("server:2")) == "done"
    assert (await world.get(second)).fence == 0
    async with world.database.transaction() as tx:
        await journal.cancel(tx, "server:1", kinds=["test.boot"])
    assert await world.ended(second) == "cancelled"


async def test_an_older_operation_that_is_committed_later_waits_for_the_one_that_has_begun(
    world: World, conductor: Conductor, database: Database
) -> None:
    await conductor()
    async with database.transaction() as slow:
        older = await submit(slow, NOTHING_OF_BOOT, subject="server:1", params={})
        newer = await world.begin(plug=False)
        await world.until(newer, "waiting")
    assert await world.ended(await world.begin("server:2")) == "done"
    assert (await world.get(older)).fence == 0
    async with database.transaction() as tx:
        await tx.execute("INSERT INTO marks VALUES ('server:1', 'plug')")
        await journal.signal(tx, "server:1")
    assert await world.ended(newer) == "done"


NOTHING_OF_BOOT = operation("test.boot", version=1, steps=(local(nothing),))
