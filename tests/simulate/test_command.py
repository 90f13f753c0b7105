"""`moorage simulate` as an operator calls it."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLOUD = """
hosts:
  - {name: "h{n}", racks: 2, per_rack: 2, inventory: {VCPU: 8, MEMORY_MB: 8192}}
"""
ROWS = "id,VCPU,MEMORY_MB\n" + "".join(f"s{n},2,1024\n" for n in range(20))


def simulate(
    folder: Path, *arguments: str, stderr: int = subprocess.PIPE, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    (folder / "cloud.yaml").write_text(CLOUD)
    (folder / "requests.csv").write_text(ROWS)
    command = [sys.executable, "-m", "moorage.cli.main", "simulate", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=env,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_run_prints_draws_and_writes_its_figures(tmp_path: Path) -> None:
    done = simulate(
        tmp_path, "cloud.yaml", "requests.csv", "--report", "r.json", "--plot", "p.png", "--seed", "3"
    )
    assert done.returncode == 0, done.stderr
    assert "20 requests: 16 accepted, 4 refused, the first at request 17" in done.stdout
    assert "4  short of CPUs" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["accepted"], report["packing"]["VCPU"]["at_end"]) == (16, 1.0)
    assert len(report["samples"]) == 20
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_times_can_be_made_up_and_a_picture_can_be_svg(tmp_path: Path) -> None:
    done = simulate(
        tmp_path, "cloud.yaml", "requests.csv", "--per-hour", "60", "--hours", "0.1", "--plot", "p.svg"
    )
    assert done.returncode == 0, done.stderr
    assert "20 requests: 20 accepted, 0 refused" in done.stdout
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_progress_is_shown_on_a_terminal_and_is_no_part_of_the_output(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    # Read while it is written: a terminal holds a few kilobytes.
    with ThreadPoolExecutor(1) as reader:
        screen = reader.submit(all_of, ours)
        try:
            done = simulate(tmp_path, "cloud.yaml", "requests.csv", stderr=theirs, env=env)
        finally:
            os.close(theirs)
        shown = screen.result()
    assert done.returncode == 0, shown
    assert "placing on 4 hosts" in shown
    assert "%" in shown
    assert done.stdout.startswith("20 requests: 16 accepted")
    assert "placing" not in done.stdout


def all_of(terminal: int) -> str:
    """What is written to a terminal until nobody has it open."""
    found = b""
    with contextlib.suppress(OSError):  # how its end is told
        while more := os.read(terminal, 1 << 16):
            found += more
    os.close(terminal)
    return found.decode()


def test_what_is_wrong_is_one_line_and_a_status(tmp_path: Path) -> None:
    for arguments, told in (
        (("cloud.yaml",), "name a file of requests"),
        (("cloud.yaml", "requests.csv", "--plot", "p.pdf"), "a plot is a .png or a .svg file"),
        (("requests.csv", "requests.csv"), "no column `name`"),
    ):
        done = simulate(tmp_path, *arguments)
        assert done.returncode == 1
        assert told in done.stderr
        assert "Traceback" not in done.stderr
