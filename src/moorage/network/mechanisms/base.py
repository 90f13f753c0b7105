"""Mechanisms: how a port is made real on a host.

A host says which data path it has; the mechanism of that name decides whether it can carry a port there and what the
host's agent must do. It is pure: it looks at the port's segment and the host's facts, and gives a plan or raises.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from moorage.network import errors
from moorage.network.model import HostNetworking


class BindingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a port is bound: what the agent plugs, and the name the data plane knows the host by."""

    vif_type: Literal["ovs", "simulated"]
    vif_details: dict[str, Any]
    chassis: str | None = None


class Mechanism(Protocol):
    """One way to make ports real."""

    name: str
    plug_events_from: Literal["agent", "southbound"]
    """Who says that a port is plugged: the host's agent, or the data plane's own state."""

    def plan(self, segment: Mapping[str, Any], vnic_type: str, host: HostNetworking) -> BindingPlan:
        """How to bind a port of ``segment`` on ``host``. Raises PortBindingFailed."""
        ...


def check_reach(segment: Mapping[str, Any], host: HostNetworking) -> None:
    """Raise HostNotConnectedToAnySegment when the host doesn't reach the segment's physical network."""
    physnet = segment["physical_network"]
    if physnet is not None and physnet not in host.physical_networks:
        raise errors.HostNotConnectedToAnySegment(
            f"Host {host.host} is not connected to physical network {physnet}.",
            host=host.host,
            needed=physnet,
            available=sorted(host.physical_networks),
        )
