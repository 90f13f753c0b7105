"""``moorage operations``: long work, as administrators see it. ``--json`` prints what the control API answered."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from moorage.cli.client import ADMIN, CloudName, Control
from moorage.cli.failures import failing

app = typer.Typer(help="Long work: what is under way, and what is stuck.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
_WIDTH = 200  # of tables that go into a pipe or file


def _console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=_WIDTH)


@app.command("list")
def list_(
    state: Annotated[str, typer.Option(help="open, all, or one state, such as stuck.")] = "open",
    kind: Annotated[str | None, typer.Option(help="Such as server.boot.")] = None,
    subject: Annotated[str | None, typer.Option(help="Such as server:ID.")] = None,
    project: Annotated[str | None, typer.Option(help="A project's id.")] = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1)] = 100,
    as_json: Json = False,
    cloud: CloudName = ADMIN,
) -> None:
    """List operations, newest first."""
    given = {"state": state, "kind": kind, "subject": subject, "project": project}
    found = failing(lambda: _pages(Control(cloud), {k: v for k, v in given.items() if v is not None}, limit))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("id", "kind", "state", "step", "subject", "since")
    for o in found:
        step = f"undo of {o['step']}" if o["direction"] == "undo" else o["step"]
        table.add_row(o["id"], o["kind"], o["state"], step, o["subject"], o["created_at"])
    _console().print(table)


def _pages(control: Control, query: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        more = {"limit": min(limit - len(found), 1000), **({"marker": found[-1]["id"]} if found else {})}
        answer = control.get("/operations", {**query, **more})
        found += answer["operations"]
        if "operations_links" not in answer:
            break
    return found


@app.command("show")
def show(operation_id: str, as_json: Json = False, cloud: CloudName = ADMIN) -> None:
    """Show one operation: what it waits for, what refused and failed, its log."""
    found = failing(lambda: Control(cloud).get(f"/operations/{operation_id}"))["operation"]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = _console()
    console.print(_facts(found))
    if found["refusals"]:
        refusals = Table("host", "step", "refused because", title="refusals")
        for each in found["refusals"]:
            refusals.add_row(each["host"], each["step"], Text(each["message"]))
        console.print(refusals)
    lines = Table("at", "round", "step", "event", "what", title="log")
    for line in found["log"]:
        lines.add_row(line["at"], str(line["round"]), line["step"], line["event"], Text(_what(line["data"])))
    console.print(lines)


def _facts(found: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    for name in ("id", "kind", "version", "state", "direction", "step", "subject", "project", "created_at"):
        table.add_row(name, Text(str(found[name])))
    waits = found["waits_for"]
    if waits is not None:
        table.add_row("waits for", Text(f"{waits['what']}: {waits['words']}"))
        table.add_row("since", waits["since"])
        table.add_row("until", waits["until"] or "nobody knows")
    for name in ("error", "undo_error"):
        if found[name] is not None:
            table.add_row(name.replace("_", " "), Text(_what(found[name])))
    for left in (found["error"] or {}).get("left", ()):
        table.add_row("left", Text(_left(left)))
    return table


def _what(data: Any) -> str:
    """A line of the log in words: an error or refusal, or what a host was asked."""
    if not isinstance(data, dict):
        return ""
    if "message" in data:
        host = f"{data['host']}: " if data.get("host") else ""
        return f"{host}{data['message']} ({data.get('code', '')})"
    return " ".join(str(data[key]) for key in ("kind", "host") if data.get(key))


def _left(left: dict[str, Any]) -> str:
    where = f" on host {left['host']}" if left.get("host") else ""
    return f"{left['undo'] or left['step']}{where}: {left['what']}"


@app.command("resume")
def resume(operation_id: str, cloud: CloudName = ADMIN) -> None:
    """Let a stuck operation try again at once."""
    failing(lambda: Control(cloud).post(f"/operations/{operation_id}/resume"))
    typer.echo(f"{operation_id} is tried again")


@app.command("abandon")
def abandon(
    operation_id: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
    cloud: CloudName = ADMIN,
) -> None:
    """Give up an operation whose undo does not end; says what nobody takes back."""
    if not yes:
        typer.confirm("What it has not undone stays behind. Abandon it?", abort=True)
    found = failing(lambda: Control(cloud).post(f"/operations/{operation_id}/abandon"))["operation"]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(f"{operation_id} is abandoned" + ("; it left:" if found["left"] else "; it left nothing"))
    for left in found["left"]:
        typer.echo(f"  {_left(left)}")
