import msgspec
import pytest

from moorage.agent.journal import FileJournal, MemoryJournal
from moorage.wire.coding import UnknownKindError, payload_of
from moorage.wire.messages import Command, Result


@pytest.fixture(params=["memory", "file"])
async def journal(request, tmp_path):
    made = MemoryJournal() if request.param == "memory" else FileJournal(tmp_path / "journal")
    yield made
    await made.close()


def command(operation="op", step="s", fence=1, kind="guest.start", command_id=None, seq=1):
    return Command(
        id=command_id or f"{operation}-{step}-{fence}-{kind}",
        seq=seq,
        operation=operation,
        step=step,
        fence=fence,
        kind=kind,
        payload=msgspec.Raw(b'{"server_id": "g"}'),
    )


async def accept(journal, command, guest="g"):
    return await journal.accept(command, guest)


def result(c, outcome="succeeded"):
    return Result(command_id=c.id, operation=c.operation, step=c.step, fence=c.fence, outcome=outcome)


async def test_a_new_key_runs_and_an_unfinished_one_runs_again(journal):
    assert (await accept(journal, command())).action == "run"
    assert (await accept(journal, command())).action == "run"


async def test_a_finished_key_is_replayed_to_the_command_that_asks(journal):
    await accept(journal, command())
    await journal.finish(command(), result(command(), "failed"))
    verdict = await accept(journal, command(command_id="other"))
    assert (verdict.action, verdict.result.outcome, verdict.result.command_id) == (
        "replay",
        "failed",
        "other",
    )


async def test_a_higher_fence_runs_again_and_the_lower_one_is_then_refused(journal):
    await accept(journal, command(fence=1))
    await journal.finish(command(fence=1), result(command(fence=1)))
    assert (await accept(journal, command(fence=3))).action == "run"
    verdict = await accept(journal, command(fence=1))
    assert (verdict.action, verdict.higher) == ("refuse", 3)
    assert (await accept(journal, command(fence=2, kind="guest.destroy"))).action == "refuse"


async def test_steps_operations_and_kinds_are_apart(journal):
    await accept(journal, command(fence=5))
    assert (await accept(journal, command(step="t"))).action == "run"
    assert (await accept(journal, command(operation="q"))).action == "run"
    await journal.finish(command(fence=5), result(command(fence=5)))
    assert (await accept(journal, command(fence=5, kind="guest.destroy"))).action == "run"


async def test_what_was_queued_before_the_last_command_for_a_guest_is_old(journal):
    await accept(journal, command("stop", kind="guest.stop", seq=3))
    await journal.finish(command("stop", kind="guest.stop", seq=3), result(command("stop")))
    await accept(journal, command("begun", kind="guest.reboot", seq=4))
    await accept(journal, command("delete", kind="guest.destroy", seq=6))
    verdict = await accept(journal, command("start", seq=5))
    assert (verdict.action, verdict.higher) == ("old", 6)
    # Begun and not ended counts as little, once there is a later one; what has a result still gives it.
    assert (await accept(journal, command("begun", kind="guest.reboot", seq=4))).action == "old"
    assert (await accept(journal, command("stop", kind="guest.stop", seq=3))).action == "replay"
    assert (await accept(journal, command("start", seq=5), guest="other")).action == "run"
    assert (await accept(journal, command("start again", seq=7))).action == "run"


async def test_questions_have_no_place_in_the_order_of_a_guests_commands(journal):
    await accept(journal, command("delete", kind="guest.destroy", seq=6))
    assert (await accept(journal, command("call", kind="guest.console", seq=5))).action == "run"
    assert (await accept(journal, command("call", kind="guest.console", seq=9))).action == "run"
    assert (await accept(journal, command("start", seq=7))).action == "run"


async def test_results_are_offered_in_order_until_acknowledged(journal):
    commands = [command(operation=f"op{n}") for n in range(3)]
    for c in commands:
        await accept(journal, c)
        await journal.finish(c, result(c))
    await journal.acknowledge([commands[1].id])
    assert [r.command_id for r in await journal.unacknowledged()] == [commands[0].id, commands[2].id]


async def test_the_file_is_read_by_the_next_agent_and_does_not_grow_for_ever(tmp_path):
    first = FileJournal(tmp_path / "journal", keep=3)
    for n in range(10):
        c = command(operation=f"op{n}", seq=n + 2)
        await accept(first, c, guest=f"g{n}")
        await first.finish(c, result(c))
        if n != 0:
            await first.acknowledge([c.id])
    await first.close()
    second = FileJournal(tmp_path / "journal", keep=3)
    assert [r.operation for r in await second.unacknowledged()] == ["op0"]
    assert (await accept(second, command(operation="op9"))).action == "replay"
    assert (await accept(second, command(operation="op5"))).action == "run"
    assert [(await accept(second, command("late"), guest=f"g{n}")).action for n in (5, 9)] == ["run", "old"]
    await second.close()


def test_an_unknown_kind_and_a_wrong_payload_are_told_apart():
    with pytest.raises(UnknownKindError, match="levitate"):
        payload_of(command(kind="guest.levitate"))
    wrong = msgspec.structs.replace(command(), payload=msgspec.Raw(b'{"server_id": 1}'))
    with pytest.raises(msgspec.ValidationError, match="server_id"):
        payload_of(wrong)
