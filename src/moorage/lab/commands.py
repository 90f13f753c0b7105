"""``moorage lab``: the lab from the command line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from moorage.core.errors import MoorageError
from moorage.core.places import default_state
from moorage.lab import clients, demo, image, model, probe, up
from moorage.lab.ovn import OvnCentral
from moorage.lab.shell import run

app = typer.Typer(
    help="A data centre on this machine: racks, hosts, switches and guests.", no_args_is_help=True
)
probes = typer.Typer(help="A client in a tenant network, on one of the lab's hosts.", no_args_is_help=True)
app.add_typer(probes, name="probe")

DEFAULT_STATE = default_state()

State = Annotated[
    Path, typer.Option(envvar="MOORAGE_STATE", help="The cloud's state folder; the lab is in 'lab' below it.")
]


def lab_state(state: Path) -> Path:
    """The lab's folder in the cloud's state folder."""
    return state.absolute() / "lab"


def enroll_by_command(state: Path, host: str) -> str:
    """An enrolment ticket for a host, as ``moorage host enroll`` prints it for the cloud in ``state``."""
    env = {"MOORAGE_STATE": str(state)}
    if (state / "clouds.yaml").exists():
        env["OS_CLIENT_CONFIG_FILE"] = str(state / "clouds.yaml")
    return run(sys.executable, "-m", "moorage.cli.main", "host", "enroll", host, env=env).split()[-1]


@app.command("up")
def lab_up(
    file: Annotated[
        Path | None, typer.Argument(help="The lab's YAML file. Default: two racks of two hosts.")
    ] = None,
    *,
    state: State = DEFAULT_STATE,
    southbound: Annotated[
        str | None, typer.Option(help="OVN's Southbound database. Default: the cloud's, in its state folder.")
    ] = None,
    control_url: Annotated[
        str | None, typer.Option(help="Where agents find the cloud. Default: the socket in its state folder.")
    ] = None,
    agents: Annotated[bool, typer.Option(help="Start an agent on each host.")] = True,
) -> None:
    """Build the lab, or what is missing of it."""
    root = state.absolute()
    if southbound is None and (root / "ovn" / "sb.sock").exists():
        southbound = f"unix:{root / 'ovn' / 'sb.sock'}"
    if control_url is None:
        control_url = f"https+unix://{root / 'agent.sock'}"
    with _said():
        up.up(
            file or model.default_file(),
            lab_state(state),
            southbound=southbound,
            control_url=control_url if agents else None,
            enroll=partial(enroll_by_command, root) if agents else None,
            progress=typer.echo,
        )


@app.command("down")
def lab_down(*, state: State = DEFAULT_STATE) -> None:
    """Take the lab down, guests included, and leave nothing of it.

    OVN's databases, which a cloud leaves running for the lab's sake, are ended too unless the cloud still runs.
    """
    with _said():
        up.down(lab_state(state), progress=typer.echo)
        if not clients.cloud_listens(state.absolute()):
            OvnCentral(state.absolute() / "ovn").stop_now()


@app.command("status")
def lab_status(*, state: State = DEFAULT_STATE) -> None:
    """Show every host and what runs on it; exit status 1 when something does not."""
    with _said():
        found = up.status(lab_state(state))
    if found.name is None:
        typer.echo(f"no lab in {lab_state(state)}")
        for namespace in found.namespaces:
            typer.echo(f"namespace {namespace} is left of one: `moorage lab down` removes it")
        raise typer.Exit(1)
    table = Table("host", "rack", "address", "running", "missing", "guests")
    for host in found.hosts:
        table.add_row(
            host.name,
            host.rack,
            host.address,
            " ".join(host.running),
            " ".join(host.missing),
            str(host.guests),
        )
    Console().print(table)
    raise typer.Exit(int(any(host.missing for host in found.hosts)))


@app.command("image")
def lab_image(
    *,
    state: State = DEFAULT_STATE,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of finished images. Default: in the state folder.")
    ] = None,
) -> None:
    """Build the guest image from Debian packages; its path is the last line printed."""
    with _said():
        made = image.build_image(
            cache or state.absolute() / "cache", progress=lambda line: typer.echo(line, err=True)
        )
    typer.echo(made.disk)


@app.command("demo")
def lab_demo(
    *,
    state: State = DEFAULT_STATE,
    cloud: Annotated[str, typer.Option(help="The user's entry in clouds.yaml.")] = "moorage",
    admin_cloud: Annotated[str, typer.Option(help="The administrator's entry.")] = "moorage-admin",
    keep: Annotated[bool, typer.Option(help="Say at the end how to go on with the cloud.")] = True,
) -> None:
    """Boot three servers as a user would, reach one, and delete one."""
    with _said():
        demo.Demo(clients.Clouds(state.absolute(), cloud, admin_cloud), typer.echo, keep=keep).run()


@app.command("wait")
def lab_wait(*, state: State = DEFAULT_STATE, patience: float = 120) -> None:
    """Wait until the cloud takes requests."""
    with _said():
        clients.wait_for_cloud(clients.Clouds(state.absolute()), patience)


@probes.command("plug")
def probe_plug(
    port_id: Annotated[str, typer.Argument(help="A port of the network API, bound to the host.")],
    *,
    host: Annotated[str, typer.Option(help="The lab's host.")],
    mac: Annotated[str, typer.Option(help="The port's MAC address.")],
    address: Annotated[str, typer.Option(help="The port's address with the subnet's prefix: 10.0.0.5/24.")],
    gateway: Annotated[str | None, typer.Option(help="The subnet's router, if the probe needs one.")] = None,
    mtu: Annotated[int, typer.Option(help="The network's MTU.")] = 1442,
    state: State = DEFAULT_STATE,
) -> None:
    """Plug a client into the host's switch under a port's id."""
    port = probe.ProbePort(port_id, mac, address, gateway, mtu)
    with _said():
        plugged = probe.plug(lab_state(state), host, port)
    typer.echo(f"{address} on {host}, namespace {plugged.namespace}")


@probes.command("ping")
def probe_ping(port_id: str, address: str, *, wait: float = 10, state: State = DEFAULT_STATE) -> None:
    """Ping an address from a probe; exit status 1 when there is no answer."""
    _check(state, port_id, lambda client: client.ping(address, wait))


@probes.command("echo")
def probe_echo(
    port_id: str, address: str, port: int = 7, *, wait: float = 5, state: State = DEFAULT_STATE
) -> None:
    """Send a line to a TCP echo from a probe; exit status 1 when it does not come back."""
    _check(state, port_id, lambda client: client.echo(address, port, wait))


@probes.command("unplug")
def probe_unplug(port_id: str, *, state: State = DEFAULT_STATE) -> None:
    """Remove a probe."""
    with _said():
        probe.find(lab_state(state), port_id).unplug()


def _check(state: Path, port_id: str, question: Callable[[probe.Probe], bool]) -> None:
    with _said():
        answered = question(probe.find(lab_state(state), port_id))
    typer.echo("answered" if answered else "no answer")
    raise typer.Exit(int(not answered))


@contextmanager
def _said() -> Iterator[None]:
    """Turn an error of ours into one line and exit status 1."""
    try:
        yield
    except MoorageError as error:
        typer.echo(f"moorage lab: {error}", err=True)
        raise typer.Exit(1) from error
