"""`python -m bench.placement`: the Placement API at several sizes of the cloud; prints, and asserts nothing.

CPU is that of the server's processes and of PostgreSQL for each request, which other load on the machine changes little.
Figures are the best of `--rounds`, since other work may share the machine. With `--openstack VENV` (made by
`bench/placement/install_openstack VENV`) the same is measured there, at `--openstack-hosts`, and ratios are printed.
At `--function-hosts` searches are measured for eight ports on hosts of 64 physical functions; not on OpenStack, which
would list all their products (bugs 2126751 and 2070257).
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.client import Failed
from bench.placement.measures import Figure, Measures
from bench.placement.targets import Ours, Target, Upstream
from bench.placement.world import FUNCTIONS, World
from moorage.store.embedded import EmbeddedPostgres

Figures = dict[str, Figure]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="bench.placement", description=__doc__)
    sizes = {"type": lambda text: [int(n) for n in text.split(",") if n]}
    parser.add_argument("--hosts", default=[100, 1000, 10_000, 100_000], help="sizes, with commas", **sizes)
    parser.add_argument("--function-hosts", default=[1000], help="sizes with 64 functions a host", **sizes)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=1, help="the best of so many is told")
    parser.add_argument("--openstack", type=Path, help="a virtual environment with openstack-placement")
    parser.add_argument(
        "--openstack-hosts",
        default=[1000],
        help="sizes measured there; at 10,000 most searches take it more than three seconds of CPU each, and a run many"
        " minutes, so that size is measured only where it is named",
        **sizes,
    )
    parser.add_argument("--json", type=Path, help="where to write all figures")
    return parser.parse_args()


async def everything(measures: Measures) -> None:
    """What is measured of a usual cloud."""
    await measures.candidates()
    await measures.claims()
    await measures.cycles()


async def measured(
    target: Target, seconds: float, rounds: int, what: Callable[[Measures], Awaitable[None]] = everything
) -> Figures:
    """Start a target, measure it, stop it; the best figures of the rounds."""
    best: Figures = {}

    def keep(figure: Figure) -> None:
        known = best.get(figure.name)
        lower = figure.unit in {"ms", "s", "MiB"}
        if known is None or (figure.value < known.value) == lower:
            best[figure.name] = figure
        print(f"  {figure.name:<56}{figure.value:10.1f} {figure.unit:<4} {figure.note}", flush=True)

    print(f"{target.name}, {target.world.hosts} hosts of {len(target.world.host)} providers", flush=True)
    try:
        await target.start()
        print(f"  loaded in {target.facts['load']:.1f} s", flush=True)
        if "index" in target.facts:
            keep(Figure("index start", target.facts["index"], "s", f"{target.facts['providers']} providers"))
        keep(Figure("memory after the start", target.memory(), "MiB"))
        for _ in range(rounds):
            await what(Measures(target, seconds, keep))
        keep(Figure("memory at most", target.memory(), "MiB"))
    finally:
        await target.stop()
    return best


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure everything asked for."""
    postgres = EmbeddedPostgres(folder / "postgres")
    postgres.start()
    results: dict[str, Any] = {}
    try:
        for hosts in options.hosts:
            world = World(hosts)
            ours = await measured(Ours(postgres, world, folder), options.seconds, options.rounds)
            results[str(hosts)] = {"moorage": _plain(ours)}
            if options.openstack is None or hosts not in options.openstack_hosts:
                continue
            theirs = await measured(
                Upstream(postgres, world, folder, options.openstack.absolute()),
                options.seconds,
                options.rounds,
            )
            results[str(hosts)]["openstack"] = _plain(theirs)
            _compare(hosts, ours, theirs)
        for hosts in options.function_hosts:
            target = Ours(postgres, World(hosts, FUNCTIONS), folder)
            ours = await measured(target, options.seconds, options.rounds, Measures.eight_groups)
            results[f"{hosts} with functions"] = {"moorage": _plain(ours)}
    finally:
        postgres.stop()
    return results


def _plain(figures: Figures) -> dict[str, Any]:
    return {name: {"value": f.value, "unit": f.unit, "note": f.note} for name, f in figures.items()}


def _compare(hosts: int, ours: Figures, theirs: Figures) -> None:
    print(f"\n{hosts} hosts{'':<50}{'moorage':>12}{'openstack':>12}{'times':>8}")
    for name, figure in ours.items():
        other = theirs.get(name)
        if other is None or not figure.value or not other.value:
            continue
        better = figure.value / other.value if figure.unit == "/s" else other.value / figure.value
        print(f"  {name:<56}{figure.value:10.1f}{other.value:12.1f} {figure.unit:<4}{better:6.1f}x")
    print(flush=True)


def main() -> None:
    """Run, or say in one line why not."""
    options = arguments()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        Path(folder).chmod(0o711)
        try:
            results = asyncio.run(run(options, Path(folder)))
        except (Failed, OSError) as error:
            sys.exit(f"bench.placement: {error}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
