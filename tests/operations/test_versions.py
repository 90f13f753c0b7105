"""Operations that an earlier release began: resumed or undone by the next, or left to one that knows them."""

from pathlib import Path

import pytest

from moorage.compute.operations import DEFINITIONS, released
from moorage.operations import Definition, Earlier, back_to, local, operation, remote, wait
from moorage.operations.faults import Crash
from moorage.operations.versions import Release, broken, release_of
from operations.conftest import Conductor
from operations.test_engine import LastStepFails
from operations.world import (
    BOOT,
    DONE,
    STEPS,
    UNDONE,
    Fault,
    Faults,
    World,
    bind,
    drop_guest,
    drop_ports,
    eventually,
    failed,
    finish,
    make_guest,
    make_ports,
    pick_host,
    plugged,
    stuck,
    unbind,
    unpick,
)
from tests.support.points import Point


async def attach(step):
    return await bind(step)


async def build(step):
    return await make_guest(step)


RENAMED = {"bind": "attach", "make_guest": "build"}


def next_release(rule: Earlier | None) -> Definition:
    """The next release's boot: two steps have other names."""
    return operation(
        "test.boot",
        version=2,
        steps=(
            local(make_ports, undo=drop_ports),
            local(pick_host, undo=unpick),
            local(attach, undo=unbind, on_refusal=back_to(pick_host)),
            remote(build, undo=drop_guest, on_refusal=back_to(pick_host)),
            wait(plugged, deadline=lambda world: world.deadline),
            local(finish),
        ),
        on_failure=failed,
        on_stuck=stuck,
        earlier={1: rule} if rule is not None else {},
    )


async def begun_everywhere(world: World, conductor: Conductor, direction: str) -> dict[str, str]:
    """Operations of the first release, one stopped at each step: subject -> id."""
    turn = [LastStepFails()] if direction == "undo" else []
    steps = STEPS[:-1] if direction == "undo" else STEPS
    faults = [Fault(f"server:{step}", Point(step, "before", direction), Crash()) for step in steps]
    old = await conductor(faults=Faults(*turn, *faults), fuse=False, lease=3600)
    found = {f"server:{step}": await world.begin(f"server:{step}") for step in steps}

    async def all_reached() -> bool:
        return all(fault.reached for fault in faults)

    await eventually(all_reached)
    await old.kill()
    for subject, operation_id in found.items():
        row = await world.get(operation_id)
        assert (row.version, row.direction, row.step) == (1, direction, subject.partition(":")[2])
    return found


async def release_leases(world: World) -> None:
    await world.sql("UPDATE operations SET lease_until = now() - interval '1 second' WHERE state = 'running'")


@pytest.mark.parametrize("direction", ["forward", "undo"])
async def test_the_next_release_goes_on_with_what_the_last_one_began(
    world: World, conductor: Conductor, direction: str
) -> None:
    begun = await begun_everywhere(world, conductor, direction)
    await conductor(definitions=[next_release(Earlier(RENAMED))])
    await release_leases(world)
    for subject, operation_id in begun.items():
        assert await world.ended(operation_id) == ("done" if direction == "forward" else "failed")
        assert await world.marks(subject) == (DONE if direction == "forward" else UNDONE), subject
        assert (await world.get(operation_id)).version == 2


async def test_the_next_release_hears_the_answer_to_the_last_ones_command(
    world: World, conductor: Conductor
) -> None:
    """And hosts are asked under the name they know, so that they can tell which command is the later one."""
    world.hold = True
    old = await conductor()
    operation_id = await world.begin(bad=["h1"])
    await world.until(operation_id, "waiting")
    await old.stop()
    await conductor(definitions=[next_release(Earlier(RENAMED))], look=0.05)

    async def adopted() -> bool:
        return (await world.get(operation_id)).version == 2

    await world.sql("UPDATE operations SET wake_at = now()")
    await eventually(adopted)
    world.hold = False
    assert await world.reply(world.commands[0])
    assert await world.ended(operation_id) == "done"
    assert {c["step"] for c in world.commands} == {"make_guest"}
    fences = [c["fence"] for c in world.commands]
    assert fences == sorted(fences)
    assert fences[0] < fences[-1]


async def test_what_the_next_release_does_otherwise_is_undone(world: World, conductor: Conductor) -> None:
    begun = await begun_everywhere(world, conductor, "forward")
    await conductor(definitions=[next_release(Earlier(RENAMED, unwind=True))])
    await release_leases(world)
    for subject, operation_id in begun.items():
        assert await world.ended(operation_id) == "failed"
        assert await world.marks(subject) == UNDONE
        assert (await world.get(operation_id)).error["code"] == "operation.begun_earlier"


@pytest.mark.parametrize("other", [next_release(None), operation("test.new", version=1, steps=BOOT.steps)])
async def test_what_a_conductor_does_not_know_is_left_to_one_that_does(
    world: World, conductor: Conductor, other: Definition
) -> None:
    """An older conductor among newer ones, or the other way round: it says so, and goes on with its own."""
    operation_id = await world.begin("server:other", of=other)
    ignorant = await conductor()
    assert await world.ended(await world.begin()) == "done"

    async def said() -> bool:
        return ignorant.unknown == [(other.kind, other.version, 1)]

    await eventually(said)
    assert (await world.get(operation_id)).fence == 0
    await conductor(definitions=[other])
    assert await world.ended(operation_id) == "done"


def test_nothing_that_was_released_is_lost() -> None:
    """Each released kind and version has its steps still, or a rule that leads each of them somewhere."""
    lines = released.read(released.FILE.read_text())
    assert {line.kind for line in lines} >= {
        f"server.{k}" for k in ("boot", "delete", "start", "stop", "reboot")
    }
    assert broken(DEFINITIONS, lines) == []


@pytest.mark.parametrize(
    ("definitions", "words"),
    [
        ([], "no definition any more"),
        ([operation("test.boot", version=1, steps=BOOT.steps[:-1])], "give it version 2"),
        ([next_release(None)], "no rule"),
        ([next_release(Earlier())], "step bind leads nowhere"),
    ],
    ids=["the kind is gone", "its steps changed", "no rule", "the rule forgets a step"],
)
def test_what_would_be_lost_is_named(definitions: list[Definition], words: str) -> None:
    assert any(words in sentence for sentence in broken(definitions, [release_of(BOOT)]))
    assert broken([next_release(Earlier(RENAMED))], [release_of(BOOT)]) == []


def test_a_rule_leads_to_steps_that_exist_and_from_versions_that_were() -> None:
    for earlier in ({1: Earlier({"bind": "nowhere"})}, {2: Earlier()}):
        with pytest.raises(ValueError, match="leads to no step"):
            operation("test.boot", version=2, steps=BOOT.steps, earlier=earlier)


def test_the_command_adds_what_is_new_and_keeps_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "released.toml"
    monkeypatch.setattr(released, "FILE", file)
    assert released.main() == 0
    assert released.read(file.read_text()) == sorted(map(release_of, DEFINITIONS), key=lambda r: r.kind)
    before = file.read_text()
    assert released.main() == 0
    assert file.read_text() == before
    gone = Release("server.gone", 1, ("do_it",))
    file.write_text(released.written([*released.read(before), gone]))
    assert released.main() == 1
    assert "server.gone" in capsys.readouterr().err
    assert gone in released.read(file.read_text())
