"""A picture of a run: how full each resource is over time, and how many were accepted and refused."""

from __future__ import annotations

from pathlib import Path

from moorage.simulate.errors import BadFile
from moorage.simulate.report import Report

SUFFIXES = (".png", ".svg")


def check(path: Path) -> None:
    """Raises BadFile where `draw` could not: another format, or no matplotlib."""
    if path.suffix not in SUFFIXES:
        raise BadFile(f"{path}: a plot is a .png or a .svg file")
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415  an extra, asked for only here
    except ImportError as error:
        raise BadFile("a plot needs matplotlib: install moorage[plot]") from error


def draw(report: Report, path: Path, title: str) -> None:
    """Write the picture."""
    from matplotlib.figure import Figure  # noqa: PLC0415  as above

    samples = report.samples
    hours = samples[-1].at > 2 * len(samples)
    at = [sample.at / 3600 for sample in samples] if hours else list(range(1, len(samples) + 1))
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for name in sorted(report.packing):
        above.plot(at, [100 * sample.used[name] for sample in samples], label=name, linewidth=1.2)
    above.set(ylabel="used, % of capacity", ylim=(0, 102), title=title)
    above.legend(loc="lower right")
    below.plot(at, [sample.accepted for sample in samples], label="accepted", color="tab:green")
    below.plot(at, [sample.refused for sample in samples], label="refused", color="tab:red")
    below.set(xlabel="hours" if hours else "requests", ylabel="requests")
    below.legend(loc="upper left")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
