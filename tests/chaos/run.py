"""One run: the schedule of a seed against a world, and the verdict."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec

from tests.chaos.faults import Faults
from tests.chaos.schedule import ACTIONS, FAULTS, REAL_FAULTS, Due, covering, plan
from tests.chaos.users import Told, User, make_users
from tests.chaos.verdict import Verdict, judge
from tests.chaos.world import Setting, World

Say = Callable[[str], None]


class Outcome(msgspec.Struct, frozen=True):
    """``summary`` is for people; ``verdict.problems`` is empty where all was well."""

    summary: str
    verdict: Verdict


async def run(setting: Setting, folder: Path, say: Say = lambda _line: None) -> Outcome:
    """The whole of it; raises only where the world could not be started, or the run itself is wrong."""
    world = World(setting, folder)
    began = time.monotonic()
    say(f"seed {setting.seed}: {setting.seconds:g} s with {setting.hosts} hosts; logs in {world.logs}")
    async with world.running(), aiohttp.ClientSession() as session:
        say(f"everything runs after {time.monotonic() - began:.0f} s")
        told = Told()
        zones = ["real"] if setting.real else []
        admin, users = await make_users(
            session, world.identity, world.urls, told, image=world.image, zones=zones
        )
        faults = Faults(world)
        await asyncio.gather(*_streams(setting, users, faults, say))
        await faults.end()
        for fleet in world.fleets:
            (world.folder / "hosts" / fleet.name / "calm").touch()
        await world.serving()
        say("no more faults; settling")
        verdict = await judge(world, admin, users)
    return Outcome(_summary(setting, told, faults, world, verdict), verdict)


def _streams(setting: Setting, users: list[User], faults: Faults, say: Say) -> list["asyncio.Future[None]"]:
    began = time.monotonic()

    async def follow(steps: list[Due], do: Callable[[Due], object]) -> None:
        for due in steps:
            await asyncio.sleep(max(0.0, began + due.at - time.monotonic()))
            do(due)

    acting: set[asyncio.Task[None]] = set()

    async def use(user: User) -> None:
        steps = plan(
            setting.seed, setting.seconds, every=setting.action_every, kinds=ACTIONS, stream=user.name
        )

        def act(due: Due) -> None:
            task = asyncio.create_task(user.act(due))
            acting.add(task)

        await follow(steps, act)
        await asyncio.gather(*acting)

    def bring(due: Due) -> None:
        say(f"{due.at:7.1f} s  {due.what}")
        faults.bring(due)

    kinds = {**FAULTS, **(REAL_FAULTS if setting.real else {})}
    wild = covering(setting.seed, setting.seconds, every=setting.fault_every, kinds=kinds, stream="faults")
    return [asyncio.ensure_future(c) for c in (*(use(user) for user in users), follow(wild, bring))]


def _summary(setting: Setting, told: Told, faults: Faults, world: World, verdict: Verdict) -> str:
    def counts(found: dict[str, int]) -> str:
        return ", ".join(f"{name} {number}" for name, number in sorted(found.items())) or "none"

    lines = [
        f"seed {setting.seed}: {sum(told.actions.values())} actions ({counts(told.actions)})",
        f"  answers: {counts(told.answers)}",
        f"  faults: {counts(faults.did)}; between agents and APIs: {counts(world.proxy.did)}",
        f"  operations: {counts(verdict.operations)}; settled in {verdict.settled_in:.1f} s",
        f"  servers: {counts(verdict.servers)}",
        f"  {'CLEAN' if not verdict.problems else f'{len(verdict.problems)} PROBLEMS'}",
    ]
    return "\n".join([*lines, *(f"  - {problem}" for problem in verdict.problems[:50])])
