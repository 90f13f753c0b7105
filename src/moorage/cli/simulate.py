"""``moorage simulate``: place a stream of requests in a cloud that exists only in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from moorage.cli.failures import failing

if TYPE_CHECKING:
    from moorage.simulate.model import Arrival, World
    from moorage.simulate.report import Report

TOPOLOGY = "A dump (.json), a description (.yaml) or a table of hosts (.csv)."
REQUESTS = (
    "Arrivals (.json, .csv). Without: the servers that the dump held, placed anew in the emptied cloud."
)


def simulate(
    topology: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help=TOPOLOGY)],
    requests: Annotated[Path | None, typer.Argument(exists=True, dir_okay=False, help=REQUESTS)] = None,
    racks: Annotated[
        Path | None, typer.Option(exists=True, help="The racks of a trace's hosts (host_id,rack_id).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Breaks ties, and draws made-up times.")] = 0,
    pack: Annotated[bool, typer.Option("--pack", help="Fill the fullest host first; else spread.")] = False,
    per_hour: Annotated[
        float | None, typer.Option(min=0.001, help="Make times of arrival up: so many an hour.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.001, help="With --per-hour: the mean lifetime; without they stay.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw utilisation over time (.png or .svg).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
) -> None:
    """Place requests one by one with the scheduler's own search, checks and ranking. No cloud is needed."""
    from moorage.simulate import plot as plots  # noqa: PLC0415  numpy only where it is needed

    if hours is not None and per_hour is None:
        raise typer.BadParameter(
            "a lifetime needs times of arrival: give --per-hour too", param_hint="--hours"
        )

    def run() -> None:
        if plot is not None:
            plots.check(plot)
        world, arrivals = _load(topology, requests, racks)
        if per_hour is not None:
            from moorage.simulate import stream  # noqa: PLC0415  as above

            arrivals = stream.timed(arrivals, seed=seed, per_hour=per_hour, hours=hours)
        found = _run(world, arrivals, seed=seed, pack=pack)
        _show(found, Console())
        if report is not None:
            report.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
            typer.echo(f"figures: {report}")
        if plot is not None:
            plots.draw(found, plot, f"{topology.name}: {found.accepted} of {found.requests} placed")
            typer.echo(f"plot: {plot}")

    failing(run)


def _load(topology: Path, requests: Path | None, racks: Path | None) -> "tuple[World, list[Arrival]]":
    from moorage.simulate import stream  # noqa: PLC0415  as above
    from moorage.simulate import topology as topologies  # noqa: PLC0415  as above
    from moorage.simulate.errors import BadFile  # noqa: PLC0415  as above

    world = topologies.load(topology, racks=racks)
    if requests is not None:
        return world, stream.load(requests)
    if not world.consumers:
        raise BadFile(f"{topology}: no consumers: name a file of requests too")
    return world.emptied(), stream.of_consumers(world)


def _run(world: "World", arrivals: "list[Arrival]", *, seed: int, pack: bool) -> "Report":
    from moorage.simulate.engine import PACKING, Simulation  # noqa: PLC0415  as above
    from moorage.simulate.errors import BadFile  # noqa: PLC0415  as above
    from moorage.simulate.report import Recorder  # noqa: PLC0415  as above

    if not arrivals:
        raise BadFile("nothing is asked for: the stream is empty")
    simulation = Simulation(world, seed=seed, **({"weighers": PACKING} if pack else {}))
    recorder = Recorder(simulation)
    outcomes = simulation.run(arrivals)
    console = Console(stderr=True)
    for arrival in track(arrivals, f"placing on {len(world.hosts)} hosts", console=console, transient=True):
        recorder.note(arrival, next(outcomes))
    return recorder.report()


def _show(found: "Report", console: Console) -> None:
    first = "" if found.first_refusal is None else f", the first at request {found.first_refusal}"
    console.print(f"{found.requests} requests: {found.accepted} accepted, {found.refused} refused{first}")
    if found.refused:
        console.print(f"refused although there was room in all: {found.refused_with_room}")
    for reason, count in found.reasons.items():
        console.print(f"  {count:6d}  {reason}")
    table = Table("resource", "capacity", "used", "at the end", "at the peak", "at the first refusal")
    for name, packing in found.packing.items():
        at_first = "" if packing.at_first_refusal is None else f"{packing.at_first_refusal:.1%}"
        table.add_row(
            name,
            f"{packing.capacity}",
            f"{packing.used}",
            f"{packing.at_end:.1%}",
            f"{packing.at_peak:.1%}",
            at_first,
        )
    console.print(table)
    ms = found.decision_ms
    console.print(f"a decision: p50 {ms.p50} ms, p90 {ms.p90} ms, p99 {ms.p99} ms, at most {ms.most} ms")
