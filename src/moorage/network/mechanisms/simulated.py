"""Simulated hosts: every port of a network the host reaches can be bound, and nothing is plugged anywhere."""

from collections.abc import Mapping
from typing import Any, Literal

from moorage.network import errors
from moorage.network.mechanisms.base import BindingPlan, check_reach
from moorage.network.model import HostNetworking


class SimulatedMechanism:
    """For agents whose data path is simulated; they report their own plug events."""

    name = "simulated"
    plug_events_from: Literal["agent", "southbound"] = "agent"

    def plan(self, segment: Mapping[str, Any], vnic_type: str, host: HostNetworking) -> BindingPlan:
        """Raises PortBindingFailed for a NIC type that isn't "normal" or a network the host doesn't reach."""
        if vnic_type != "normal":
            raise errors.PortBindingFailed(
                f"Host {host.host} has no NIC of type {vnic_type}.", needed=vnic_type
            )
        check_reach(segment, host)
        return BindingPlan(vif_type="simulated", vif_details={"port_filter": False})
