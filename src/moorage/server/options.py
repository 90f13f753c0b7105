"""Every option of the control plane, collected from its packages."""

import ipaddress
import re

from oslo_config import cfg

from moorage.api import config as api
from moorage.compute import config as compute
from moorage.core import config
from moorage.core.config import Group
from moorage.core.errors import MoorageError
from moorage.core.places import default_state
from moorage.network import config as network
from moorage.placement import config as placement
from moorage.server import tls

# Account, hosts with ports, name, parameters. A password with one of @/?# in it would be taken for something else, and
# parts of it would show up in messages.
_DATABASE = re.compile(
    r"postgres(ql)?://([^@/?#]*@)?((\[[0-9a-fA-F:]+\]|[^@/?#:,\[\]]*)(:\d+)?(,|(?=[/?#]|\Z)))*(/[^@?#]*)?(\?[^@#]*)?\Z"
)


class OptionsWrong(MoorageError):
    """Options contradict each other."""

    code = "server.options_wrong"


def metrics_address(conf: cfg.ConfigOpts) -> str:
    """Where metrics are served; raises OptionsWrong where the network could read them without a token."""
    address = str(conf.metrics.listen)
    if not conf.metrics.token and not ipaddress.ip_address(address).is_loopback:
        raise OptionsWrong(
            f"[metrics] listen = {address} lets the network read the metrics: set the token of [metrics], or listen on 127.0.0.1"
        )
    return address


