"""The measured clouds: hosts of six providers each, or of 65, as rows, made the same for every server that is measured."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

RACK = 40
ZONES = 4
PHYSNETS = ("CUSTOM_PHYSNET_PHYSNET0", "CUSTOM_PHYSNET_PHYSNET1", "CUSTOM_PHYSNET_PHYSNET2")
NORMAL, DIRECT = "CUSTOM_VNIC_TYPE_NORMAL", "CUSTOM_VNIC_TYPE_DIRECT"
CUSTOM_TRAITS = (*PHYSNETS, NORMAL, DIRECT)
FAST = "HW_CPU_X86_AVX2"
FUNCTION = "SRIOV_NET_VF"
EGRESS, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
_SPACE = uuid.UUID("8d0f6a54-1c1e-4bd9-8d6c-2f1b3c7de5a0")


class Provider(NamedTuple):
    """One provider; `parent` is its place in the list of its host, None for the root."""

    name: str
    parent: int | None
    inventory: dict[str, tuple[int, float]]
    """Resource class -> total and allocation ratio."""
    traits: tuple[str, ...]


def _host() -> tuple[Provider, ...]:
    bandwidth = {EGRESS: (10_000_000, 1.0), INGRESS: (10_000_000, 1.0)}
    # Room for some thousand servers, so that the claims of one host are not refused before a measurement ends.
    root = {"VCPU": (128, 64.0), "MEMORY_MB": (4_194_304, 1.0), "DISK_GB": (32_768, 1.0)}
    return (
        Provider("", None, root, ("COMPUTE_NODE", FAST)),
        Provider(":ovs", 0, {}, ()),
        Provider(":ovs:br0", 1, bandwidth, (PHYSNETS[0], NORMAL)),
        Provider(":sriov", 0, {}, ()),
        Provider(":sriov:pf1", 3, bandwidth, (PHYSNETS[1], DIRECT)),
        Provider(":sriov:pf2", 3, bandwidth, (PHYSNETS[2], DIRECT)),
    )


def _functions() -> tuple[Provider, ...]:
    root = Provider("", None, {"VCPU": (128, 64.0), "MEMORY_MB": (4_194_304, 1.0)}, ("COMPUTE_NODE", FAST))
    most = [Provider(f":pf{n}", 0, {FUNCTION: (8, 1.0)}, (PHYSNETS[1],)) for n in range(57)]
    few = [Provider(f":pf{n}", 0, {FUNCTION: (1, 1.0)}, (PHYSNETS[2],)) for n in range(57, 64)]
    return root, *most, *few


HOST = _host()
FUNCTIONS = _functions()
"""A host of 64 physical functions; the seven on the last network have one virtual function each, all others eight."""


@dataclass(frozen=True)
class World:
    """So many hosts, all alike but that every third has no AVX2."""

    hosts: int
    host: tuple[Provider, ...] = HOST

    @cached_property
    def ids(self) -> list[list[str]]:
        """The ids of each host's providers, the root's first."""
        return [
            [str(uuid.uuid5(_SPACE, f"{number}{provider.name}")) for provider in self.host]
            for number in range(self.hosts)
        ]

    def traits(self, host: int, place: int) -> tuple[str, ...]:
        """The traits of one provider."""
        return tuple(t for t in self.host[place].traits if t != FAST or host % 3)

    def aggregates(self, host: int) -> tuple[str, str]:
        """The rack and the zone of a host's root."""
        return rack(host // RACK), zone(host // RACK % ZONES)

    def providers(self) -> Iterator[tuple[str, str, str | None, str]]:
        """Rows of (id, name, parent, root)."""
        for number, ids in enumerate(self.ids):
            for place, provider in enumerate(self.host):
                parent = None if provider.parent is None else ids[provider.parent]
                yield ids[place], f"host{number:06}{provider.name}", parent, ids[0]

    def inventories(self) -> Iterator[tuple[str, str, int, float]]:
        """Rows of (provider, resource class, total, ratio)."""
        for ids in self.ids:
            for place, provider in enumerate(self.host):
                for name, (total, ratio) in provider.inventory.items():
                    yield ids[place], name, total, ratio


def rack(number: int) -> str:
    """The aggregate of a rack."""
    return str(uuid.uuid5(_SPACE, f"rack{number}"))


def zone(number: int) -> str:
    """The aggregate of a zone."""
    return str(uuid.uuid5(_SPACE, f"zone{number}"))


def claim_of(ids: list[str]) -> dict[str, dict[str, int]]:
    """A server with one port on the bridge, as allocations."""
    return {ids[0]: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 4}, ids[2]: {EGRESS: 1_000, INGRESS: 1_000}}
