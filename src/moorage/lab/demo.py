"""``moorage lab demo``: what a user does first, with the ordinary ``openstack`` command, told as it happens.

Uploads the guest image, makes a flavor, a network with a subnet and three servers; waits for them; says where each was
placed and why; reaches one through a probe in its network; reads its console; deletes one; and runs the audit.  Where no
lab runs (no root, QEMU or Open vSwitch), hosts are simulated: the image is a small file that nothing boots, and what
needs a guest is left out, and said.
"""

import contextlib
import ipaddress
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from moorage.lab import image, probe, up
from moorage.lab.clients import Clouds, Json
from moorage.lab.errors import LabError
from moorage.lab.shell import Progress

SERVERS = ("demo-1", "demo-2", "demo-3")
NETWORK, SUBNET, FLAVOR, IMAGE, PROBE = "demo-net", "demo-subnet", "demo.tiny", "moorage-guest", "demo-probe"
CIDR = "10.20.0.0/24"
#: Seconds that three guests may take to boot under emulation on a busy machine.
BOOT_PATIENCE = 240.0


class Demo:
    """One run; each method is one thing the user does. ``keep``: the cloud goes on afterwards."""

    def __init__(self, clouds: Clouds, say: Progress, *, keep: bool = True) -> None:
        self._clouds = clouds
        self._say = say
        self._keep = keep
        self._started = time.monotonic()
        self._lab = clouds.state / "lab"
        self._real = up.status(self._lab).name is not None if shutil.which("ip") else False

    def run(self) -> None:
        """Do everything in order; raises LabError with what failed, leaving things as they are to be looked at."""
        self._tell("the cloud answers" if self._real else "the cloud answers; its hosts are simulated")
        self._make_shared()
        subnet = self._make_network()
        self._wait_hosts()
        servers = self._boot()
        self._explain(servers)
        if self._real:
            self._reach(servers[0], subnet)
            self._console(servers[0])
        else:
            self._tell("no guest to ping, no TCP echo and no console: this machine runs simulated hosts")
        self._delete(servers[-1])
        self._audit()
        self._farewell()

    def _make_shared(self) -> None:
        """The image and the flavor, which only an administrator may publish."""
        if self._clouds.find("image", IMAGE, cloud=self._clouds.admin) is None:
            with self._image_file() as file:
                self._tell(f"uploading the guest image ({file.stat().st_size / 1e6:.1f} MB)")
                self._clouds.openstack("image", "create", IMAGE, "--file", str(file), "--disk-format", "qcow2",
                                "--container-format", "bare", "--public", cloud=self._clouds.admin)  # fmt: skip
        if self._clouds.find("flavor", FLAVOR, cloud=self._clouds.admin) is None:
            self._tell("making a flavor of 1 CPU, 128 MiB and 1 GiB")
            self._clouds.openstack("flavor", "create", FLAVOR, "--vcpus", "1", "--ram", "128", "--disk", "1",
                            cloud=self._clouds.admin)  # fmt: skip

    def _make_network(self) -> str:
        """A network with a subnet, and two rules that open ping and the echo; returns the subnet's range."""
        if self._clouds.find("network", NETWORK) is None:
            self._tell(f"making a network with the subnet {CIDR}")
            self._clouds.openstack("network", "create", NETWORK)
            self._clouds.openstack("subnet", "create", SUBNET, "--network", NETWORK, "--subnet-range", CIDR)
            self._tell("opening ping and the TCP echo (port 7) in the default security group")
            for words in (["--protocol", "icmp"], ["--protocol", "tcp", "--dst-port", "7"]):
                self._clouds.openstack("security", "group", "rule", "create", "--ingress", *words, "default")
        return CIDR

    def _wait_hosts(self) -> None:
        """The lab's agents have reported; without a lab, at least one simulated host has."""
        wanted = len(up.status(self._lab).hosts) if self._real else 1
        limit = time.monotonic() + 60
        while True:
            rows = self._clouds.openstack_rows("hypervisor", "list", cloud=self._clouds.admin)
            ready = [row for row in rows if row["State"] == "up"]
            if len(ready) >= wanted:
                self._tell(f"{len(ready)} hosts are up")
                return
            if time.monotonic() > limit:
                raise LabError(f"{len(ready)} of {wanted} hosts are up after a minute")
            time.sleep(0.5)

    def _boot(self) -> list[Json]:
        """Three servers, ACTIVE; raises LabError with the fault of one that failed."""
        earlier = [row for row in self._servers() if row["Name"] in SERVERS]
        for row in (row for row in earlier if row["Status"] == "ERROR"):
            self._tell(f"{row['Name']} is in ERROR from an earlier run")
            self._delete(row)
        present = {row["Name"] for row in earlier if row["Status"] != "ERROR"}
        for name in SERVERS:
            if name not in present:
                self._tell(f"asking for server {name}")
                self._clouds.openstack("server", "create", name, "--flavor", FLAVOR, "--image", IMAGE,
                                "--network", NETWORK)  # fmt: skip
        limit, seen = time.monotonic() + BOOT_PATIENCE, dict[str, str]()
        while True:
            rows = [row for row in self._servers() if row["Name"] in SERVERS]
            for row in rows:
                if seen.get(row["Name"]) != row["Status"]:
                    self._tell(f"{row['Name']} is {row['Status']}")
                    seen[row["Name"]] = row["Status"]
                if row["Status"] == "ERROR":
                    fault = self._clouds.openstack("server", "show", row["ID"]).get("fault")
                    raise LabError(f"{row['Name']} did not boot: {fault}")
            if len(rows) == len(SERVERS) and set(seen.values()) == {"ACTIVE"}:
                return sorted(rows, key=lambda row: str(row["Name"]))
            if time.monotonic() > limit:
                raise LabError(f"the servers are not ACTIVE after {BOOT_PATIENCE:g} s: {seen}")
            time.sleep(1)

    def _explain(self, servers: list[Json]) -> None:
        for server in servers:
            self._tell(f"{server['Name']}: where it was placed, and why")
            self._quote(self._clouds.moorage("server", "explain", server["ID"]))

    def _reach(self, server: Json, subnet: str) -> None:
        """Ping the guest and open its echo from a probe on another host."""
        address = _address(server)
        host = self._other_host(server)
        port = self._clouds.openstack("port", "create", PROBE, "--network", NETWORK, "--host", host,
                               cloud=self._clouds.admin)  # fmt: skip
        prefix = ipaddress.ip_network(subnet).prefixlen
        wanted = probe.ProbePort(
            port["id"], port["mac_address"], f"{port['fixed_ips'][0]['ip_address']}/{prefix}"
        )
        try:
            self._tell(f"a probe on {host} at {wanted.address} reaches for {server['Name']} at {address}")
            with _plugged(self._lab, host, wanted) as client:
                self._ask(client, server, address)
        finally:
            self._clouds.openstack_text("port", "delete", wanted.port_id, cloud=self._clouds.admin)

    def _ask(self, client: probe.Probe, server: Json, address: str) -> None:
        started = time.monotonic()
        if not client.ping(address, wait=BOOT_PATIENCE):
            raise LabError(f"{server['Name']} at {address} does not answer ping")
        self._tell(f"ping: answered after {time.monotonic() - started:.1f} s (a guest boots in some seconds)")
        if not client.echo(address, wait=15):
            raise LabError(f"{server['Name']} at {address} does not answer on TCP port 7")
        self._tell("TCP echo on port 7: what was sent came back")

    def _console(self, server: Json) -> None:
        """The guest's own lines; it answers on the network a moment before it says so."""
        limit = time.monotonic() + 30
        while True:
            log = self._clouds.openstack_text("console", "log", "show", server["ID"])
            lines = [line for line in log.splitlines() if "moorage guest" in line]
            if any("ready" in line for line in lines):
                break
            if time.monotonic() > limit:
                raise LabError(
                    f"the console of {server['Name']} does not say that it is ready: {log[-400:]!r}"
                )
        self._tell(f"the console of {server['Name']}:")
        self._quote("\n".join(lines))

    def _delete(self, server: Json) -> None:
        self._tell(f"deleting {server['Name']}")
        self._clouds.openstack_text("server", "delete", "--wait", server["ID"])

    def _audit(self) -> None:
        self._tell("audit: servers, ports, addresses, bindings, allocations and hosts must agree")
        self._quote(self._clouds.moorage("audit"))

    def _farewell(self) -> None:
        done = f"done in {time.monotonic() - self._started:.0f} s"
        if not self._keep:
            self._tell(f"{done}.")
            return
        self._tell(f"{done}. The cloud answers at:")
        for row in self._clouds.openstack_rows("catalog", "list"):
            urls = [each["url"] for each in row["Endpoints"] if each["interface"] == "public"]
            self._quote(f"{row['Type']:<10} {' '.join(urls)}")
        self._tell("go on with:")
        self._quote(
            f"export OS_CLIENT_CONFIG_FILE={self._clouds.file} OS_CLOUD={self._clouds.user}\nopenstack server list"
        )

    def _servers(self) -> list[Json]:
        return self._clouds.openstack_rows("server", "list")

    def _other_host(self, server: Json) -> str:
        """A host of the lab that the server is not on, in another rack when there is one."""
        shown = self._clouds.openstack("server", "show", server["ID"], cloud=self._clouds.admin)
        own = shown.get("OS-EXT-SRV-ATTR:host")
        self._tell(f"{server['Name']} runs on {own}")
        hosts = up.status(self._lab).hosts
        rack = next((host.rack for host in hosts if host.name == own), None)
        return max(hosts, key=lambda host: (host.rack != rack, host.name != own)).name

    @contextlib.contextmanager
    def _image_file(self) -> Iterator[Path]:
        """The file to upload: the guest image where guests are real, else an empty disk."""
        if self._real:
            yield image.build_image(self._clouds.state / "cache", self._say).disk
            return
        file = self._clouds.state / "simulated.qcow2"
        file.write_bytes(_empty_qcow2())
        try:
            yield file
        finally:
            file.unlink()

    def _tell(self, line: str) -> None:
        self._say(f"[{time.monotonic() - self._started:5.1f} s] {line}")

    def _quote(self, text: str) -> None:
        for line in text.strip().splitlines():
            self._say(f"            {line}")


@contextlib.contextmanager
def _plugged(lab: Path, host: str, port: probe.ProbePort) -> Iterator[probe.Probe]:
    client = probe.plug(lab, host, port)
    try:
        yield client
    finally:
        client.unplug()


def _address(server: Json) -> str:
    """The server's first address, of what the list shows by network."""
    return str(next(iter(server["Networks"].values()))[0])


def _empty_qcow2() -> bytes:
    """A qcow2 file of a 1 MiB disk with nothing in it: header, an empty L1 table, and the refcounts of its 4 clusters."""
    cluster = 65536
    header = b"QFI\xfb" + b"".join(
        number.to_bytes(size, "big")
        for number, size in (
            (2, 4), (0, 8), (0, 4), (16, 4), (1 << 20, 8), (0, 4), (1, 4), (3 * cluster, 8), (cluster, 8), (1, 4),
            (0, 4), (0, 8),
        )
    )  # fmt: skip
    table = (2 * cluster).to_bytes(8, "big")
    counts = b"\0\1" * 4
    return b"".join(part.ljust(cluster, b"\0") for part in (header, table, counts, b""))
