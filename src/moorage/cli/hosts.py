"""``moorage host``: hosts, who they are to the cloud, and what they run."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from moorage.cli.client import ADMIN, CloudName, Control
from moorage.cli.failures import failing
from moorage.core.errors import BadRequest

app = typer.Typer(help="Hosts and their agents.", no_args_is_help=True)


@app.command("list")
def host_list(cloud: CloudName = ADMIN) -> None:
    """List the hosts."""
    table = Table("name", "state", "agent", "hypervisor", "last seen")
    for host in failing(lambda: Control(cloud).get("/hosts"))["hosts"]:
        table.add_row(
            host["name"],
            _state(host),
            host["agent_version"],
            host["hypervisor_type"] or "",
            host["last_seen"] or "never",
        )
    Console().print(table)


@app.command("show")
def host_show(name: str, cloud: CloudName = ADMIN) -> None:
    """Show a host: what it reported, its certificates, and its guests.

    A guest's verdict is "keep" where its server is on this host, "destroy" where the agent removes it when it next
    asks, and "unknown" where it is left alone: no server of this cloud, or one that something is being done to.
    """
    host = failing(lambda: Control(cloud).get(_path(name)))["host"]
    typer.echo(f"name: {host['name']}\nid: {host['id']}\nstate: {_state(host)}")
    for key in ("disabled_reason", "protocol", "agent_version", "last_seen"):
        typer.echo(f"{key}: {host[key]}")
    for key, value in sorted((host["facts"] or {}).items()):
        typer.echo(f"{key}: {value}")
    for certificate in host["certificates"]:
        typer.echo(f"certificate {certificate['fingerprint']} until {certificate['expires_at']}")
    if not host["certificates"]:
        typer.echo("certificate: none, the host cannot talk to the cloud until it is enrolled")
    for guest in host["guests"]:
        typer.echo(f"guest {guest['server_id']} {guest['power_state']}: {guest['verdict']}")


@app.command("enroll")
def host_enroll(name: str, cloud: CloudName = ADMIN) -> None:
    """Print a ticket with which the agent of host NAME enrols, once and within an hour.

    It is a secret. Give it to the agent in the file that its option enroll_token_file names. It also tells
    the agent which control plane to trust.
    """
    typer.echo(failing(lambda: Control(cloud).post(f"{_path(name)}/ticket")["ticket"]))


@app.command("revoke")
def host_revoke(name: str, cloud: CloudName = ADMIN) -> None:
    """Shut host NAME out: its certificates count no more, from its next request on, and its open poll ends.

    Its guests run on. `moorage host enroll` lets it in again.
    """
    failing(lambda: Control(cloud).post(f"{_path(name)}/revoke"))


def _path(name: str) -> str:
    return f"/hosts/{quote(name, safe='')}"


def _state(host: dict[str, Any]) -> str:
    return ("up" if host["up"] else "down") + (", disabled" if host["disabled"] else "")


@app.command("authority")
def host_authority(folder: Path) -> None:
    """Make the authority that signs hosts' certificates, for agent_ca_key and agent_ca_certs.

    `moorage up` has one in its state folder; processes of `moorage api` need the same one each. What is in FOLDER
    already is kept.
    """
    from moorage.agentlink.authority import Authority  # noqa: PLC0415  the server's

    def make() -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            Authority.kept(folder)
        except OSError as error:
            raise BadRequest(f"{folder}: {error.strerror}") from error

    failing(make)
    typer.echo(f"agent_ca_key = {folder.absolute() / 'agents-ca.key'}")
    typer.echo(f"agent_ca_certs = {folder.absolute() / 'agents-ca.crt'}")
