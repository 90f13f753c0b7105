"""Rows in the shape of the API."""

from datetime import UTC, datetime
from typing import Any

from moorage.network.model import Network, Port, SecurityGroup, SecurityGroupRule, Subnet


def _time(moment: datetime | str) -> str:
    parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return parsed.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _standard(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "project_id": row.project_id,
        "tenant_id": row.project_id,
        "description": row.description,
        "revision_number": row.revision_number,
        "created_at": _time(row.created_at),
        "updated_at": _time(row.updated_at or row.created_at),
        "tags": getattr(row, "tags", []),
    }


def network(row: Network) -> dict[str, Any]:
    """A network; ``provider:*`` are those of its first segment."""
    first = row.segments[0] if row.segments else {}
    return {
        **_standard(row),
        "name": row.name,
        "admin_state_up": row.admin_state_up,
        "status": "ACTIVE",
        "shared": row.shared,
        "mtu": row.mtu,
        "subnets": row.subnet_ids,
        "router:external": row.external,
        "is_default": row.is_default,
        "port_security_enabled": row.port_security_enabled,
        "dns_domain": row.dns_domain,
        "availability_zone_hints": [],
        "availability_zones": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "provider:network_type": first.get("network_type"),
        "provider:physical_network": first.get("physical_network"),
        "provider:segmentation_id": first.get("segmentation_id"),
    }


def subnet(row: Subnet) -> dict[str, Any]:
    """A subnet."""
    same = (
        "name", "network_id", "segment_id", "ip_version", "cidr", "gateway_ip", "enable_dhcp", "dns_nameservers",
        "host_routes", "allocation_pools", "ipv6_ra_mode", "ipv6_address_mode", "service_types",
    )  # fmt: skip
    return {**_standard(row), **{name: getattr(row, name) for name in same}, "subnetpool_id": None}


def port(row: Port) -> dict[str, Any]:
    """A port; ``binding:*`` are those of its active binding."""
    same = (
        "name", "network_id", "admin_state_up", "status", "mac_address", "fixed_ips", "device_id", "device_owner",
        "security_groups", "port_security_enabled", "allowed_address_pairs", "extra_dhcp_opts", "dns_name",
        "ip_allocation",
    )  # fmt: skip
    return {
        **_standard(row),
        **{name: getattr(row, name) for name in same},
        "dns_assignment": [],
        "binding:vnic_type": row.vnic_type,
        "binding:profile": row.profile,
        "binding:host_id": row.host,
        "binding:vif_type": row.vif_type,
        "binding:vif_details": row.vif_details,
    }


def security_group(row: SecurityGroup) -> dict[str, Any]:
    """A security group with its rules."""
    rules = [security_group_rule(_Rule(r)) for r in row.rules]
    return {
        **_standard(row),
        "name": row.name,
        "stateful": row.stateful,
        "shared": row.shared,
        "security_group_rules": rules,
    }


def security_group_rule(row: "SecurityGroupRule | _Rule") -> dict[str, Any]:
    """A rule."""
    same = (
        "security_group_id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max",
        "remote_ip_prefix", "remote_group_id",
    )  # fmt: skip
    return {
        **_standard(row),
        **{name: getattr(row, name) for name in same},
        "normalized_cidr": row.remote_ip_prefix,
        "remote_address_group_id": None,
    }


class _Rule:
    """A rule that came as JSON with its group, read like a row."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError as error:
            raise AttributeError(name) from error
