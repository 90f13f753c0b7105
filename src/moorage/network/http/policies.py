"""Policy rules of the Networking API: upstream's names, with its secure defaults."""

_ADMIN = "role:admin"
_OWN = "rule:project_member"
_READ = "rule:project_reader"
_SERVICE = "role:admin or role:service"

DEFAULTS: dict[str, str] = {
    **{f"{verb}_{thing}": _OWN for thing in ("network", "subnet") for verb in ("create", "update", "delete")},
    # Other services of the cloud use ports of every project, and what a port is on.
    **{f"{verb}_port": f"{_OWN} or role:service" for verb in ("create", "update", "delete")},
    **{f"get_{thing}": f"{_READ} or role:service" for thing in ("network", "subnet", "port")},
    **{f"{verb}_security_group": _OWN for verb in ("create", "update", "delete")},
    **{f"{verb}_security_group_rule": _OWN for verb in ("create", "delete")},
    **{f"get_{thing}": _READ for thing in ("security_group", "security_group_rule")},
    **{
        f"{verb}_network:{attribute}": _ADMIN
        for verb in ("create", "update")
        for attribute in (
            "shared", "router:external", "is_default", "provider:network_type", "provider:physical_network",
            "provider:segmentation_id",
        )
    },
    **{
        f"get_network:{attribute}": _ADMIN
        for attribute in ("provider:network_type", "provider:physical_network", "provider:segmentation_id", "segments")
    },
    **{f"{verb}_network:port_security_enabled": _OWN for verb in ("create", "update")},
    "create_subnet:segment_id": _ADMIN,
    "create_subnet:service_types": _ADMIN,
    "update_subnet:service_types": _ADMIN,
    "get_subnet:segment_id": _ADMIN,
    **{
        f"{verb}_port:{attribute}": _SERVICE
        for verb in ("create", "update", "get")
        for attribute in ("binding:host_id", "binding:profile")
    },
    "get_port:binding:vif_type": _SERVICE,
    "get_port:binding:vif_details": _SERVICE,
    "get_port:resource_request": _SERVICE,
    "create_port:binding:vnic_type": _OWN,
    "update_port:binding:vnic_type": _OWN,
    # Only the owner of the network lets a port choose its own MAC or address, or go without protection.
    "create_port:mac_address": "rule:network_owner or role:admin or role:service",
    "update_port:mac_address": "role:admin or role:service",
    "create_port:fixed_ips": "rule:network_owner or rule:network_shared or role:admin or role:service",
    "create_port:port_security_enabled": "rule:network_owner or role:admin",
    "update_port:port_security_enabled": "rule:network_owner or role:admin",
    "create_port:allowed_address_pairs": "rule:network_owner or role:admin",
    "update_port:allowed_address_pairs": "rule:network_owner or role:admin",
    "create_port:device_owner": "not rule:network_device or rule:network_owner or role:admin or role:service",
    "network_owner": "project_id:%(network:project_id)s",
    "network_shared": "True:%(network:shared)s",
    "network_device": "field:port:device_owner=~^network:",
    "get_quota": _ADMIN + " or rule:project_reader",
    "update_quota": _ADMIN,
    "delete_quota": _ADMIN,
    "get_agent": _ADMIN,
    "get_extension": "@",
}  # fmt: skip
# oslo.policy has no check of that form; a port's owner is looked at in code, by the rule below.
DEFAULTS["network_device"] = "True:%(network_device)s"
