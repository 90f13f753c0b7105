"""``make chaos MINUTES=n SEED=s``: a long run. Exit status 1 where anything was not as promised; state and logs are kept."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from moorage.core import log
from moorage.lab import up as lab
from tests.chaos.run import run
from tests.chaos.world import Setting


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="chaos", description="A cloud under random faults.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--hosts", type=int, default=30, help="simulated ones, in six processes")
    parser.add_argument("--real", choices=["auto", "yes", "no"], default="auto", help="two lab hosts too")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds, of a conductor")
    parser.add_argument("--keep", action="store_true", help="keep state and logs of a clean run too")
    given = parser.parse_args()
    log.configure(level="ERROR")
    missing = lab.problems()
    if given.real == "yes" and missing:
        parser.error(f"no lab hosts here: {', '.join(missing)}")
    setting = Setting(
        seed=given.seed,
        seconds=given.minutes * 60,
        hosts=given.hosts,
        real=given.real != "no" and not missing,
        lease=given.lease,
    )
    folder = Path(tempfile.mkdtemp(prefix="moorage-chaos-"))
    folder.chmod(0o711)
    outcome = asyncio.run(run(setting, folder, lambda line: print(line, flush=True)))
    print(outcome.summary, flush=True)
    if outcome.verdict.problems or given.keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if outcome.verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
