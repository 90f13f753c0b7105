"""A client in a tenant network: a namespace whose link is a port of a lab host's switch.

The port comes from the network API, bound to that host (``binding:host_id``); the probe plugs a veth under the port's id
as a guest's tap would be, and speaks with the port's MAC and address.  OVN claims it like any guest, so what a probe
reaches is what a server on that host would reach, security groups included.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

import moorage
from moorage.lab import netns
from moorage.lab.errors import CommandFailed, LabError
from moorage.lab.host import LabHost
from moorage.lab.names import Names, names_of, processes_in
from moorage.lab.shell import end, wait_for
from moorage.lab.up import host_named

_LINK = "probe0"
#: Seconds that OVN has to install the flows of a plugged port.
PLUG_TIMEOUT = 60.0


class ProbePort(msgspec.Struct, frozen=True):
    """The port a probe stands for; ``address`` has the prefix length, ``gateway`` is the subnet's router if any."""

    port_id: str
    mac: str
    address: str
    gateway: str | None = None
    mtu: int = 1442


class _Plugged(msgspec.Struct, frozen=True):
    host: str
    port: ProbePort


class Probe:
    """A probe that is plugged; made by ``plug`` or found by ``find``."""

    def __init__(self, names: Names, host: LabHost, port: ProbePort) -> None:
        self.port = port
        self.namespace = names.namespace(f"probe-{port.port_id[:8]}")
        self._names = names
        self._host = host
        self._peer = f"tap{port.port_id[:11]}"

    def ping(self, address: str, wait: float = 10) -> bool:
        """True once the address answers one ping; asks once a second for ``wait`` seconds."""
        limit = time.monotonic() + wait
        while True:
            try:
                netns.inside(self.namespace, "ping", "-n", "-c", "1", "-W", "1", address)
            except CommandFailed:
                if time.monotonic() > limit:
                    return False
                time.sleep(0.2)
            else:
                return True

    def echo(self, address: str, port: int = 7, wait: float = 5) -> bool:
        """True when a line sent to the TCP port comes back within ``wait`` seconds."""
        try:
            netns.inside(self.namespace, sys.executable, "-m", "moorage.lab.echo", address, str(port), f"{wait:g}",
                         env={"PYTHONPATH": str(Path(moorage.__file__).parents[1])},
                         timeout=3 * wait + 10)  # fmt: skip
        except CommandFailed:
            return False
        return True

    def run(self, *argv: str, timeout: float = 60) -> str:
        """Run any program as this client and return what it printed."""
        return netns.inside(self.namespace, *argv, timeout=timeout)

    def unplug(self) -> None:
        """Remove the port from the switch, and the namespace with what runs in it."""
        if netns.exists(self._host.namespace):
            self._host.vsctl("--if-exists", "del-port", "br-int", self._peer)
        if netns.exists(self.namespace):
            end(processes_in(self.namespace))
            netns.delete(self.namespace)
        self._names.probe_record(self.port.port_id).unlink(missing_ok=True)

    def build(self) -> None:
        """Make the namespace, its link and its addresses; returns when OVN has the port's flows installed."""
        host = self._host.namespace
        netns.create(self.namespace)
        netns.connect(self.namespace, _LINK, host, self._peer)
        port = self.port
        lines = [
            f"link set dev {_LINK} address {port.mac} mtu {port.mtu}",
            f"addr replace {port.address} dev {_LINK}",
        ]
        if port.gateway is not None:
            lines.append(f"route replace default via {port.gateway}")
        netns.batch(self.namespace, lines)
        self._host.vsctl("--may-exist", "add-port", "br-int", self._peer,
                         "--", "set", "interface", self._peer, f"external_ids:iface-id={port.port_id}",
                         f'external_ids:attached-mac="{port.mac}"')  # fmt: skip
        wait_for(
            f"OVN to take up port {port.port_id} on {self._host.name}", self._installed, timeout=PLUG_TIMEOUT
        )

    def _installed(self) -> bool:
        said = self._host.vsctl("--if-exists", "get", "interface", self._peer, "external_ids:ovn-installed")
        return "true" in said


def plug(state: Path, host: str, port: ProbePort) -> Probe:
    """Plug a probe for ``port`` into ``host`` of the lab in ``state``.

    Raises LabError for an unknown host, CommandFailed when OVN does not take the port up (is it bound to this host?);
    nothing is left then.
    """
    names = names_of(state)
    probe = Probe(names, host_named(state, host), port)
    record = names.probe_record(port.port_id)
    record.parent.mkdir(exist_ok=True)
    record.write_bytes(msgspec.json.encode(_Plugged(host, port)))
    try:
        probe.build()
    except LabError:
        probe.unplug()
        raise
    return probe


def find(state: Path, port_id: str) -> Probe:
    """The probe that another process plugged; raises LabError when there is none."""
    names = names_of(state)
    try:
        plugged = msgspec.json.decode(names.probe_record(port_id).read_bytes(), type=_Plugged)
    except FileNotFoundError as error:
        raise LabError(f"no probe is plugged for port {port_id}") from error
    return Probe(names, host_named(state, plugged.host), plugged.port)
