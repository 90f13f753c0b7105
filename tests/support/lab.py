"""What tests of labs share: a network written by hand, and a look at what a lab has left behind."""

from pathlib import Path

from moorage.lab import probe, up
from moorage.lab.names import names_of
from moorage.lab.shell import run


class Network:
    """A logical switch with DHCP, written straight into the Northbound database."""

    def __init__(self, record: up.Record) -> None:
        self._nb = record.southbound.replace("sb.sock", "nb.sock")
        self.nb("ls-add", "net", "--", "set", "logical_switch", "net", "other_config:subnet=10.9.0.0/24")
        self._dhcp = self.nb("create", "dhcp_options", "cidr=10.9.0.0/24",
                             'options={"server_id"="10.9.0.1","server_mac"="02:00:00:00:09:01",'
                             '"lease_time"="3600","mtu"="1442","router"="10.9.0.1"}').strip()  # fmt: skip

    def nb(self, *words: str) -> str:
        return run("ovn-nbctl", f"--db={self._nb}", "--timeout=60", *words)

    def port(self, port_id: str, number: int) -> probe.ProbePort:
        mac, address = f"02:00:00:00:09:{number:02x}", f"10.9.0.{number}"
        self.nb("lsp-add", "net", port_id, "--", "lsp-set-addresses", port_id, f"{mac} {address}",
                "--", "lsp-set-dhcpv4-options", port_id, self._dhcp)  # fmt: skip
        return probe.ProbePort(port_id, mac, f"{address}/24")


def leftovers(state: Path) -> list[str]:
    """Processes whose command line names the lab's folder, and namespaces of the lab."""
    found = names_of(state).namespaces()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(state) in words:
            found.append(words)
    return found
