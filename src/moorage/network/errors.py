"""Errors of the network service.

Class names are the ``type`` of Neutron's fault body (``{"NeutronError": {"type": ..., "message": ..., "detail": ""}}``),
which clients match on; statuses are Neutron's too.

    MoorageError
     +- BadRequest 400     InvalidInput, InvalidIpForSubnet, InvalidIpForNetwork, InvalidAllocationPool,
     |                     OutOfBoundsAllocationPool, PortSecurityAndIPRequiredForSecurityGroups, ...
     +- NotFound 404       NetworkNotFound, SubnetNotFound, PortNotFound, SecurityGroupNotFound, ...
     +- Conflict 409       IpAddressGenerationFailure, IpAddressInUse, PortBindingFailed, OverlappingAllocationPools, ...
     |   +- InUse          NetworkInUse, SubnetInUse, PortInUse, SecurityGroupInUse, ServicePortInUse
     +- OverQuota 409 (Neutron's status for it)
     +- RevisionNumberConstraintFailed 412
"""

from moorage.core import errors
from moorage.core.errors import MoorageError


class InvalidInput(errors.BadRequest):
    """A value that is well formed but makes no sense here."""

    code = "network.invalid_input"


class InvalidIpForSubnet(InvalidInput):
    """The address is not in the subnet, or is its network or broadcast address."""

    code = "network.invalid_ip_for_subnet"


class InvalidIpForNetwork(InvalidInput):
    """The address is in none of the network's subnets."""

    code = "network.invalid_ip_for_network"


class InvalidAllocationPool(InvalidInput):
    """A pool whose start is after its end, or of the other IP version."""

    code = "network.invalid_allocation_pool"


class OutOfBoundsAllocationPool(InvalidInput):
    """A pool that leaves its subnet."""

    code = "network.allocation_pool_out_of_bounds"


class PortSecurityAndIPRequiredForSecurityGroups(InvalidInput):
    """Security groups were asked for where they cannot be applied."""

    code = "network.security_groups_need_port_security_and_ip"


class SecurityGroupInvalidPortRange(InvalidInput):
    """port_range_min above port_range_max, or only one of them."""

    code = "network.security_group_port_range"


class SecurityGroupInvalidIcmpValue(InvalidInput):
    """ICMP type or code out of 0..255, or a code without a type."""

    code = "network.security_group_icmp_value"


class SecurityGroupInvalidProtocolForPortRange(InvalidInput):
    """Ports were given for a protocol that has none."""

    code = "network.security_group_protocol_has_no_ports"


class SecurityGroupRemoteGroupAndRemoteIpPrefix(InvalidInput):
    """A rule names a remote group and a remote prefix at once."""

    code = "network.security_group_two_remotes"


class SecurityGroupRuleParameterConflict(InvalidInput):
    """Ethertype and prefix or protocol contradict each other."""

    code = "network.security_group_rule_conflict"


class NetworkRequiresSubnet(InvalidInput):
    """A server's NIC needs an address and the network has no subnet."""

    code = "network.network_requires_subnet"


class ExternalNetworkAttachForbidden(errors.Forbidden):
    """An external network that isn't shared carries no servers of other projects."""

    code = "network.external_attach_forbidden"


class NetworkNotFound(errors.NotFound):
    """No such network, or another project's."""

    code = "network.network_not_found"


class SubnetNotFound(errors.NotFound):
    """No such subnet, or another project's."""

    code = "network.subnet_not_found"


class PortNotFound(errors.NotFound):
    """No such port, or another project's."""

    code = "network.port_not_found"


class SegmentNotFound(errors.NotFound):
    """No such segment."""

    code = "network.segment_not_found"


class SecurityGroupNotFound(errors.NotFound):
    """No such security group, or another project's."""

    code = "network.security_group_not_found"


class SecurityGroupRuleNotFound(errors.NotFound):
    """No such rule, or another project's."""

    code = "network.security_group_rule_not_found"


class NetworkInUse(errors.InUse):
    """The network still has ports."""

    code = "network.network_in_use"


class SubnetInUse(errors.InUse):
    """Ports still have addresses of the subnet."""

    code = "network.subnet_in_use"


class PortInUse(errors.InUse):
    """The port belongs to another device already."""

    code = "network.port_in_use"


class ServicePortInUse(errors.InUse):
    """The port belongs to a router or alike and goes with it."""

    code = "network.service_port_in_use"


class SecurityGroupInUse(errors.InUse):
    """Ports still use the group."""

    code = "network.security_group_in_use"


class SecurityGroupCannotRemoveDefault(errors.InUse):
    """A project's default group stays."""

    code = "network.default_security_group_stays"


class SecurityGroupCannotUpdateDefault(errors.Conflict):
    """The default group keeps its name."""

    code = "network.default_security_group_name"


class SecurityGroupDefaultAlreadyExists(errors.Conflict):
    """The name "default" is that of the group every project has."""

    code = "network.default_security_group_exists"


class SecurityGroupRuleExists(errors.Conflict):
    """The same rule is there."""

    code = "network.security_group_rule_exists"


class SecurityGroupAmbiguous(errors.Conflict):
    """Several groups of the project have the name."""

    code = "network.security_group_ambiguous"


class IpAddressGenerationFailure(errors.Conflict):
    """No free address is left where the port needs one."""

    code = "network.no_free_address"


class IpAddressInUse(errors.Conflict):
    """Another port has the address."""

    code = "network.address_in_use"


class MacAddressInUse(errors.Conflict):
    """Another port of the network has the MAC address."""

    code = "network.mac_in_use"


class MacAddressGenerationFailure(errors.Conflict):
    """No free MAC address was found."""

    code = "network.no_free_mac"


class OverlappingAllocationPools(errors.Conflict):
    """Two pools of a subnet share addresses."""

    code = "network.allocation_pools_overlap"


class GatewayConflictWithAllocationPools(errors.Conflict):
    """The gateway's address lies in a pool."""

    code = "network.gateway_in_allocation_pool"


class VlanIdInUse(errors.Conflict):
    """Another network has the VLAN tag on that physical network."""

    code = "network.vlan_in_use"


class TunnelIdInUse(errors.Conflict):
    """Another network has the tunnel id."""

    code = "network.tunnel_id_in_use"


class FlatNetworkInUse(errors.Conflict):
    """The physical network carries a flat network already."""

    code = "network.flat_in_use"


class NoNetworkAvailable(errors.Conflict):
    """No segmentation id is left in the configured ranges."""

    code = "network.no_segmentation_id"


class InvalidSharedSetting(errors.Conflict):
    """Other projects use the network: it cannot stop being shared."""

    code = "network.still_shared"


class PortBindingFailed(errors.Conflict):
    """The host cannot carry the port; another host may."""

    code = "network.port_binding_failed"


class HostNotConnectedToAnySegment(PortBindingFailed):
    """The host reaches none of the network's physical networks."""

    code = "network.host_not_connected"


class PortSecurityPortHasSecurityGroup(errors.Conflict):
    """Port security cannot be switched off while the port has groups or address pairs."""

    code = "network.port_has_security_groups"


class OverQuota(errors.OverQuota):
    """The project has as many as it may have. Neutron answers 409."""

    status = 409
    code = "network.over_quota"


class RevisionNumberConstraintFailed(MoorageError):
    """If-Match named another revision than the resource has."""

    status = 412
    code = "network.revision_mismatch"
