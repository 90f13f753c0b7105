"""``moorage``: one command, a group for each noun. Prints what it does; failures are one line and exit status 1.

The server and the agent are imported by the commands that run them alone: the others are clients and start in a
moment.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from moorage.cli.client import ADMIN, CloudName, Control
from moorage.cli.failures import failing
from moorage.cli.hosts import app as host_app
from moorage.cli.operations import app as operations_app
from moorage.cli.simulate import simulate
from moorage.core import config as core_config
from moorage.core import log
from moorage.core.memory import settle
from moorage.lab.commands import app as lab_app

if TYPE_CHECKING:
    from moorage.server.cloud import Cloud

app = typer.Typer(
    help="A network-aware cloud control plane.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
db = typer.Typer(help="The database's schema.", no_args_is_help=True)
config = typer.Typer(help="Configuration.", no_args_is_help=True)
server = typer.Typer(help="Servers, beyond what `openstack server` shows.", no_args_is_help=True)
placement = typer.Typer(help="What placement knows.", no_args_is_help=True)
for name, group in (
    ("db", db),
    ("config", config),
    ("host", host_app),
    ("server", server),
    ("operations", operations_app),
    ("placement", placement),
    ("lab", lab_app),
):
    app.add_typer(group, name=name)
app.command()(simulate)

ConfigFiles = Annotated[
    list[Path] | None, typer.Option("--config-file", help="Configuration; may be given several times.")
]


def load(files: list[Path] | None) -> Any:
    """The configuration of this process."""
    from moorage.server.options import options  # noqa: PLC0415  see the module's text

    return core_config.load(options(), files=[str(f) for f in files or ()])


_FILES = 65_536


def serving(files: list[Path] | None) -> Any:
    """The configuration of a process that serves, with its logs set up; failures are one line and exit status 1."""
    from moorage.server.options import checked  # noqa: PLC0415  see the module's text

    conf = failing(lambda: checked(load(files)))
    # Whatever a generous umask says, what the server makes is written by its own account alone.
    os.umask(os.umask(0o077) | 0o022)
    # Connections are files: the usual 1024 are fewer than [limits] lets in.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    log.configure(level=conf.log_level, json=conf.log_json)
    return conf


@app.command()
def up(config_file: ConfigFiles = None) -> None:
    """Start the cloud in the foreground; Ctrl-C stops it and its children."""
    from moorage.server.allinone import AllInOne  # noqa: PLC0415  see the module's text

    conf = serving(config_file)
    from moorage.cli.serving import serve  # noqa: PLC0415

    allinone = AllInOne(conf, _say)

    def ready(cloud: "Cloud") -> None:
        _settled(cloud)
        state = allinone.state
        _say(
            f"ready. compute {cloud.url('compute')}/v2.1, placement {cloud.url('placement')}, "
            f"network {cloud.url('network')}"
        )
        _say(f"export OS_CLIENT_CONFIG_FILE={state.clouds} OS_CLOUD=moorage (administrator: {ADMIN})")

    failing(lambda: serve(allinone.running(), ready, lambda: _say("stopping")))


@app.command()
def api(config_file: ConfigFiles = None) -> None:
    """Serve the APIs on a database and a Keystone of your own; there may be many of these."""
    _role("api", config_file)


@app.command()
def conductor(config_file: ConfigFiles = None) -> None:
    """Drive the operations and the keepers; there may be many of these."""
    _role("conductor", config_file)


def _role(name: str, config_file: list[Path] | None) -> None:
    from moorage.cli.serving import serve  # noqa: PLC0415  see the module's text
    from moorage.server import programs  # noqa: PLC0415
    from moorage.server.cloud import Role  # noqa: PLC0415

    conf = serving(config_file)

    def ready(cloud: "Cloud") -> None:
        _settled(cloud)
        listening = "".join(f", {api} {cloud.url(api)}" for api in cloud.ports)
        _say(f"{name} is ready{listening}")

    failing(lambda: serve(programs.running(conf, Role(name)), ready))


def _settled(cloud: "Cloud") -> None:
    """It is up: SIGHUP looks at files that may have changed, and memory stays as it is."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, cloud.reload)
    settle()