def checked(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """The configuration, if a process may serve with it; raises OptionsWrong, TooOpen."""
    config.check_files(options(), conf)
    if conf.database_url and not _DATABASE.match(conf.database_url):
        raise OptionsWrong(
            "database_url is no URL such as postgresql://user:password@host:5432/name; write special characters of its"
            " password as %XX"
        )
    metrics_address(conf)
    for proxy in conf.trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise OptionsWrong(f"trusted_proxies: {proxy} is no address and no network: {error}") from error
    return conf


def options() -> list[Group]:
    """All groups; ``moorage config sample`` prints them."""
    server: list[cfg.Opt] = [
        cfg.StrOpt(
            "state",
            default=str(default_state()),
            sample_default="/var/lib/moorage",
            help="Folder of everything that outlives the process. Other accounts may pass through it (mode 0711), and read no "
            "secret in it. Default: /var/lib/moorage; for others than root moorage in $XDG_STATE_HOME, which is "
            "~/.local/state unless set.",
        ),
        cfg.StrOpt(
            "database_url",
            secret=True,
            help="postgresql:// URL of a PostgreSQL 15 or newer; may name several servers, as "
            "postgresql://a,b/moorage?target_session_attrs=read-write. Default: an embedded one in the state folder.",
        ),
        cfg.IntOpt("database_connections", default=16, min=2, help="Connections this process may hold."),
        cfg.FloatOpt(
            "database_acquire_timeout",
            default=10.0,
            min=0.1,
            help="Seconds that a request waits for a connection, or for PostgreSQL to take one; then it is answered "
            "503.",
        ),
        cfg.FloatOpt(
            "database_statement_timeout",
            default=60.0,
            min=1,
            help="Seconds that one statement may take. PostgreSQL ends longer ones.",
        ),
        cfg.StrOpt("listen", default="127.0.0.1", help="Address the APIs listen on."),
        cfg.StrOpt(
            "public_host",
            help="Host name or address by which clients reach the APIs; it is in the catalogue, and the certificate"
            " must be for it. Default: listen.",
        ),
        cfg.ListOpt(
            "trusted_proxies",
            default=[],
            help="Addresses or networks of the proxies before the APIs, such as 192.0.2.0/28: their X-Forwarded-For and"
            " X-Forwarded-Proto are believed. Default: nobody's.",
        ),
        cfg.PortOpt("compute_port", default=8774, help="Compute and control APIs."),
        cfg.PortOpt("placement_port", default=8778, help="Placement API."),
        cfg.PortOpt("network_port", default=9696, help="Networking API."),
        cfg.PortOpt(
            "agent_port", default=8790, help="The agents' API: TLS, with a certificate for each host."
        ),
        cfg.IntOpt(
            "agent_connections",
            default=60_000,
            min=1,
            help="Connections to the agents' port; a host has two or three.",
        ),
        cfg.StrOpt(
            "agent_ca_key",
            help="File of the key (EC, PEM, mode 0600) that signs hosts' certificates; the same for every process of "
            "the cloud. Default: one that is made in the state folder.",
        ),
        cfg.StrOpt(
            "agent_ca_certs",
            help="File of its certificate (PEM), and of those that agents are to trust before or after it.",
        ),
        cfg.PortOpt("identity_port", default=5000, help="Keystone, when it runs as a child."),
        cfg.PortOpt("image_port", default=9292, help="Glance, when it runs as a child."),
        cfg.StrOpt("identity_url", help="Keystone's v3 URL. Default: a Keystone of our own as a child."),
        cfg.StrOpt("identity_username", default="moorage", help="Our user in an operator's Keystone."),
        cfg.StrOpt("identity_password", secret=True, help="Its password."),
        cfg.StrOpt("image_url", help="Glance's URL. Default: a Glance of our own as a child."),
        cfg.StrOpt(
            "hosts",
            default="auto",
            choices=["auto", "lab", "simulated", "none"],
            help="Hosts that `moorage up` brings along: the lab (needs root, QEMU, Open vSwitch, OVN), simulated "
            "ones, or none. auto: the lab where it can run, else simulated ones.",
        ),
        cfg.IntOpt("simulated_hosts", default=4, min=0, help="How many simulated hosts."),
        cfg.FloatOpt(
            "simulated_latency", default=0.0, min=0.0, help="Mean seconds a guest of theirs takes to start."
        ),
        cfg.FloatOpt(
            "simulated_fault_rate", default=0.0, min=0.0, max=1.0, help="Share of the starts that fail."
        ),
        cfg.StrOpt("lab_file", help="The lab's YAML file. Default: two racks of two hosts."),
        cfg.FloatOpt(
            "service_down_time", default=60.0, min=1, help="Seconds without a report: a host is down."
        ),
        cfg.StrOpt("log_level", default="INFO", help="DEBUG, INFO, WARNING or ERROR."),
        cfg.BoolOpt("log_json", default=False, help="One JSON object a line instead of text."),
    ]
    conductor: list[cfg.Opt] = [
        cfg.IntOpt("concurrency", default=12, min=1, help="Operations driven side by side."),
        cfg.FloatOpt(
            "lease", default=30.0, min=0.1, help="Seconds until another conductor takes over a dead one's."
        ),
        cfg.FloatOpt("poll", default=1.0, min=0.01, help="Seconds between looks for work without a signal."),
        cfg.FloatOpt(
            "vif_plugging_timeout", default=300.0, min=1, help="Seconds a server's ports have to be plugged."
        ),
        cfg.DictOpt(
            "deadlines",
            default={},
            help="Seconds a whole operation may take until it is undone, by kind, such as server.boot:7200; 0: no limit. "
            "Defaults: server.boot and server.delete 3600, server.start, server.stop and server.reboot 1800.",
        ),
        cfg.FloatOpt("command_timeout", default=600.0, min=1, help="Seconds a host has for one command."),
        cfg.IntOpt(
            "operations_per_host",
            default=16,
            min=0,
            help="Operations that may be under way at one host; more of them wait, and boots go elsewhere where they can. "
            "Agents carry out max_commands (8) at once: as many again lie ready. Deletes and undoing are never held up. "
            "0: no limit; but an agent with 512 commands asks for no more, deletes included.",
        ),
        cfg.IntOpt(
            "operations_at_hosts",
            default=10_000,
            min=0,
            help="The same for all hosts together, about; more of them stay in the queue, where projects take turns. Keep "
            "it well above operations_per_host times the hosts that may be slow at once, or these hold up all. 0: no "
            "limit.",
        ),
    ]
    scheduler: list[cfg.Opt] = [
        cfg.FloatOpt(
            "cpu_allocation_ratio", default=4.0, min=0.1, help="VCPUs given out for each CPU of a host."
        ),
        cfg.FloatOpt("ram_allocation_ratio", default=1.0, min=0.1, help="The same for memory."),
        cfg.FloatOpt("disk_allocation_ratio", default=1.0, min=0.1, help="The same for disk."),
    ]
    metrics: list[cfg.Opt] = [
        cfg.BoolOpt("enabled", default=True, help="Serve Prometheus' metrics at /metrics on a port of their own."),
        cfg.StrOpt("listen", default="127.0.0.1", help="Its address; beyond the machine itself only with a token."),
        cfg.PortOpt("port", default=9180, help="Its port."),
        cfg.PortOpt("conductor_port", default=9181, help="The same for a conductor that runs by itself."),
        cfg.StrOpt("token", secret=True, help="Who asks must bring it: Authorization: Bearer TOKEN. Default: none is needed."),
    ]  # fmt: skip
    health: list[cfg.Opt] = [
        cfg.FloatOpt("index_age", default=30.0, min=1, help="Seconds that the placement index may lag behind; then /healthcheck says 503."),
    ]  # fmt: skip
    return [
        ("DEFAULT", server),
        ("conductor", conductor),
        ("scheduler", scheduler),
        ("metrics", metrics),
        ("health", health),
        *tls.options(),
        *api.options(),
        *compute.options(),
        *network.options(),
        *placement.options(),
    ]
