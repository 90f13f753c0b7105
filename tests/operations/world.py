"""An operation like a boot, and the little world that it changes: marks of subjects, hosts operated by hand.

Many operations run side by side in one world, each with a subject of its own: one test covers every step and point.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.core.errors import Conflict
from moorage.operations import (
    Command,
    Definition,
    NoRoom,
    Refusal,
    Runner,
    Step,
    back_to,
    journal,
    local,
    operation,
    remote,
    submit,
    wait,
)
from moorage.operations.model import FINISHED, STUCK, Operation
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals
from tests.support.points import Passes, Point

#: A lease that no test outlasts: where one is to run out, the test says so, whatever the machine is doing meanwhile.
HOUR = 3600.0
#: For what is taken over after a crash. A conductor that is held up for longer loses what it drives, and its work is done
#: all the same.
SHORT = 0.5


class World:
    """``hold``: hosts keep their answers to themselves; ``silent``: hosts that are not heard of.

    ``failing``: how often hosts fail to do something, by its kind and the subject.
    """

    def __init__(self, database: Database, signals: Signals) -> None:
        self.database = database
        self.signals = signals
        self.commands: list[dict[str, Any]] = []
        self.hold = False
        self.silent: set[str] = set()
        self.failing: Counter[tuple[str, str]] = Counter()
        self.deadline = 600.0
        self._numbers = itertools.count()
        self._replies: set[asyncio.Task[bool]] = set()

    def runner(self, **changes: Any) -> Runner:
        """One more conductor."""
        settings: dict[str, Any] = {"lease": HOUR, "poll": 0.1, "silent": self.silent.__contains__, **changes}
        definitions = settings.pop("definitions", [BOOT])
        database = settings.pop("database", self.database)
        return Runner(database, self.signals, definitions, self, self.send, **settings)

    async def send(self, tx: Tx, **command: Any) -> str:
        """What the engine calls to enqueue a command."""
        command["id"] = f"c{next(self._numbers)}"
        tx.on_commit(lambda: self._out(command))
        return str(command["id"])

    def _out(self, command: dict[str, Any]) -> None:
        # No sooner: an answer to what is not committed is heard by nobody.
        self.commands.append(command)
        if not self.hold:
            self._replies.add(asyncio.create_task(self.reply(command)))

    async def reply(self, command: dict[str, Any]) -> bool:
        """The host does it and answers; whether anybody heard the answer."""
        host, wanted = command["host"], command["payload"]
        outcome, does = "succeeded", (command["kind"], wanted["subject"])
        if command["kind"] == "make" and host in wanted["bad"]:
            outcome = "refused"
        elif self.failing[does]:
            self.failing[does] -= 1
            outcome = "failed"
        async with self.database.transaction() as tx:
            if outcome == "succeeded":
                change = mark if command["kind"] == "make" else unmark
                await change(tx, wanted["subject"], f"guest@{host}")
            return await journal.complete(
                tx,
                operation=command["operation"],
                fence=command["fence"],
                command=command["id"],
                outcome=outcome,
                error={"code": "host.bad", "message": "bad host"} if outcome != "succeeded" else None,
            )

    async def begin(
        self,
        subject: str = "server:1",
        *,
        plug: bool = True,
        of: Definition | None = None,
        project: str = "",
        **params: Any,
    ) -> str:
        """Submit one; ``plug``: what it will wait for is there already."""
        async with self.database.transaction() as tx:
            if plug:
                await mark(tx, subject, "plug")
            return await submit(tx, of or BOOT, subject=subject, params=params, project=project)

    async def marks(self, subject: str = "server:1") -> set[str]:
        """What there is of a subject."""
        async with self.database.read() as tx:
            return {r[0] for r in await tx.fetch("SELECT name FROM marks WHERE subject = $1", (subject,))}

    async def get(self, operation_id: str) -> Operation:
        """The row."""
        async with self.database.read() as tx:
            return await journal.get(tx, operation_id)

    async def until(self, operation_id: str, *states: str) -> Operation:
        """The row once it is in one of these states."""
        found = await self.get(operation_id)

        async def reached() -> bool:
            nonlocal found
            found = await self.get(operation_id)
            return found.state in states

        await eventually(reached)
        return found

    async def ended(self, operation_id: str) -> str:
        """How it ended, or "stuck"."""
        return (await self.until(operation_id, *FINISHED, STUCK)).state

    async def sql(self, statement: str, *args: Any) -> list[Any]:
        """Anything else."""
        async with self.database.transaction() as tx:
            return await tx.fetch(statement, args)


async def eventually(question: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the answer is yes."""
    async with asyncio.timeout(180):
        while not await question():
            await asyncio.sleep(0.02)


async def mark(tx: Tx, subject: str, name: str) -> None:
    await tx.execute("INSERT INTO marks VALUES ($1, $2) ON CONFLICT DO NOTHING", (subject, name))


