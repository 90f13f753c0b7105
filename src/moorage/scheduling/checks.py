"""The checks a host must pass, one small class each.

A check answers for all hosts at once with a mask (true: the host passes). Only when somebody asks why
a host was refused does `finding` put the answer for that one host into words and figures.
`chain` says which checks a request needs and in which order; the order is also the precedence in
which a summary counts a host that fails several of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from moorage.scheduling.findings import Finding
from moorage.scheduling.hosts import GroupColumn, HostTable, Mask
from moorage.scheduling.request import Request

UNITS = {"MEMORY_MB": "MB", "DISK_GB": "GB", "NET_BW_EGR_KILOBIT_PER_SEC": "kbit/s"}
UNITS["NET_BW_IGR_KILOBIT_PER_SEC"] = UNITS["NET_BW_EGR_KILOBIT_PER_SEC"]
WORDS = {"MEMORY_MB": "memory", "DISK_GB": "disk", "VCPU": "CPUs", "PCPU": "dedicated CPUs"}


class Check(Protocol):
    """One condition on hosts."""

    @property
    def name(self) -> str:
        """The stable name of the check."""

    def mask(self, hosts: HostTable) -> Mask:
        """Return which hosts pass."""

    def finding(self, hosts: HostTable, host: int) -> Finding:
        """Say why the host at this position, which the mask refused, does not pass."""


class RequestedHostCheck(msgspec.Struct, frozen=True):
    """The host is the one that was asked for."""

    host: str
    name: str = "requested_host"

    def mask(self, hosts: HostTable) -> Mask:
        """Return a mask with at most one host."""
        return hosts.among((self.host,))

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Name the host that was asked for."""
        return Finding(reason="not_requested", short="not the requested host", subject=self.host)


class ExcludedCheck(msgspec.Struct, frozen=True):
    """The host did not refuse this server before."""

    excluded: dict[str, str]
    name: str = "excluded"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that are not excluded."""
        return ~hosts.among(self.excluded)

    def finding(self, hosts: HostTable, host: int) -> Finding:
        """Carry the reason that the host gave when it refused."""
        return Finding(
            reason="refused_before", short="refused before", private=self.excluded[hosts.names[host]]
        )


class UpCheck(msgspec.Struct, frozen=True):
    """The host's agent was heard of lately."""

    name: str = "up"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that are up."""
        return hosts.up

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Say that the host is down."""
        return Finding(reason="down", short="down")


class EnabledCheck(msgspec.Struct, frozen=True):
    """No operator has closed the host for new servers."""

    name: str = "enabled"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that are enabled."""
        return hosts.enabled

    def finding(self, hosts: HostTable, host: int) -> Finding:
        """Carry the operator's reason."""
        return Finding(reason="disabled", short="disabled", private=hosts.disabled_reasons[host])


class ZoneCheck(msgspec.Struct, frozen=True):
    """The host is in the availability zone that was asked for."""

    zone: str
    name: str = "zone"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts of the zone."""
        return hosts.mask(hosts.zone_masks, self.zone)

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Name the zone."""
        return Finding(reason="other_zone", short=f"not in zone {self.zone}", subject=self.zone)


