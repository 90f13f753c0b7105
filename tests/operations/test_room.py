"""How much is under way at hosts: bounded for each and for all, in fair turns, and never in the way of what is urgent."""

from collections import Counter
from typing import Any

from moorage.operations import URGENT, Command, NoRoom, Step, journal, local, operation, remote
from operations.conftest import Conductor
from operations.test_engine import make_on_h1
from operations.world import BOOT, DONE, World, eventually, finish


async def pick_h1(step: Step) -> str:
    if "h1" in step.full:
        raise NoRoom("it is full", subject="h1")
    return "h1"


async def drop_on_h1(step: Step) -> Command:
    return Command("h1", "drop", {"subject": step.subject, "bad": ()})


ON_H1 = operation("test.on_h1", version=1, steps=(remote(make_on_h1), local(finish)))
PICK_H1 = operation("test.pick_h1", version=1, steps=(local(pick_h1), remote(make_on_h1), local(finish)))
DELETE = operation("test.delete", version=1, priority=URGENT, steps=(remote(drop_on_h1),))
HOUR = 3600.0  # a machine that is held up gives nothing away: each command is sent once
# Those that look now and then whether there is room are among them while they look.
WAITING = (
    "SELECT id FROM operations WHERE state IN ('waiting', 'ready', 'running') AND data ? '_room' ORDER BY seq"
)


async def sent(world: World, count: int) -> None:
    async def there() -> bool:
        return len(world.commands) >= count

    await eventually(there)


async def waiting(world: World, count: int) -> list[str]:
    """The operations that wait for room, once there are so many."""

    async def there() -> bool:
        return len(await world.sql(WAITING)) == count

    await eventually(there)
    return [row[0] for row in await world.sql(WAITING)]


async def test_a_host_has_no_more_under_way_than_it_may_and_what_waits_holds_nothing(
    world: World, conductor: Conductor
) -> None:
    """Boots go to hosts with room; once all are full, they wait as if they had not begun."""
    world.hold = True
    for _ in range(2):
        await conductor(lease=HOUR, per_host=4, look=0.2)
    found = {f"server:{n}": await world.begin(f"server:{n}") for n in range(20)}
    held = await waiting(world, 8)
    await sent(world, 12)
    hosts = Counter(c["host"] for c in world.commands)
    assert hosts == {"h1": 4, "h2": 4, "h3": 4}
    for subject, operation_id in found.items():
        if operation_id in held:
            assert await world.marks(subject) == {"plug"}
    done: list[dict[str, Any]] = []
    for number in range(20):
        # One answers, one more is asked, and never two.
        await sent(world, min(20, number + 12))
        open_ = [c for c in world.commands if c not in done]
        assert max(Counter(c["host"] for c in open_).values()) <= 4
        done.append(open_[0])
        assert await world.reply(open_[0])
    for subject, operation_id in found.items():
        assert await world.ended(operation_id) == "done"
        assert {m.partition("@")[0] for m in await world.marks(subject)} == {
            m.partition("@")[0] for m in DONE
        }
    assert len(world.commands) == 20


async def test_however_many_wait_for_a_host_each_place_that_is_free_is_taken(
    world: World, conductor: Conductor
) -> None:
    """More wait than may be under way there: for who is told of a place the host is not full, though it is for others."""
    world.hold = True
    for _ in range(2):
        await conductor(definitions=[PICK_H1], lease=HOUR, per_host=2, look=HOUR)
    found = [await world.begin(f"server:{n}", of=PICK_H1) for n in range(12)]
    await waiting(world, 10)
    for number in range(12):
        await sent(world, min(12, number + 2))
        assert await world.reply(world.commands[number])
    for operation_id in found:
        assert await world.ended(operation_id) == "done"


async def test_places_at_a_host_go_to_the_project_that_has_the_fewest(
    world: World, conductor: Conductor
) -> None:
    world.hold = True
    await conductor(definitions=[ON_H1], lease=HOUR, per_host=2)
    for n in range(8):
        await world.begin(f"a{n}", of=ON_H1, project="a")
    await waiting(world, 6)
    for n in range(2):
        await world.begin(f"b{n}", of=ON_H1, project="b")
    await waiting(world, 8)
    for number in range(10):
        await sent(world, min(10, number + 2))
        assert await world.reply(world.commands[number])
    order = [c["payload"]["subject"] for c in world.commands]
    assert set(order[:2]) < {f"a{n}" for n in range(8)}
    assert [each[0] for each in order[2:6]] == ["b", "a", "b", "a"]


async def test_what_is_urgent_and_what_is_undone_waits_for_no_room(
    world: World, conductor: Conductor
) -> None:
    world.hold = True
    await conductor(definitions=[ON_H1, DELETE], lease=HOUR, per_host=2, at_hosts=2)
    for n in range(6):
        await world.begin(f"s{n}", of=ON_H1)
    await sent(world, 2)
    for n in range(5):
        await world.begin(f"d{n}", of=DELETE)
    await sent(world, 7)
    assert Counter(c["kind"] for c in world.commands) == {"make": 2, "drop": 5}


async def test_undoing_waits_for_no_room(world: World, conductor: Conductor) -> None:
    """A boot that fails takes its guest away from its host, which has got other things to do meanwhile."""
    await conductor(definitions=[BOOT, ON_H1], lease=HOUR, per_host=1)
    world.hold = True
    boot = await world.begin("server:0", plug=False)
    await sent(world, 1)
    other = await world.begin("server:1", of=ON_H1)
    assert await waiting(world, 1) == [other]
    assert await world.reply(world.commands[0])
    await sent(world, 2)
    async with world.database.transaction() as tx:
        assert await journal.cancel(tx, "server:0", kinds=["test.boot"])
    await sent(world, 3)
    assert [(c["kind"], c["operation"]) for c in world.commands[1:]] == [("make", other), ("drop", boot)]
    for command in world.commands[1:]:
        assert await world.reply(command)
    assert (await world.ended(boot), await world.ended(other)) == ("cancelled", "done")
    assert await world.marks("server:0") == {"error"}


async def test_no_more_is_begun_than_may_be_under_way_at_all_hosts(
    world: World, conductor: Conductor
) -> None:
    world.hold = True
    await conductor(lease=HOUR, at_hosts=5)
    found = [await world.begin(f"server:{n}") for n in range(20)]
    await sent(world, 5)
    for number in range(20):
        await sent(world, min(20, number + 5))
        begun = await world.sql("SELECT count(*) FROM operations WHERE fence > 0 AND state <> 'done'")
        assert begun[0][0] <= 6  # and the one that has just been answered
        assert await world.reply(world.commands[number])
    for operation_id in found:
        assert await world.ended(operation_id) == "done"


async def test_what_waits_for_room_can_be_cancelled_and_outlives_its_conductor(
    world: World, conductor: Conductor
) -> None:
    world.hold = True
    first = await conductor(definitions=[ON_H1], lease=HOUR, per_host=1)
    found = [await world.begin(f"server:{n}", of=ON_H1) for n in range(4)]
    held = await waiting(world, 3)
    async with world.database.transaction() as tx:
        subject = (await journal.get(tx, held[0])).subject
        assert await journal.cancel(tx, subject, kinds=["test.on_h1"])
    assert await world.ended(held[0]) == "cancelled"
    await first.kill()
    await conductor(definitions=[ON_H1], lease=HOUR, per_host=1)
    for number in range(3):
        await sent(world, number + 1)
        assert await world.reply(world.commands[number])
    for operation_id in found:
        assert await world.ended(operation_id) == ("cancelled" if operation_id == held[0] else "done")