def _say(line: str) -> None:
    """A line for people, beside the log."""
    typer.echo(f"moorage: {line}", err=True)


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def agent(context: typer.Context) -> None:
    """Run guests on this host, as the cloud says; ``moorage agent --help`` lists its options."""
    from moorage.agent.main import run  # noqa: PLC0415  see the module's text

    raise typer.Exit(run(context.args))


@db.command("upgrade")
def db_upgrade(config_file: ConfigFiles = None, revision: str = "head") -> None:
    """Bring the schema of ``database_url`` to a revision."""
    conf = serving(config_file)
    if not conf.database_url:
        typer.echo(
            "moorage: the embedded database is upgraded by `moorage up`; set database_url for another",
            err=True,
        )
        raise typer.Exit(1)
    from moorage.server import migrations  # noqa: PLC0415  see the module's text

    failing(lambda: migrations.upgrade(conf.database_url, revision))


@config.command("sample")
def config_sample() -> None:
    """Print every option with its help and default: the control plane's, and in [agent] those of `moorage agent`."""
    from moorage.agent.config import options as agent_options  # noqa: PLC0415  see the module's text
    from moorage.server.options import options  # noqa: PLC0415

    typer.echo(core_config.sample([*options(), *agent_options()]))


@config.command("show")
def config_show(config_file: ConfigFiles = None) -> None:
    """Print every option, its value in force and where that comes from; secrets are masked."""
    from moorage.server.options import options  # noqa: PLC0415  see the module's text

    group = None
    for each in core_config.shown(options(), failing(lambda: load(config_file))):
        if each.group != group:
            group = each.group
            typer.echo(f"[{group}]")
        typer.echo(f"{each.name} = {each.value}  # {each.source}")


@server.command("explain")
def server_explain(
    server_id: str,
    cloud: Annotated[str, typer.Option(envvar="OS_CLOUD", help="Entry in clouds.yaml.")] = "moorage",
) -> None:
    """Say where a server was placed, and why not elsewhere."""
    from moorage.cli.explain import render  # noqa: PLC0415

    render(failing(lambda: Control(cloud).get(f"/servers/{server_id}/placement")), Console())


Asked = Annotated[
    str,
    typer.Argument(
        help="As for /allocation_candidates: `resources=VCPU:2,MEMORY_MB:512&required=HW_NUMA_ROOT`."
    ),
]


@placement.command("explain")
def placement_explain(query: Asked, cloud: CloudName = ADMIN) -> None:
    """Say why providers give no candidate for a query."""
    from moorage.cli.placement import show_explanation  # noqa: PLC0415

    show_explanation(failing(lambda: Control(cloud).get(f"/placement/explain?{query}")), Console())


@placement.command("capacity")
def placement_capacity(query: Asked, cloud: CloudName = ADMIN) -> None:
    """Count how many more of a query's shape fit, in all and for each aggregate."""
    from moorage.cli.placement import show_capacity  # noqa: PLC0415

    show_capacity(failing(lambda: Control(cloud).get(f"/placement/capacity?{query}")), Console())


@placement.command("dump")
def placement_dump(
    output: Annotated[Path | None, typer.Option(help="A file; without it, standard output.")] = None,
    cloud: CloudName = ADMIN,
) -> None:
    """Write hosts, providers and what is used as JSON, for `moorage simulate`."""
    text = json.dumps(failing(lambda: Control(cloud).get("/placement/dump")), indent=1)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text)


@app.command()
def audit(cloud: CloudName = ADMIN) -> None:
    """Check the invariants between servers, ports, addresses, allocations and hosts."""
    report = failing(lambda: Control(cloud).get("/audit"))
    for invariant, count in report["checked"].items():
        typer.echo(f"{invariant}: {count} checked")
    for finding in report["findings"]:
        typer.echo(f"FINDING {finding['invariant']} {finding['subject']}: {finding['message']}")
    typer.echo("audit: clean" if report["clean"] else f"audit: {len(report['findings'])} findings")
    raise typer.Exit(0 if report["clean"] else 1)


def main() -> None:
    """The console script."""
    # Where the lab's programs are; a root that came by `su` may not have it.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        app()


if __name__ == "__main__":
    main()
