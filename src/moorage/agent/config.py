"""The agent's options and the frozen settings made from them."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from oslo_config import cfg

from moorage.core.config import OTHERS_SECRET, Group
from moorage.core.secrets import check_modes

_OPTS = [
    cfg.StrOpt(
        "control_url",
        default="https://127.0.0.1:8790",
        help="Where the control plane's agent API is: https://HOST:PORT, or "
        "https+unix:///PATH.sock for a socket on the same machine.",
    ),
    cfg.StrOpt("host", help="The name of this host in the cloud. Default: the machine's host name."),
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/moorage-agent",
        help="Folder of the identity, the journal, the images and the guests; mode 0700. Nothing is written elsewhere.",
    ),
    cfg.StrOpt(
        "enroll_token",
        secret=True,
        help="Ticket of `moorage host enroll`; needed until the host has an identity, and to give it a new one. A secret: "
        "as an argument everybody on the host could read it.",
    ),
    cfg.StrOpt(
        "enroll_token_file",
        help="A file with the ticket, instead of enroll_token; not readable by everybody.",
    ),
    cfg.StrOpt("hypervisor", default="qemu", choices=["qemu", "simulated"], help="What runs the guests."),
    cfg.StrOpt("datapath", default="ovn", choices=["ovn", "simulated"], help="What plugs their ports."),
    cfg.FloatOpt("heartbeat", default=10.0, min=0.1, help="Seconds between two reports."),
    cfg.IntOpt("poll_wait", default=30, min=1, max=300, help="Seconds a poll for commands is held open."),
    cfg.IntOpt(
        "max_commands",
        default=8,
        min=1,
        help="Commands of different guests carried out at once; and as many again that remove guests or read consoles, "
        "which so never wait for boots.",
    ),
    cfg.StrOpt(
        "netns",
        help="Name of a network namespace to enter at start; guests and their ports live in it. "
        "Default: the one the agent was started in.",
    ),
    cfg.StrOpt("host_ip", default="127.0.0.1", help="The address of this host that is shown to operators."),
    cfg.StrOpt(
        "ovsdb",
        default="unix:/var/run/openvswitch/db.sock",
        help="Open vSwitch database of this host, as unix:/PATH.sock.",
    ),
    cfg.StrOpt("bridge", default="br-int", help="The integration bridge."),
    cfg.FloatOpt("plug_timeout", default=30.0, help="Seconds that OVN has to take up a plugged port."),
    cfg.StrOpt(
        "accelerator",
        default="auto",
        choices=["auto", "kvm", "tcg"],
        help="auto takes kvm only where the CPU shows vmx or svm: a kvm device that merely opens is no proof "
        "that guests boot.",
    ),
    cfg.StrOpt("machine", default="pc", help="QEMU's machine type."),
    cfg.StrOpt("cpu_model", help="QEMU's CPU model. Default: host with kvm, qemu64 with tcg."),
    cfg.IntOpt("tb_size", default=32, min=1, help="MiB of translation cache for a guest under tcg."),
    cfg.StrOpt("image_dir", help="Cache of images, may be shared. Default: images below state_dir."),
    cfg.IntOpt("vcpus", min=1, help="CPUs to report. Default: the machine's."),
    cfg.IntOpt("memory_mb", min=1, help="MiB of memory to report. Default: the machine's."),
    cfg.IntOpt("disk_gb", min=1, help="GiB of disk to report. Default: those of state_dir's file system."),
    cfg.IntOpt("reserved_memory_mb", default=512, min=0, help="MiB of memory kept for the host itself."),
    cfg.ListOpt(
        "physical_networks",
        help="Physical networks to report. Default: those of Open vSwitch's ovn-bridge-mappings.",
    ),
    cfg.FloatOpt("simulated_latency", default=0.0, min=0.0, help="Mean seconds a simulated guest takes."),
    cfg.FloatOpt("simulated_fault_rate", default=0.0, min=0.0, max=1.0, help="Share of them that fails."),
]


def options() -> list[Group]:
    """The groups of options of an agent."""
    return [("agent", list(_OPTS))]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told; field by field the options above."""

    control_url: str
    host: str
    state_dir: Path
    enroll_token: str | None = None
    hypervisor: Literal["qemu", "simulated"] = "qemu"
    datapath: Literal["ovn", "simulated"] = "ovn"
    heartbeat: float = 10.0
    poll_wait: int = 30
    max_commands: int = 8
    netns: str | None = None
    host_ip: str = "127.0.0.1"
    ovsdb: str = "unix:/var/run/openvswitch/db.sock"
    bridge: str = "br-int"
    plug_timeout: float = 30.0
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    machine: str = "pc"
    cpu_model: str | None = None
    tb_size: int = 32
    image_dir: Path | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None
    reserved_memory_mb: int = 512
    physical_networks: tuple[str, ...] | None = None
    simulated_latency: float = 0.0
    simulated_fault_rate: float = 0.0

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, default_host: str) -> "Settings":
        """Settings from configuration; a token file is read here.

        Raises OSError where it cannot be read, TooOpen where everybody can.
        """
        group = conf.agent
        values: dict[str, Any] = {name: getattr(group, name) for name in cls.__struct_fields__}
        if group.enroll_token is None and group.enroll_token_file:
            file = Path(group.enroll_token_file).resolve()
            check_modes([file], OTHERS_SECRET)
            values["enroll_token"] = file.read_text(encoding="utf-8").strip()
        values["host"] = group.host or default_host
        values["state_dir"] = Path(group.state_dir).absolute()
        values["image_dir"] = Path(group.image_dir).absolute() if group.image_dir else None
        networks = group.physical_networks
        values["physical_networks"] = None if networks is None else tuple(networks)
        return cls(**values)