async def mark_once(tx: Tx, subject: str, name: str) -> None:
    """Fails where the mark is there: a step that was done twice is seen."""
    await tx.execute("INSERT INTO marks VALUES ($1, $2)", (subject, name))


async def unmark(tx: Tx, subject: str, prefix: str) -> None:
    await tx.execute("DELETE FROM marks WHERE subject = $1 AND starts_with(name, $2)", (subject, prefix))


async def make_ports(step: Step) -> Any:
    await mark_once(step.tx, step.subject, "ports")
    return {"n": 1}


async def drop_ports(step: Step) -> None:
    """Delete the ports."""
    await unmark(step.tx, step.subject, "ports")


async def pick_host(step: Step) -> Any:
    excluded = {r["host"] for r in step.refusals}
    free = [h for h in ("h1", "h2", "h3") if h not in excluded]
    if not free:
        raise Conflict("no host is left")
    roomy = [h for h in free if h not in step.full]
    if not roomy:
        raise NoRoom("all are full", subject=random.choice(free))
    await mark_once(step.tx, step.subject, f"claim@{roomy[0]}")
    return roomy[0]


async def unpick(step: Step) -> None:
    """Give the claim back."""
    await unmark(step.tx, step.subject, "claim@")


async def bind(step: Step) -> Any:
    if step.data["pick_host"] in step.params.get("unbindable", ()):
        raise Refusal("cannot bind", subject=step.data["pick_host"])
    await mark_once(step.tx, step.subject, "bound")


async def unbind(step: Step) -> None:
    """Unbind the ports."""
    await unmark(step.tx, step.subject, "bound")


def _payload(step: Step) -> dict[str, Any]:
    return {"subject": step.subject, "bad": step.params.get("bad", ())}


async def make_guest(step: Step) -> Command:
    return Command(step.data["pick_host"], "make", _payload(step), step.params.get("timeout", 600.0))


async def drop_guest(step: Step) -> Command:
    """Tell the host to remove the guest."""
    return Command(step.data["pick_host"], "drop", _payload(step), step.params.get("timeout", 600.0))


async def plugged(step: Step) -> bool:
    sql = "SELECT 1 FROM marks WHERE subject = $1 AND name = 'plug'"
    return bool(await step.tx.fetch(sql, (step.subject,)))


async def finish(step: Step) -> None:
    await mark_once(step.tx, step.subject, "active")


async def failed(step: Step) -> None:
    await mark(step.tx, step.subject, "error")


async def stuck(step: Step) -> None:
    await mark(step.tx, step.subject, "stuck")


async def abandoned(step: Step) -> None:
    await mark(step.tx, step.subject, "abandoned")


def boot(version: int = 1, **more: Any) -> Definition:
    """The operation; ``more`` as for ``operation``."""
    return operation(
        "test.boot",
        version=version,
        steps=(
            local(make_ports, undo=drop_ports),
            local(pick_host, undo=unpick),
            local(bind, undo=unbind, on_refusal=back_to(pick_host)),
            remote(make_guest, undo=drop_guest, on_refusal=back_to(pick_host)),
            wait(plugged, deadline=lambda world: world.deadline),
            local(finish),
        ),
        on_failure=failed,
        on_stuck=stuck,
        on_abandoned=abandoned,
        **more,
    )


BOOT = boot()
STEPS = [s.name for s in BOOT.steps]
DONE = {"ports", "claim@h1", "bound", "guest@h1", "plug", "active"}
UNDONE = {"plug", "error"}


class Fault:
    """Raises at one point of one subject's operation, so many times."""

    def __init__(self, subject: str, point: Point, error: BaseException, times: int = 1) -> None:
        self.subject, self.point, self.error = subject, point, error
        self.left = times
        self.reached = 0
        self._passes = Passes()

    async def at(self, point: str, op: Operation, step: str) -> None:
        now = self._passes.now(point, op, step)
        if self.left and (op.subject, now) == (self.subject, self.point):
            self.left -= 1
            self.reached += 1
            raise self.error


class Faults:
    """Many of them; each is asked."""

    def __init__(self, *faults: Any) -> None:
        self.faults = list(faults)

    async def at(self, point: str, op: Operation, step: str) -> None:
        for fault in self.faults:
            await fault.at(point, op, step)


class Gate:
    """A conductor stands still at one point of every operation until the gate is opened."""

    def __init__(self, point: Point, kind: str = "test.boot") -> None:
        self.kind, self.point = kind, point
        self.waiting: list[str] = []
        self.open = asyncio.Event()
        self._passes = Passes()

    async def at(self, point: str, op: Operation, step: str) -> None:
        now = self._passes.now(point, op, step)
        if (op.kind, now) == (self.kind, self.point) and not self.open.is_set():
            self.waiting.append(op.id)
            await self.open.wait()

    async def reached(self, count: int = 1) -> None:
        """Wait until so many stand there."""

        async def there() -> bool:
            return len(self.waiting) >= count

        await eventually(there)
