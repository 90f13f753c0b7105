"""Building a lab, taking it down, and looking at it.

The record of a lab is written before anything is made, and all names follow from it and from the state folder, so any
later process can finish a lab or take it down, however far it came.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import msgspec

from moorage.lab import model, netns, underlay
from moorage.lab.errors import LabError, LabGivenUp, LabUnavailable
from moorage.lab.host import PARTS, AgentLink, LabHost
from moorage.lab.model import Lab
from moorage.lab.names import Names, names_of, processes_in
from moorage.lab.ovn import OvnCentral
from moorage.lab.shell import Progress, end, quiet

#: Gives an enrolment ticket for the host of that name.
Enroll = Callable[[str], str]

_PROGRAMS = {
    "ip": "iproute2",
    "ethtool": "ethtool",
    "ovs-vswitchd": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovsdb-server": "openvswitch-common",
    "ovsdb-tool": "openvswitch-common",
    "ovn-northd": "ovn-central",
    "ovn-nbctl": "ovn-common",
    "ovn-sbctl": "ovn-common",
    "ovn-appctl": "ovn-common",
    "ovn-controller": "ovn-host",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
}


class Record(msgspec.Struct, frozen=True):
    """What a lab is and what it is connected to; ``central`` is true when the lab runs OVN's databases itself."""

    lab: Lab
    southbound: str
    control_url: str | None
    central: bool


class HostStatus(msgspec.Struct, frozen=True):
    """One host as it is now: the parts that run, and how many guests."""

    name: str
    rack: str
    address: str
    running: tuple[str, ...]
    missing: tuple[str, ...]
    guests: int


class LabStatus(msgspec.Struct, frozen=True):
    """A lab as it is now; no hosts when there is none."""

    name: str | None
    hosts: tuple[HostStatus, ...]
    namespaces: tuple[str, ...]


def problems() -> list[str]:
    """Why a lab cannot run on this machine; empty when it can."""
    missing = [
        f"no {program} (apt-get install {package})"
        for program, package in _PROGRAMS.items()
        if shutil.which(program) is None
    ]
    return (["not root"] if os.geteuid() != 0 else []) + missing


def up(
    file: Path,
    state: Path,
    *,
    southbound: str | None = None,
    control_url: str | None = None,
    enroll: Enroll | None = None,
    progress: Progress = quiet,
    given_up: threading.Event | None = None,
) -> Record:
    """Build the lab of ``file`` with ``state`` as its folder; what runs already is left as it is.

    ``southbound`` is the OVSDB address of OVN's Southbound database; without it the lab runs a central of its own in
    ``state/ovn``.  ``control_url`` is where agents find the control plane (``https+unix:///...`` works, as namespaces
    share the file system); without it no agents are started.  ``enroll`` is asked once for a host without an identity.
    Raises LabUnavailable, LabFileError, CommandFailed; LabError when another lab is in ``state``; LabGivenUp where
    ``given_up`` is set before the next host is begun.
    """
    missing = problems()
    if missing:
        raise LabUnavailable(missing)
    lab = model.load(file)
    names = names_of(state)
    with _locked(names):
        record = _write_record(names, lab, southbound, control_url)
        if record.central:
            OvnCentral(names.state / "ovn").start_now()
        (names.state / "images").mkdir(exist_ok=True)
        progress(f"lab {lab.name}: switches of {len(lab.racks)} racks and the spine")
        underlay.build(lab, names)
        for host in hosts(record, names):
            if given_up is not None and given_up.is_set():
                raise LabGivenUp(f"the lab was given up before its host {host.name}")
            _raise_host(host, record, enroll, progress)
    return record


def down(state: Path, progress: Progress = quiet) -> None:
    """Take down the lab in ``state`` and remove all it made, a half-built one too; nothing to do when there is none."""
    names = names_of(state)
    if shutil.which("ip") is None or not (names.record.exists() or names.namespaces()):
        return
    with _locked(names):
        record = read_record(names)
        if record is not None:
            for host in hosts(record, names):
                host.destroy()
                progress(f"host {host.name}: gone")
        for namespace in names.namespaces():
            end(processes_in(namespace))
            netns.delete(namespace)
        if record is not None and record.central:
            OvnCentral(names.state / "ovn").stop_now()
        _remove_files(names)
    progress("lab: nothing left")


def status(state: Path) -> LabStatus:
    """What of the lab in ``state`` is there now."""
    names = names_of(state)
    record = read_record(names)
    if record is None:
        return LabStatus(None, (), tuple(names.namespaces()))
    found = tuple(_host_status(host, record) for host in hosts(record, names))
    return LabStatus(record.lab.name, found, tuple(names.namespaces()))


def hosts(record: Record, names: Names) -> list[LabHost]:
    """The hosts of a recorded lab."""
    return [LabHost(names, rack, host) for rack, host in record.lab.places()]


def host_named(state: Path, name: str) -> LabHost:
    """One host of the lab in ``state``; raises LabError when there is no such host."""
    names = names_of(state)
    record = read_record(names)
    known = hosts(record, names) if record is not None else []
    for host in known:
        if host.name == name:
            return host
    listed = ", ".join(host.name for host in known) or "none"
    raise LabError(f"the lab in {state} has no host '{name}'; it has: {listed}")


def read_record(names: Names) -> Record | None:
    """The lab's record, None when there is no lab."""
    try:
        return msgspec.json.decode(names.record.read_bytes(), type=Record)
    except FileNotFoundError:
        return None


def _raise_host(host: LabHost, record: Record, enroll: Enroll | None, progress: Progress) -> None:
    host.build(record.southbound)
    agent = "no agent"
    if record.control_url is not None:
        ticket = enroll(host.name) if enroll is not None and not host.enrolled() else None
        host.start_agent(AgentLink(record.control_url, ticket))
        agent = f"agent {host.pid('agent') or 'starting'}"
    progress(f"host {host.name}: {host.address}, switch and ovn-controller up, {agent}")


def _host_status(host: LabHost, record: Record) -> HostStatus:
    wanted = PARTS if record.control_url is not None else PARTS[:-1]
    running = tuple(part for part in wanted if host.pid(part) is not None)
    rack = next(rack.name for rack, member in record.lab.places() if member.name == host.name)
    return HostStatus(
        name=host.name,
        rack=rack,
        address=str(host.address.ip),
        running=running,
        missing=tuple(part for part in wanted if part not in running),
        guests=len(host.guests()),
    )


def _write_record(names: Names, lab: Lab, southbound: str | None, control_url: str | None) -> Record:
    earlier = read_record(names)
    if earlier is not None and earlier.lab != lab:
        raise LabError(
            f"{names.state} holds the lab '{earlier.lab.name}' as another file describes it:"
            " take it down first (moorage lab down)"
        )
    central = OvnCentral(names.state / "ovn")
    record = Record(lab, southbound or central.sb_socket, control_url, southbound is None)
    names.record.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    return record


def _remove_files(names: Names) -> None:
    """Remove what a lab makes in its folder, by name, and the folder itself when nothing else is in it."""
    for folder in ("hosts", "probes", "images", "ovn"):
        if (names.state / folder).exists():
            shutil.rmtree(names.state / folder)
    for file in ("lock", "lab.json"):
        (names.state / file).unlink(missing_ok=True)
    if not any(names.state.iterdir()):
        names.state.rmdir()


@contextmanager
def _locked(names: Names) -> Iterator[None]:
    """Only one process builds or removes a lab at a time."""
    names.state.mkdir(parents=True, exist_ok=True)
    with (names.state / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield
