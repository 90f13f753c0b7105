"""Security group rules as values, and what makes one valid. Pure."""

import msgspec

from moorage.network import cidr, errors

# Names that the API takes for IP protocol numbers (IANA).
PROTOCOLS = {
    "ah": 51, "dccp": 33, "egp": 8, "esp": 50, "gre": 47, "icmp": 1, "icmpv6": 58, "igmp": 2, "ipip": 4,
    "ipv6-encap": 41, "ipv6-frag": 44, "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "ipv6-route": 43,
    "ospf": 89, "pgm": 113, "rsvp": 46, "sctp": 132, "tcp": 6, "udp": 17, "udplite": 136, "vrrp": 112,
}  # fmt: skip
_PORTED = (6, 17, 33, 132, 136)
_ICMP = (1, 58)


class RuleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule matches; None matches everything. For ICMP the two ports are type and code."""

    direction: str
    ethertype: str = "IPv4"
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None
    description: str = ""


def protocol_number(protocol: str | None) -> int | None:
    """The number of a protocol given by name or number; None matches all. Raises InvalidInput."""
    if protocol is None or protocol == "any":
        return None
    if protocol in PROTOCOLS:
        return PROTOCOLS[protocol]
    if protocol.isascii() and protocol.isdigit() and 0 <= int(protocol) <= 255:
        return int(protocol)
    raise errors.InvalidInput(f"Security group rule protocol {protocol} not supported.", field="protocol")


def checked(spec: RuleSpec) -> RuleSpec:
    """The rule with canonical values. Raises InvalidInput or one of its kinds, naming the field."""
    if spec.direction not in ("ingress", "egress"):
        raise errors.InvalidInput(f"'{spec.direction}' is not ingress or egress", field="direction")
    if spec.ethertype not in ("IPv4", "IPv6"):
        raise errors.InvalidInput(f"'{spec.ethertype}' is not IPv4 or IPv6", field="ethertype")
    protocol = spec.protocol.lower() if spec.protocol is not None else None
    number = protocol_number(protocol)
    if number is None:
        protocol = None
    elif number == 58 and spec.ethertype == "IPv4":
        raise errors.SecurityGroupRuleParameterConflict(
            f"Conflicting value ethertype {spec.ethertype} for protocol {protocol}", field="ethertype"
        )
    if number == 1 and spec.ethertype == "IPv6":
        number, protocol = 58, "ipv6-icmp"  # ICMP on IPv6 is what the caller means
    _check_ports(number, spec.port_range_min, spec.port_range_max)
    return msgspec.structs.replace(spec, protocol=protocol, remote_ip_prefix=_remote(spec))


def _check_ports(number: int | None, low: int | None, high: int | None) -> None:
    if low is None and high is None:
        return
    if number in _ICMP:
        _check_icmp(low, high)
    elif number not in _PORTED:
        raise errors.SecurityGroupInvalidProtocolForPortRange(
            "Ports are given for a protocol that has none; use tcp, udp, sctp, dccp or udplite.",
            field="protocol",
        )
    elif low is None or high is None or not 1 <= low <= high <= 65535:
        raise errors.SecurityGroupInvalidPortRange(
            "port_range_min and port_range_max must both be given, within 1 and 65535, in order.",
            field="port_range_min",
        )


def _check_icmp(kind: int | None, code: int | None) -> None:
    for name, value in (("port_range_min", kind), ("port_range_max", code)):
        if value is not None and not 0 <= value <= 255:
            raise errors.SecurityGroupInvalidIcmpValue(
                f"ICMP value {value} is not within 0 and 255.", field=name
            )
    if kind is None:
        raise errors.SecurityGroupInvalidIcmpValue("An ICMP code needs a type.", field="port_range_min")


def _remote(spec: RuleSpec) -> str | None:
    if spec.remote_ip_prefix is None:
        return None
    if spec.remote_group_id is not None:
        raise errors.SecurityGroupRemoteGroupAndRemoteIpPrefix(
            "Only remote_ip_prefix or remote_group_id may be provided.", field="remote_ip_prefix"
        )
    net = cidr.parse_cidr(spec.remote_ip_prefix, field="remote_ip_prefix", strict=False)
    if net.version != int(spec.ethertype[-1]):
        raise errors.SecurityGroupRuleParameterConflict(
            f"Conflicting value ethertype {spec.ethertype} for CIDR {net}", field="remote_ip_prefix"
        )
    return str(net)
