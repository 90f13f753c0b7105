"""The short form of ``make chaos``: every kind of fault once, on simulated hosts."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.chaos.faults import Faults
from tests.chaos.run import run
from tests.chaos.schedule import ACTIONS, FAULTS, REAL_FAULTS, covering, plan
from tests.chaos.world import Setting


def test_a_seed_gives_one_schedule_and_a_short_run_has_every_fault() -> None:
    first = covering(7, 30, every=1.0, kinds=FAULTS, stream="faults")
    assert first == covering(7, 30, every=1.0, kinds=FAULTS, stream="faults")
    assert first != covering(8, 30, every=1.0, kinds=FAULTS, stream="faults")
    assert {due.what for due in first} == set(FAULTS)
    assert all(hasattr(Faults, kind) for kind in {**FAULTS, **REAL_FAULTS}), "each can be brought about"
    assert [due.at for due in first] == sorted(due.at for due in first)
    assert plan(7, 30, every=0.5, kinds=ACTIONS, stream="a") != plan(
        7, 30, every=0.5, kinds=ACTIONS, stream="b"
    )


@pytest.mark.slow
async def test_under_random_faults_nothing_is_stuck_leaked_or_done_twice() -> None:
    # Paths of sockets are short, so this is not below a deep temporary path; it is kept when the run was not clean.
    folder = Path(tempfile.mkdtemp(prefix="moorage-chaos-"))
    folder.chmod(0o711)
    setting = Setting(seed=20, seconds=20, hosts=12, groups=3, lease=4, fault_every=1.4)
    outcome = await run(setting, folder)
    assert not outcome.verdict.problems, f"{outcome.summary}\nkept: {folder}"
    shutil.rmtree(folder)
