"""The agent as a program: ``moorage agent`` or ``python -m moorage.agent.main``."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

from pyroute2 import netns

from moorage.agent.agent import Agent
from moorage.agent.config import Settings, options
from moorage.agent.datapaths.base import Datapath
from moorage.agent.datapaths.ovn import OvnDatapath
from moorage.agent.datapaths.simulated import SimulatedDatapath
from moorage.agent.hypervisors.base import Hypervisor
from moorage.agent.hypervisors.qemu import QemuHypervisor
from moorage.agent.hypervisors.simulated import Behaviour, SimulatedHypervisor
from moorage.agent.journal import FileJournal
from moorage.agent.link import Transport
from moorage.agent.state import prepare
from moorage.core import config, log
from moorage.core.errors import MoorageError


def make_hypervisor(settings: Settings) -> Hypervisor:
    """The hypervisor that the settings name."""
    if settings.hypervisor == "qemu":
        return QemuHypervisor(settings)
    behaviour = Behaviour.of(settings.simulated_latency, settings.simulated_fault_rate)
    return SimulatedHypervisor(behaviour, settings.state_dir / "guests")


def make_datapath(settings: Settings) -> Datapath:
    """The datapath that the settings name."""
    if settings.datapath == "ovn":
        return OvnDatapath(settings.ovsdb, settings.bridge, settings.plug_timeout)
    return SimulatedDatapath(settings.physical_networks or ())


async def serve(settings: Settings) -> None:
    """Run the agent until it is cancelled."""
    async with Transport(settings.control_url) as transport:
        journal = FileJournal(settings.state_dir / "journal.sqlite")
        await Agent(settings, transport, journal, make_hypervisor(settings), make_datapath(settings)).run()


async def _until_told(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(serve(settings), name="agent")
    for number in (signal.SIGTERM, signal.SIGINT):
        # Once: a second signal would cut short what the first one lets end in order.
        loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run(argv: Sequence[str] | None = None) -> int:
    """The program; its exit status. SIGTERM and SIGINT end it; guests run on."""
    parser = argparse.ArgumentParser(
        prog="moorage agent",
        description="Runs guests on this host.",
        epilog="Options for --set, in [agent] of a file, or as MOORAGE_AGENT_NAME in the environment; the values are the "
        f"defaults:\n\n{config.sample(options())}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config-file", action="append", default=[], help="may be given several times")
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", help="an option of those below"
    )
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--log-json", action="store_true")
    given = parser.parse_args(argv)
    # Whatever it writes, and QEMU in its name, is its own account's alone.
    os.umask(0o077)
    log.configure(level=given.log_level, json=given.log_json)
    overrides = {}
    known = {option.dest for _, group in options() for option in group}
    for pair in given.set:
        name, _, value = pair.partition("=")
        if name not in known:
            parser.error(f"there is no option {name!r}; there are: {', '.join(sorted(known))}")
        overrides[f"agent.{name}"] = value
    status = 0
    try:
        conf = config.load(options(), files=given.config_file, overrides=overrides)
        config.check_files(options(), conf)
        settings = Settings.of(conf, socket.gethostname())
        prepare(settings.state_dir)
        if settings.netns:
            # Before any thread exists: a thread is in the namespace of the one that started it.
            netns.setns(settings.netns)
        asyncio.run(_until_told(settings))
    except* (MoorageError, OSError) as group:
        for error in _leaves(group):
            sys.stderr.write(f"moorage agent: {error}\n")
        status = 1
    return status


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


if __name__ == "__main__":
    sys.exit(run())
