"""The messages. Unknown fields are ignored, so that either side may be newer than the other.

An agent asks for commands and gets ``Commands``; what it has to say goes up as ``Uplink``: results, each
of which it repeats until the control plane has acknowledged it, and events.
"""

from typing import Any, Literal

import msgspec

Outcome = Literal["succeeded", "refused", "failed"]
PowerState = Literal["running", "paused", "shutdown", "crashed", "suspended", "unknown"]
DatapathName = Literal["ovn", "simulated"]


class EnrollRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A new host introduces itself with a one-time token and asks for a certificate of the key it has made.

    ``csr`` is a certificate signing request, PEM; only its key counts. A request whose answer was lost can be
    repeated with the same key: the token is used up by then, the key is known.
    """

    token: str
    csr: str
    name: str
    protocol: int
    agent_version: str


class EnrollReply(msgspec.Struct, frozen=True, kw_only=True):
    """The host is known from now on, by ``certificate``; it trusts ``authority``. Both are PEM."""

    host_id: str
    protocol: int
    certificate: str
    authority: str


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A host asks, with the certificate it has, for one of a new key."""

    csr: str


class RenewReply(msgspec.Struct, frozen=True, kw_only=True):
    """The new certificate, and the authority to trust from now on; both PEM."""

    certificate: str
    authority: str


class GuestState(msgspec.Struct, frozen=True):
    """One guest as the hypervisor sees it."""

    server_id: str
    power_state: PowerState


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has and runs: sent at start and every heartbeat. Units: MiB of memory, GiB of disk."""

    vcpus: int
    memory_mb: int
    disk_gb: int
    hypervisor_type: str
    hypervisor_version: int
    cpu_arch: str
    datapath: DatapathName
    protocol: int
    agent_version: str
    chassis: str | None = None
    physical_networks: tuple[str, ...] = ()
    reserved_memory_mb: int = 0
    host_ip: str = "127.0.0.1"
    cpu_info: dict[str, Any] = {}
    guests: tuple[GuestState, ...] = ()


class ReportReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a report. ``renew``: the host's certificate should be renewed now.

    The control plane says so, by its own clock and its own record: an agent's clock decides nothing.
    """

    renew: bool = False


Verdict = Literal["keep", "destroy", "unknown"]


class GuestList(msgspec.Struct, frozen=True):
    """The guests of a host that has started or was cut off, by server id: may it still run them?"""

    guests: list[str] = []


class Verdicts(msgspec.Struct, frozen=True):
    """By server id. ``keep``: it belongs here. ``destroy``: the server is elsewhere or was deleted; stop the guest and
    remove it. ``unknown``: leave it as it is and touch nothing of it.
    """

    verdicts: dict[str, Verdict] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do. Its key is (operation, step, kind, fence); ``seq`` grows in the order of the queue.

    ``seconds_left`` counts from the delivery: it is a length of time, as the clocks of two machines differ.
    ``request_id`` is the user's request behind the operation, for the logs.

    ``payload`` stays encoded until the kind is known: an agent refuses a kind it does not know, by a result,
    instead of failing to read the whole batch.
    """

    id: str
    seq: int
    operation: str
    step: str
    fence: int
    kind: str
    payload: msgspec.Raw
    seconds_left: float | None = None
    request_id: str | None = None


class Commands(msgspec.Struct, frozen=True):
    """The answer to a poll; empty when nothing came up in time."""

    commands: list[Command] = []


COMMAND_OLD = "agent.command_old"


class CommandError(msgspec.Struct, frozen=True):
    """Why a command was refused or failed: a stable code and a sentence for people."""

    code: str
    message: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended.

    ``refused``: nothing was done and another host may well do it. ``failed``: it was tried; what it left is
    taken back by the step's undo. Refused with the code ``COMMAND_OLD``: the host has begun a command for the same
    guest whose ``seq`` is higher, data {"newest": that seq}.
    """

    command_id: str
    operation: str
    step: str
    fence: int
    outcome: Outcome
    data: dict[str, Any] = {}
    error: CommandError | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened on a host unasked: "port.plugged", "port.unplugged", "guest.power"."""

    kind: str
    data: dict[str, Any] = {}


class Uplink(msgspec.Struct, frozen=True):
    """Results and events of one host, in order; recorded together."""

    results: list[Result] = []
    events: list[Event] = []


class FixedIp(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a port with what a guest needs to use it."""

    address: str
    subnet_id: str
    cidr: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()


class Vif(msgspec.Struct, frozen=True, kw_only=True):
    """A bound port, ready to be plugged on its host."""

    port_id: str
    mac: str
    network_id: str
    iface: str
    vif_type: Literal["ovs", "simulated"]
    mtu: int = 1500
    fixed_ips: tuple[FixedIp, ...] = ()
    details: dict[str, Any] = {}


class ImageRef(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the image service. ``url`` is its path at the control plane; ``hash_algo`` is a name hashlib knows."""

    id: str
    url: str
    hash_algo: str
    hash_value: str
    size: int
    disk_format: str = "raw"


class BootImage(ImageRef, frozen=True, kw_only=True):
    """The image of a server; with ``kernel`` it is booted directly, else from its disk."""

    min_disk_gb: int = 0
    kernel: ImageRef | None = None
    ramdisk: ImageRef | None = None
    kernel_args: str | None = None


class ConfigDrive(msgspec.Struct, frozen=True, kw_only=True):
    """The three documents a guest reads at first boot; ``user_data`` is base64 text as the user gave it."""

    meta_data: dict[str, Any]
    network_data: dict[str, Any] = {}
    user_data: str | None = None


class SpawnGuest(msgspec.Struct, frozen=True, kw_only=True):
    """guest.spawn: make the guest, plug its VIFs, start it. Repeating it finds the guest running."""

    server_id: str
    name: str
    hostname: str
    project_id: str
    user_id: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    image: BootImage | None = None
    vifs: tuple[Vif, ...] = ()
    config_drive: ConfigDrive | None = None


class DestroyGuest(msgspec.Struct, frozen=True, kw_only=True):
    """guest.destroy: end the guest and remove all that belongs to it; done already is success."""

    server_id: str


class StartGuest(msgspec.Struct, frozen=True, kw_only=True):
    """guest.start: power on a guest that the host has. Sent by control planes up to 0.1; newer ones repeat guest.spawn."""

    server_id: str


class StopGuest(msgspec.Struct, frozen=True, kw_only=True):
    """guest.stop: "soft" asks the guest and pulls the plug after ``timeout`` seconds, "hard" pulls it at once."""

    server_id: str
    mode: Literal["soft", "hard"] = "soft"
    timeout: int = 60


class RebootGuest(msgspec.Struct, frozen=True, kw_only=True):
    """guest.reboot: a soft reboot that the guest does not answer within ``timeout`` seconds becomes a hard one."""

    server_id: str
    hard: bool = False
    timeout: int = 60


class ConsoleOutput(msgspec.Struct, frozen=True, kw_only=True):
    """guest.console: the last ``length`` lines, all that is kept when None; result data {"output": text}."""

    server_id: str
    length: int | None = None


GuestPayload = SpawnGuest | DestroyGuest | StartGuest | StopGuest | RebootGuest | ConsoleOutput
