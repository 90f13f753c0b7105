"""The checks a host must pass, one small class each.

A check answers for all hosts at once with a mask (true: the host passes). Only when somebody asks why
hosts were refused does `reasons` put the answer into words and figures, for any number of them at once.
`chain` says which checks a request needs and in which order; the order is also the precedence in
which a summary counts a host that fails several of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from moorage.scheduling.findings import Finding, Positions, Reasons
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

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:
        """Say why the hosts at these positions, which the mask refused, do not pass."""


class RequestedHostCheck(msgspec.Struct, frozen=True):
    """The host is the one that was asked for."""

    host: str
    name: str = "requested_host"

    def mask(self, hosts: HostTable) -> Mask:
        """Return a mask with at most one host."""
        return hosts.among((self.host,))

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Name the host that was asked for."""
        yield Finding(reason="not_requested", short="not the requested host", subject=self.host), len(failing)


class ExcludedCheck(msgspec.Struct, frozen=True):
    """The host did not refuse this server before."""

    excluded: dict[str, str]
    name: str = "excluded"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that are not excluded."""
        return ~hosts.among(self.excluded)

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:
        """Carry the reason that the host gave when it refused."""
        said = self.excluded[hosts.names[failing[0]]]
        yield Finding(reason="refused_before", short="refused before", private=said), len(failing)


class UpCheck(msgspec.Struct, frozen=True):
    """The host's agent was heard of lately."""

    name: str = "up"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that are up."""
        return hosts.up

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Say that the host is down."""
        yield Finding(reason="down", short="down"), len(failing)


class EnabledCheck(msgspec.Struct, frozen=True):
    """No operator has closed the host for new servers."""

    name: str = "enabled"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that are enabled."""
        return hosts.enabled

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:
        """Carry the operator's reason."""
        said = hosts.disabled_reasons[failing[0]]
        yield Finding(reason="disabled", short="disabled", private=said), len(failing)


class ZoneCheck(msgspec.Struct, frozen=True):
    """The host is in the availability zone that was asked for."""

    zone: str
    name: str = "zone"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts of the zone."""
        return hosts.mask(hosts.zone_masks, self.zone)

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Name the zone."""
        yield Finding(reason="other_zone", short=f"not in zone {self.zone}", subject=self.zone), len(failing)


class TogetherCheck(msgspec.Struct, frozen=True):
    """The host is one of those where the servers are that this one belongs with."""

    hosts: tuple[str, ...]
    name: str = "together"

    def mask(self, hosts: HostTable) -> Mask:
        """Return these hosts."""
        return hosts.among(self.hosts)

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Say that the others are elsewhere."""
        yield Finding(reason="affinity", short="away from the servers of the group"), len(failing)


class ApartCheck(msgspec.Struct, frozen=True):
    """The host has none of the servers that this one has to be kept from."""

    hosts: tuple[str, ...]
    name: str = "apart"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts without them."""
        return ~hosts.among(self.hosts)

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Say that one of them is there."""
        yield Finding(reason="anti_affinity", short="taken by a server of the group"), len(failing)


class PhysicalNetworkCheck(msgspec.Struct, frozen=True):
    """The host is wired to a physical network."""

    network: str
    name: str = "physical_network"

    def mask(self, hosts: HostTable) -> Mask:
        """Return the hosts that the network reaches."""
        return hosts.mask(hosts.physical_networks, self.network)

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Name the physical network."""
        yield (
            Finding(
                reason="unreachable_network",
                short=f"without physical network {self.network}",
                subject=self.network,
            ),
            len(failing),
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

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Name the trait."""
        reason, word = ("forbidden_trait", "with") if self.forbidden else ("missing_trait", "without")
        yield Finding(reason=reason, short=f"{word} trait {self.trait}", subject=self.trait), len(failing)


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

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:
        """Give the figures: what is free, or the unit that stands in the way; of what several are so, the first."""
        column, amount = hosts.resource(self.resource_class), self.amount
        word = WORDS.get(self.resource_class, self.resource_class)
        sizes = f"where a server gets other sizes of {word}"
        left, free = np.ones(len(failing), dtype=np.bool_), column.free[failing]
        for reason, short, those, figures, text in (
            ("absent", f"without {word}", column.capacity[failing] == 0, column.capacity, None),
            ("short", f"short of {word}", free < amount, column.free, None),
            ("below_min_unit", sizes, column.min_unit[failing] > amount, column.min_unit, "no less than"),
            ("above_max_unit", sizes, column.max_unit[failing] < amount, column.max_unit, "at most"),
            (
                "off_step",
                sizes,
                amount % column.step_size[failing] != 0,
                column.step_size,
                "only multiples of",
            ),
        ):
            found = np.flatnonzero(left & those)
            if len(found):
                left[found] = False
                available = int(figures[failing[found[np.argmax(free[found])]]])
                yield self._finding(reason, short, available, text), len(found)

    def _finding(self, reason: str, short: str, available: int, text: str | None) -> Finding:
        return Finding(
            reason=reason,
            short=short,
            subject=self.resource_class,
            needed=self.amount,
            available=available,
            private=f"hands out {text} {available} of {self.resource_class}" if text else None,
        )


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """The host has a provider for one granular group."""

    column: GroupColumn
    name: str = "group"

    def mask(self, hosts: HostTable) -> Mask:  # noqa: ARG002  the protocol's form
        """Return the hosts that have such a provider."""
        return self.column.fits

    def reasons(self, hosts: HostTable, failing: Positions) -> Reasons:  # noqa: ARG002  the protocol's form
        """Say what the hosts lack for the group."""
        return self.column.why(failing)


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