class TogetherCheck(msgspec.Struct, frozen=True):
    """The host is one of those where the servers are that this one belongs with."""

    hosts: tuple[str, ...]
    name: str = "together"

    def mask(self, hosts: HostTable) -> Mask:
        """Return these hosts."""
        return hosts.among(self.hosts)

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Say that the others are elsewhere."""
        return Finding(reason="affinity", short="away from the servers of the group")


class ApartCheck(msgspec.Struct, frozen=True):
    """The host has none of the servers that this one has to be kept from."""

    hosts: tuple[str, ...]
    name: str = "apart"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts without them."""
        return ~hosts.among(self.hosts)

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Say that one of them is there."""
        return Finding(reason="anti_affinity", short="taken by a server of the group")


class PhysicalNetworkCheck(msgspec.Struct, frozen=True):
    """The host is wired to a physical network."""

    network: str
    name: str = "physical_network"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that the network reaches."""
        return hosts.mask(hosts.physical_networks, self.network)

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Name the physical network."""
        return Finding(
            reason="unreachable_network",
            short=f"without physical network {self.network}",
            subject=self.network,
        )


class TraitCheck(msgspec.Struct, frozen=True):
    """The host has a trait, or with `forbidden` does not have it."""

    trait: str
    forbidden: bool = False
    name: str = "trait"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that have (or lack) the trait."""
        having = hosts.mask(hosts.traits, self.trait)
        return ~having if self.forbidden else having

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Name the trait."""
        reason, word = ("forbidden_trait", "with") if self.forbidden else ("missing_trait", "without")
        return Finding(reason=reason, short=f"{word} trait {self.trait}", subject=self.trait)


class ResourceCheck(msgspec.Struct, frozen=True):
    """The host has enough of one resource class left, in a unit it hands out."""

    resource_class: str
    amount: int
    name: str = "resource"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts where the amount fits."""
        column = hosts.resource(self.resource_class)
        fits = column.free >= self.amount
        fits &= (column.min_unit <= self.amount) & (column.max_unit >= self.amount)
        fits &= self.amount % column.step_size == 0
        return fits

    def finding(self, hosts: HostTable, host: int) -> Finding:
        """Give the figures: what is free, or the unit that stands in the way."""
        column = hosts.resource(self.resource_class)
        free = int(column.free[host])
        word = WORDS.get(self.resource_class, self.resource_class)
        if column.capacity[host] == 0:
            return self._finding("absent", f"without {word}", 0)
        if free < self.amount:
            return self._finding("short", f"short of {word}", free)
        for reason, limit, text in (
            ("below_min_unit", int(column.min_unit[host]), "hands out no less than {} of"),
            ("above_max_unit", int(column.max_unit[host]), "hands out at most {} of"),
            ("off_step", int(column.step_size[host]), "hands out only multiples of {} of"),
        ):
            if _breaks(reason, self.amount, limit):
                return self._finding(reason, f"where a server gets other sizes of {word}", limit, text)
        return self._finding("short", f"short of {word}", free)

    def _finding(self, reason: str, short: str, available: int, text: str | None = None) -> Finding:
        return Finding(
            reason=reason,
            short=short,
            subject=self.resource_class,
            needed=self.amount,
            available=available,
            private=f"{text.format(available)} {self.resource_class}" if text else None,
        )


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """The host has a provider for one granular group."""

    column: GroupColumn
    name: str = "group"

    def mask(self, hosts: HostTable) -> Mask:  # noqa: ARG002  the protocol's form
        """Return the hosts that have such a provider."""
        return self.column.fits

    def finding(self, hosts: HostTable, host: int) -> Finding:  # noqa: ARG002  the protocol's form
        """Say what the host lacks for the group."""
        return self.column.why(host)


def _breaks(reason: str, amount: int, limit: int) -> bool:
    if reason == "below_min_unit":
        return amount < limit
    if reason == "above_max_unit":
        return amount > limit
    return amount % limit != 0


def chain(request: Request, groups: Iterable[GroupColumn] = ()) -> tuple[Check, ...]:
    """Return the checks that a request and its granular groups need, the most telling first."""
    checks: list[Check] = []
    if request.requested_host is not None:
        checks.append(RequestedHostCheck(request.requested_host))
    checks += [UpCheck(), EnabledCheck()]
    if request.excluded:
        checks.append(ExcludedCheck(request.excluded))
    if request.availability_zone is not None:
        checks.append(ZoneCheck(request.availability_zone))
    if request.together is not None:
        checks.append(TogetherCheck(request.together))
    if request.apart:
        checks.append(ApartCheck(request.apart))
    checks += [PhysicalNetworkCheck(network) for network in request.physical_networks]
    checks += [TraitCheck(trait) for trait in request.required_traits]
    checks += [TraitCheck(trait, forbidden=True) for trait in request.forbidden_traits]
    checks += [ResourceCheck(name, amount) for name, amount in request.resources.items()]
    checks += [GroupCheck(column) for column in groups]
    return tuple(checks)
