"""What a lab is: a YAML file read into frozen structs, every mistake reported with the path of the wrong value."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import yaml

from moorage.lab.errors import LabFileError

_NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")
_Parsed = TypeVar("_Parsed")


class HostDefaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a host reports and runs with, unless it says otherwise."""

    vcpus: int = 4
    memory_mb: int = 1024
    disk_gb: int = 20
    hypervisor: Literal["qemu", "simulated"] = "qemu"
    accelerator: Literal["tcg", "kvm"] = "tcg"


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One host; a figure left out is taken from the lab's ``hosts``."""

    name: str
    vcpus: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None
    hypervisor: Literal["qemu", "simulated"] | None = None
    accelerator: Literal["tcg", "kvm"] | None = None


class PhysicalNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A network of the racks' switches; with ``gateway`` (address/prefix) the spine routes it."""

    name: str
    gateway: str | None = None


class Rack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts on one switch; ``underlay`` is the IPv4 subnet of their tunnel addresses, its first address the router's."""

    name: str
    underlay: str
    hosts: tuple[Host, ...]
    physical_networks: tuple[str, ...] = ()

    @property
    def subnet(self) -> ipaddress.IPv4Network:
        """The underlay's subnet."""
        return ipaddress.IPv4Network(self.underlay)

    @property
    def gateway(self) -> ipaddress.IPv4Interface:
        """The router's address in the underlay, with the prefix length."""
        return ipaddress.IPv4Interface((self.subnet.network_address + 1, self.subnet.prefixlen))

    def address(self, host: str) -> ipaddress.IPv4Interface:
        """A host's tunnel address: the subnet's tenth and following."""
        place = [member.name for member in self.hosts].index(host)
        return ipaddress.IPv4Interface((self.subnet.network_address + 10 + place, self.subnet.prefixlen))


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole data centre."""

    name: str
    racks: tuple[Rack, ...]
    physical_networks: tuple[PhysicalNetwork, ...] = ()
    hosts: HostDefaults = HostDefaults()

    def places(self) -> list[tuple[Rack, Host]]:
        """Every host with its rack, in the file's order, the lab's defaults filled in."""
        return [(rack, self.complete(host)) for rack in self.racks for host in rack.hosts]

    def complete(self, host: Host) -> Host:
        """The host with every figure set."""
        given = {key: value for key, value in msgspec.structs.asdict(host).items() if value is not None}
        return Host(**{**msgspec.structs.asdict(self.hosts), **given})

    def racks_of(self, physical_network: str) -> list[Rack]:
        """The racks whose switch carries a physical network."""
        return [rack for rack in self.racks if physical_network in rack.physical_networks]


def default_file() -> Path:
    """The file of the lab that is built when no other is named."""
    return Path(__file__).with_name("default.yaml")


def load(file: Path) -> Lab:
    """Read a lab's file; raises LabFileError naming the field, or LabFileError("file") when it cannot be read."""
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise LabFileError("file", f"cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise LabFileError("file", f"{file} is not YAML: {error}") from error
    try:
        lab = msgspec.convert(content, Lab)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        raise LabFileError(place.rstrip("`").removeprefix("$.") or "file", problem) from error
    _check(lab)
    return lab


def _check(lab: Lab) -> None:
    """What types cannot say: names, addresses, references and uniqueness."""
    _check_name("name", lab.name)
    if not lab.racks:
        raise LabFileError("racks", "a lab needs at least one rack")
    known = [network.name for network in lab.physical_networks]
    _check_unique("physical_networks", known)
    for place, network in enumerate(lab.physical_networks):
        _check_name(f"physical_networks[{place}].name", network.name)
        if network.gateway is not None:
            _check_value(f"physical_networks[{place}].gateway", ipaddress.ip_interface, network.gateway)
    _check_unique("racks", [rack.name for rack in lab.racks])
    _check_unique("racks[].hosts", [host.name for rack in lab.racks for host in rack.hosts])
    for place, rack in enumerate(lab.racks):
        _check_rack(f"racks[{place}]", rack, known)
    _check_overlap(lab.racks)
    for rack, host in lab.places():
        for figure in ("vcpus", "memory_mb", "disk_gb"):
            if getattr(host, figure) < 1:
                raise LabFileError(f"racks.{rack.name}.hosts.{host.name}.{figure}", "must be at least 1")


def _check_rack(at: str, rack: Rack, known: list[str]) -> None:
    _check_name(f"{at}.name", rack.name)
    subnet = _check_value(f"{at}.underlay", ipaddress.IPv4Network, rack.underlay)
    if subnet.num_addresses < len(rack.hosts) + 12:
        raise LabFileError(f"{at}.underlay", f"{rack.underlay} is too small for {len(rack.hosts)} hosts")
    for number, host in enumerate(rack.hosts):
        _check_name(f"{at}.hosts[{number}].name", host.name)
        if host.name == "spine" or host.name.startswith(("switch-", "probe-")):
            raise LabFileError(
                f"{at}.hosts[{number}].name", f"'{host.name}' is the name of a part of the lab"
            )
    for number, name in enumerate(rack.physical_networks):
        if name not in known:
            raise LabFileError(f"{at}.physical_networks[{number}]", f"'{name}' is not in physical_networks")


def _check_name(field: str, name: str) -> None:
    # Twelve characters: the names become namespaces and, with a letter before them, interfaces of at most fifteen.
    if _NAME.fullmatch(name) is None:
        raise LabFileError(field, f"'{name}' must be 1 to 12 small letters, digits or '-', a letter first")


def _check_unique(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise LabFileError(field, f"'{name}' appears twice")
        seen.add(name)


def _check_value(field: str, parse: Callable[[str], _Parsed], value: str) -> _Parsed:
    try:
        return parse(value)
    except ValueError as error:
        raise LabFileError(field, str(error)) from error


def _check_overlap(racks: tuple[Rack, ...]) -> None:
    for place, rack in enumerate(racks):
        for other in racks[:place]:
            if rack.subnet.overlaps(other.subnet):
                raise LabFileError(
                    f"racks[{place}].underlay", f"{rack.underlay} overlaps that of {other.name}"
                )
