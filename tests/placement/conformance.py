"""Runs other people's Placement tests against our server: `make conformance`.

The runners are not part of this project: the folder `--suites` holds `placement/run.sh` (Placement's own
declarative HTTP tests) and `osc-placement/run.sh` (the functional tests of the command line's plug-in). They install
those suites from PyPI into environments of their own, kept in the user's cache. Each file or class of tests starts
`target.py` on a fresh copy of one template database. The last two lines are the counts, `N passed, N failed` each.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from moorage.store.embedded import FAST, EmbeddedPostgres
from tests.placement.target import SERVER, make_template

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


class Suite(NamedTuple):
    """A runner, its further options, and how many of its tests pass on the original service."""

    name: str
    options: tuple[str, ...]
    expected: int


SUITES = (
    Suite("placement", ("--jobs", "2"), 1315),
    Suite("osc-placement", (), 160),
)


def cache() -> Path:
    """Return where the suites' environments are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "moorage" / "conformance"


def run(suite: Suite, folder: Path, env: Mapping[str, str], only: str | None) -> tuple[str, bool]:
    """Run one suite, showing its output; return its line of counts and whether all is well."""
    start = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(HERE / 'target.py'))}"
    command = [str(folder / suite.name / "run.sh"), "--start", start, *suite.options]
    command += [] if only is None else ["--only", only]
    last = ""
    with subprocess.Popen(["bash", *command], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
        except KeyboardInterrupt:
            # The runner stops the servers that it has started, and is waited for.
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed.*", last)
    if counts is None:
        return "0 passed, 0 failed: the runner ended early", False
    enough = only is not None or int(counts[1]) >= suite.expected
    return last, process.returncode == 0 and counts[2] == "0" and enough


def main() -> int:
    """Run the suites; 0 when everything passed, 1 when not, 2 when there are no runners."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", type=Path, default=ROOT.parent / "shared" / "conformance")
    parser.add_argument("--suite", choices=[suite.name for suite in SUITES], help="run this one alone")
    parser.add_argument(
        "--only", help="run the files (placement) or tests (osc-placement) of this name alone"
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    suites = [suite for suite in SUITES if asked.suite in {None, suite.name}]
    absent = [s.name for s in suites if not (asked.suites / s.name / "run.sh").is_file()]
    if absent:
        print(
            f"There is no runner of {', '.join(absent)} in {asked.suites}: nothing was tested.",
            file=sys.stderr,
        )
        print("Say where the runners are: make conformance CONFORMANCE=/path/to/conformance", file=sys.stderr)
        return 2
    # Unix socket paths are short, so the data is not below a deep path.
    state = Path(tempfile.mkdtemp(prefix="moorage-conformance-"))
    server = EmbeddedPostgres(state / "pg", FAST)
    try:
        server.start()
        make_template(server)
        env = {**os.environ, "GABBI_LIVE_HOME": str(cache()), SERVER: server.url()}
        results = [run(suite, asked.suites.resolve(), env, asked.only) for suite in suites]
    finally:
        server.stop()
        shutil.rmtree(state)
    print(f"\n{', '.join(suite.name for suite in suites)}:")
    for counts, _ in results:
        print(counts)
    return 0 if all(well for _, well in results) else 1


if __name__ == "__main__":
    sys.exit(main())
