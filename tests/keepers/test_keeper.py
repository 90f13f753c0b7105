"""The driver of reconcilers: wake-ups, failures, one holder."""

import asyncio

from moorage.keepers import Keeper
from moorage.store.signals import Signals


class Counter:
    """Counts its passes; fails while ``broken``."""

    def __init__(self, name="counter", channel="counted", interval=3600.0):
        self.name, self.channel, self.interval = name, channel, interval
        self.passes = 0
        self.broken = False
        self.passed = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.begun = asyncio.Event()

    async def reconcile(self):
        self.begun.set()
        if self.hold is not None:
            await self.hold.wait()
        self.passes += 1
        self.passed.set()
        if self.broken:
            raise ValueError("on purpose")
        return {"passes": self.passes}


async def until(counter, passes):
    async with asyncio.timeout(120):
        while counter.passes < passes:
            counter.passed.clear()
            await counter.passed.wait()


async def test_a_signal_of_a_committed_transaction_wakes_it(database):
    signals = Signals(database)
    counter = Counter()
    keeper = Keeper(database, signals, counter)
    await signals.start()
    await keeper.start()
    try:
        await until(counter, 1)
        async with database.transaction() as tx:
            await tx.notify("counted")
        await until(counter, 2)
        assert keeper.last is not None
    finally:
        await keeper.stop()
        await signals.stop()


async def test_the_timer_does_without_signals(database):
    counter = Counter(channel=None, interval=0.01)
    keeper = Keeper(database, Signals(database), counter)
    await keeper.start()
    await until(counter, 3)
    await keeper.stop()


async def test_failures_are_reported_and_the_pauses_grow(database):
    counter = Counter()
    counter.broken = True
    keeper = Keeper(database, Signals(database), counter, first_pause=0.5)
    pauses = []
    for _ in range(10):
        report = await keeper.pass_once()
        pauses.append(keeper.pause())
    assert report.outcome == "failed"
    assert report.error == "ValueError: on purpose"
    assert report.failures == 10
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses[-1] == 60.0
    counter.broken = False
    report = await keeper.pass_once()
    assert (report.outcome, report.failures, report.did) == ("done", 0, {"passes": 11})


async def test_one_holder_at_a_time(database):
    first, second = Counter(), Counter()
    first.hold = asyncio.Event()
    one, two = (Keeper(database, Signals(database), c) for c in (first, second))
    running = asyncio.create_task(one.pass_once())
    # Not found out by trying the lock: the keeper would meet it in the test's hands, and pass it by.
    await asyncio.wait_for(first.begun.wait(), 120)
    report = await two.pass_once()
    assert report.outcome == "held elsewhere"
    assert second.passes == 0
    first.hold.set()
    assert (await running).outcome == "done"
    assert (await two.pass_once()).outcome == "done"
