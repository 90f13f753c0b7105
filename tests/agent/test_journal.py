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


def command(operation="op", step="s", fence=1, kind="guest.start", command_id=None):
    return Command(
        id=command_id or f"{operation}-{step}-{fence}-{kind}",
        seq=1,
        operation=operation,
        step=step,
        fence=fence,
        kind=kind,
        payload=msgspec.Raw(b'{"server_id": "g"}'),
    )


def result(c, outcome="succeeded"):
    return Result(command_id=c.id, operation=c.operation, step=c.step, fence=c.fence, outcome=outcome)


async def test_a_new_key_runs_and_an_unfinished_one_runs_again(journal):
    assert (await journal.accept(command())).action == "run"
    assert (await journal.accept(command())).action == "run"


async def test_a_finished_key_is_replayed_to_the_command_that_asks(journal):
    await journal.accept(command())
    await journal.finish(command(), result(command(), "failed"))
    verdict = await journal.accept(command(command_id="other"))
    assert (verdict.action, verdict.result.outcome, verdict.result.command_id) == (
        "replay",
        "failed",
        "other",
    )


async def test_a_higher_fence_runs_again_and_the_lower_one_is_then_refused(journal):
    await journal.accept(command(fence=1))
    await journal.finish(command(fence=1), result(command(fence=1)))
    assert (await journal.accept(command(fence=3))).action == "run"
    verdict = await journal.accept(command(fence=1))
    assert (verdict.action, verdict.fence) == ("refuse", 3)
    assert (await journal.accept(command(fence=2, kind="guest.destroy"))).action == "refuse"


async def test_steps_operations_and_kinds_are_apart(journal):
    await journal.accept(command(fence=5))
    assert (await journal.accept(command(step="t"))).action == "run"
    assert (await journal.accept(command(operation="q"))).action == "run"
    await journal.finish(command(fence=5), result(command(fence=5)))
    assert (await journal.accept(command(fence=5, kind="guest.destroy"))).action == "run"


async def test_results_are_offered_in_order_until_acknowledged(journal):
    commands = [command(operation=f"op{n}") for n in range(3)]
    for c in commands:
        await journal.accept(c)
        await journal.finish(c, result(c))
    await journal.acknowledge([commands[1].id])
    assert [r.command_id for r in await journal.unacknowledged()] == [commands[0].id, commands[2].id]


async def test_the_file_is_read_by_the_next_agent_and_does_not_grow_for_ever(tmp_path):
    first = FileJournal(tmp_path / "journal", keep=3)
    for n in range(10):
        c = command(operation=f"op{n}")
        await first.accept(c)
        await first.finish(c, result(c))
        if n != 0:
            await first.acknowledge([c.id])
    await first.close()
    second = FileJournal(tmp_path / "journal", keep=3)
    assert [r.operation for r in await second.unacknowledged()] == ["op0"]
    assert (await second.accept(command(operation="op9"))).action == "replay"
    assert (await second.accept(command(operation="op5"))).action == "run"
    await second.close()


def test_an_unknown_kind_and_a_wrong_payload_are_told_apart():
    with pytest.raises(UnknownKindError, match="levitate"):
        payload_of(command(kind="guest.levitate"))
    wrong = msgspec.structs.replace(command(), payload=msgspec.Raw(b'{"server_id": 1}'))
    with pytest.raises(msgspec.ValidationError, match="server_id"):
        payload_of(wrong)
