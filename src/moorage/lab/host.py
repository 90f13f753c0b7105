"""One host: a namespace with its own Open vSwitch, ovn-controller, agent, and the guests the agent starts.

The switch's bridges: ``br-int`` is OVN's; ``br-phy`` holds the tunnel address, with the cable to the rack's switch as a
port, so that the userspace datapath can send tunnels itself; one ``br-NETWORK`` for every physical network of the rack.
Every step looks at what is there first, so a host can be built again over what a crash has left.
"""

from __future__ import annotations

import configparser
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

import moorage
from moorage.lab import netns, underlay
from moorage.lab.errors import CommandFailed
from moorage.lab.model import Host, Rack
from moorage.lab.names import Names, processes_in
from moorage.lab.ovn import check_socket_path
from moorage.lab.shell import command_line, end, pid_of, run, start_daemon, wait_for

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
#: The parts of a host that run, in the order in which they are started.
PARTS = ("ovsdb", "vswitchd", "controller", "agent")


class AgentLink(msgspec.Struct, frozen=True):
    """How the host's agent reaches the control plane; the ticket is needed the first time only."""

    control_url: str
    ticket: str | None = None


class LabHost:
    """A host of a lab; nothing is kept in memory that is not on disk or in the kernel."""

    def __init__(self, names: Names, rack: Rack, host: Host) -> None:
        self.name = host.name
        self.namespace = names.namespace(host.name)
        self.folder = names.host_folder(host.name)
        self.address = rack.address(host.name)
        self.ovsdb = f"unix:{self.folder / 'ovs' / 'db.sock'}"
        self._names = names
        self._rack = rack
        self._host = host

    def build(self, southbound: str) -> None:
        """Make the namespace, its cables and its switch, and start ovn-controller on the Southbound address."""
        ovs = self.folder / "ovs"
        check_socket_path(ovs / "ovn-controller.4194304.ctl")
        ovs.mkdir(parents=True, exist_ok=True)
        netns.create(self.namespace)
        underlay.plug_host(self._names, self._rack, self.name)
        self._start_switch()
        self._build_bridges()
        self._start_controller(southbound)

    def start_agent(self, link: AgentLink) -> None:
        """Start the agent in the namespace unless it runs; the ticket goes into a file that only its owner reads."""
        if self.pid("agent") is not None:
            return
        home = self.folder / "agent"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        config = self._write_agent_config(home, link)
        source = str(Path(moorage.__file__).parents[1])
        pid = start_daemon("ip", "netns", "exec", self.namespace, sys.executable, "-m", "moorage.agent.main",
                           "--config-file", config, log=self.folder / "agent.log",
                           env={"PYTHONPATH": source, "OVS_RUNDIR": str(self.folder / "ovs")})  # fmt: skip
        (self.folder / "ovs" / "agent.pid").write_text(f"{pid}\n")

    def enrolled(self) -> bool:
        """True when the agent has an identity of its own, so that it needs no ticket."""
        return (self.folder / "agent" / "identity.json").is_file()

    def pid(self, part: str) -> int | None:
        """The process of one of PARTS, None when it does not run."""
        return pid_of(self.folder / "ovs" / f"{part}.pid", self.folder)

    def guests(self) -> list[int]:
        """The QEMU processes in the namespace."""
        if not netns.exists(self.namespace):
            return []
        return [
            pid
            for pid in processes_in(self.namespace)
            if "qemu-system" in command_line(pid).partition(" ")[0]
        ]

    def destroy(self) -> None:
        """End everything of the host, guests included, and remove its namespace and its folder."""
        agent, controller = self.pid("agent"), self.pid("controller")
        end(pid for pid in (agent,) if pid is not None)
        if controller is not None:
            # Told to leave, it takes its chassis and tunnels out of the Southbound database.
            self._leave_ovn(controller)
        if netns.exists(self.namespace):
            end(processes_in(self.namespace))
        end(pid for pid in map(self.pid, PARTS) if pid is not None)
        netns.delete(self.namespace)
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def vsctl(self, *words: str) -> str:
        """Run ovs-vsctl on the host's switch; it returns when the switch has done it."""
        return run("ovs-vsctl", f"--db={self.ovsdb}", "--timeout=60", *words, env=self._rundirs)

    @property
    def _rundirs(self) -> dict[str, str]:
        ovs = str(self.folder / "ovs")
        return {"OVS_RUNDIR": ovs, "OVN_RUNDIR": ovs}

    def _daemon(self, part: str, program: str, *words: str | Path, control: bool = True) -> None:
        base = self.folder / "ovs" / part
        options = [
            f"--pidfile={base}.pid",
            f"--log-file={base}.log",
            "--detach",
            "--no-chdir",
            "-vconsole:off",
        ]
        if control:
            options.append(f"--unixctl={base}.ctl")
        netns.inside(self.namespace, program, *words, *options, env=self._rundirs)

    def _start_switch(self) -> None:
        ovs = self.folder / "ovs"
        database = ovs / "conf.db"
        if not database.exists():
            run("ovsdb-tool", "create", database, _SCHEMA)
        if self.pid("ovsdb") is None:
            self._daemon("ovsdb", "ovsdb-server", database, f"--remote=punix:{ovs / 'db.sock'}")
            wait_for(f"switch database of {self.name}", (ovs / "db.sock").exists, timeout=60)
            self.vsctl("--no-wait", "init")
        if self.pid("vswitchd") is None:
            self._daemon("vswitchd", "ovs-vswitchd", self.ovsdb, "--disable-system")

    def _build_bridges(self) -> None:
        words = [*_bridge("br-int"), "--", "set", "bridge", "br-int", "fail-mode=secure"]
        words += ["--", *_bridge("br-phy"), *_port("br-phy", "phy0")]
        for network in self._rack.physical_networks:
            words += ["--", *_bridge(f"br-{network}"), *_port(f"br-{network}", underlay.uplink(network))]
        self.vsctl(*words)
        netns.batch(self.namespace, [
            f"addr replace {self.address} dev br-phy",
            "link set dev br-phy up",
            f"route replace default via {self._rack.gateway.ip}",
        ])  # fmt: skip
        netns.offload_off(self.namespace, "br-phy")

    def _start_controller(self, southbound: str) -> None:
        mappings = ",".join(f"{name}:br-{name}" for name in self._rack.physical_networks)
        settings = {
            "system-id": self.name,
            "hostname": self.name,
            "ovn-remote": southbound,
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": str(self.address.ip),
            "ovn-bridge": "br-int",
            "ovn-bridge-datapath-type": "netdev",
            "ovn-bridge-mappings": mappings,
        }
        given = [f'external_ids:{key}="{value}"' for key, value in settings.items() if value]
        self.vsctl("--no-wait", "set", "open_vswitch", ".", *given)
        if self.pid("controller") is None:
            self._daemon("controller", "ovn-controller", self.ovsdb, control=False)

    def _leave_ovn(self, controller: int) -> None:
        socket = self.folder / "ovs" / f"ovn-controller.{controller}.ctl"
        try:
            run("ovn-appctl", "-t", socket, "exit", timeout=10)
        except CommandFailed:
            # It may have no database to say good-bye to; then it is ended like the rest.
            end([controller])

    def _write_agent_config(self, home: Path, link: AgentLink) -> Path:
        host = self._host
        config = configparser.ConfigParser(interpolation=None)
        config["agent"] = {
            "control_url": link.control_url,
            "host": self.name,
            "state_dir": str(home),
            "hypervisor": str(host.hypervisor),
            "datapath": "ovn",
            "host_ip": str(self.address.ip),
            "ovsdb": self.ovsdb,
            "accelerator": str(host.accelerator),
            "image_dir": str(self._names.state / "images"),
            "vcpus": str(host.vcpus),
            "memory_mb": str(host.memory_mb),
            "disk_gb": str(host.disk_gb),
            # The lab's figures are what guests may have; the machine keeps its own memory by being larger.
            "reserved_memory_mb": "0",
            "physical_networks": ",".join(self._rack.physical_networks),
        }
        if link.ticket is not None:
            ticket = home / "enroll-ticket"
            ticket.touch(mode=0o600)
            ticket.write_text(link.ticket)
            config["agent"]["enroll_token_file"] = str(ticket)
        path = self.folder / "agent.conf"
        with path.open("w") as file:
            config.write(file)
        return path


def _bridge(name: str) -> list[str]:
    return ["--may-exist", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"]


def _port(bridge: str, name: str) -> Iterable[str]:
    return ["--", "--may-exist", "add-port", bridge, name]
