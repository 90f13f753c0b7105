"""OVN: an interface on the host's integration bridge, known to OVN by the port's id."""

from collections.abc import Mapping
from typing import Any, Literal

from moorage.network import errors
from moorage.network.mechanisms.base import BindingPlan, check_reach
from moorage.network.model import HostNetworking


class OvnMechanism:
    """For hosts with ovn-controller. ``nb`` and ``sb`` are OVSDB remotes, such as ``unix:/run/ovn/ovnnb_db.sock``.

    The binding itself needs no connection: the keeper writes it to the Northbound database once it is committed, and
    the Southbound database says when the port is up.
    """

    name = "ovn"
    plug_events_from: Literal["agent", "southbound"] = "southbound"

    def __init__(self, *, nb: str, sb: str, bridge: str = "br-int") -> None:
        self.nb = nb
        self.sb = sb
        self.bridge = bridge

    def plan(self, segment: Mapping[str, Any], vnic_type: str, host: HostNetworking) -> BindingPlan:
        """Raises PortBindingFailed for a NIC type that isn't "normal" or a network the host doesn't reach."""
        if vnic_type != "normal":
            raise errors.PortBindingFailed(
                f"Host {host.host} has no NIC of type {vnic_type}.", needed=vnic_type
            )
        check_reach(segment, host)
        details = {"port_filter": True, "connectivity": "l2", "bridge_name": self.bridge}
        return BindingPlan(vif_type="ovs", vif_details=details, chassis=host.chassis or host.host)
