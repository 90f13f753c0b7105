"""From the network service's rows to the rows that the Northbound database should hold. Pure.

    segment          Logical_Switch, with a localnet port where it has a physical network
    subnet           DHCP_Options
    port             Logical_Switch_Port, member of its groups' port groups
    security group   Port_Group with an ACL for each rule
    -                one Port_Group of all protected ports that drops what no rule lets through

Every row carries our mark: the key that finds it again, and the scope: the resource it belongs to, with which it
appears and goes. Names of port groups have underscores for dashes: OVN takes a name with a dash without complaint, and
then its rules have no effect. DHCP is let through by the group that drops, or no guest would ever get a lease.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.network import changes
from moorage.network.mechanisms.ovn.rows import PortRow, SegmentRow, Snapshot, SubnetRow
from moorage.network.model import Port, SecurityGroup
from moorage.network.rules import protocol_number

OWNER_KEY, KEY, SCOPE, PARENT, REVISION = (
    "moorage:owner", "moorage:key", "moorage:scope", "moorage:parent", "moorage:revision",
)  # fmt: skip
GROUPS = "moorage:groups"
OWNER = "moorage"
SWITCH, PORT, GROUP, ACL, DHCP = (
    "Logical_Switch", "Logical_Switch_Port", "Port_Group", "ACL", "DHCP_Options",
)  # fmt: skip
TABLES = (SWITCH, PORT, GROUP, ACL, DHCP)
DROP = "moorage_drop"
STATIC = "static:drop"
_LEASE_SECONDS = "43200"
_DROP, _ALLOW = 1001, 1002
_PORTED = {6: "tcp", 17: "udp", 132: "sctp"}


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """A row that should be there.

    ``columns`` are plain values, ``refs`` columns of references by (table, key); ``parent`` is the row, and its
    column, that holds it; ``groups`` are the keys of the port groups that a port is a member of.
    """

    table: str
    key: str
    scope: str
    columns: dict[str, Any]
    refs: dict[str, tuple[tuple[str, str], ...]] = {}
    parent: tuple[str, str, str] | None = None
    groups: tuple[str, ...] = ()

    def external_ids(self) -> dict[str, str]:
        """The row's external_ids with our mark."""
        marks = {OWNER_KEY: OWNER, KEY: self.key, SCOPE: self.scope}
        if self.parent is not None:
            marks[PARENT] = "|".join(self.parent)
        if self.table == PORT:
            marks[GROUPS] = ",".join(self.groups)
        return {**self.columns.get("external_ids", {}), **marks}


def scope_of(kind: str, ref: str) -> str:
    """The scope of a resource."""
    return f"{kind}:{ref}"


def group_name(group_id: str) -> str:
    """The port group of a security group."""
    return f"moorage_sg_{group_id.replace('-', '_')}"


def translate(snapshot: Snapshot) -> list[Desired]:
    """All rows that these resources should have."""
    found: list[Desired] = []
    for segment in snapshot.segments:
        found += switch(segment)
    for subnet in snapshot.subnets:
        found += dhcp(subnet)
    for group in snapshot.groups:
        found += security_group(group)
    for row in snapshot.ports:
        found += port(row)
    return found


def switch(segment: SegmentRow) -> list[Desired]:
    """The switch of a segment, and the port that leads to its physical network."""
    scope = scope_of(changes.NETWORK, segment.network_id)
    key = f"segment:{segment.id}"
    marks = {"moorage:network": segment.network_id, "moorage:name": segment.network_name}
    found = [
        Desired(
            table=SWITCH,
            key=key,
            scope=scope,
            columns={"name": f"segment-{segment.id}", "external_ids": marks},
        )
    ]
    if segment.physical_network is not None:
        columns: dict[str, Any] = {
            "name": f"physical-{segment.id}",
            "type": "localnet",
            "addresses": ["unknown"],
            "options": {"network_name": segment.physical_network},
            "tag_request": [] if segment.segmentation_id is None else [segment.segmentation_id],
        }
        parent = (SWITCH, key, "ports")
        found.append(
            Desired(table=PORT, key=f"localnet:{segment.id}", scope=scope, columns=columns, parent=parent)
        )
    return found


def server_mac(subnet_id: str) -> str:
    """A locally administered MAC address for the DHCP server of a subnet, always the same one."""
    digest = hashlib.sha256(subnet_id.encode()).digest()
    return ":".join(f"{octet:02x}" for octet in (0x0A, *digest[:5]))


def dhcp(subnet: SubnetRow) -> list[Desired]:
    """The DHCP options of a subnet; none where DHCP is off or guests make their own addresses."""
    if not subnet.enable_dhcp or subnet.ipv6_address_mode == "slaac":
        return []
    options = _dhcp4(subnet) if subnet.ip_version == 4 else _dhcp6(subnet)
    return [
        Desired(
            table=DHCP,
            key=f"subnet:{subnet.id}",
            scope=scope_of(changes.SUBNET, subnet.id),
            columns={"cidr": subnet.cidr, "options": options},
        )
    ]


def _dhcp4(subnet: SubnetRow) -> dict[str, str]:
    options = {
        # A subnet without gateway still needs a server id; nobody has this address.
        "server_id": subnet.gateway_ip or "169.254.169.253",
        "server_mac": server_mac(subnet.id),
        "lease_time": _LEASE_SECONDS,
        "mtu": str(subnet.mtu),
    }
    if subnet.gateway_ip:
        options["router"] = subnet.gateway_ip
    options |= _dns(subnet)
    if subnet.host_routes:
        # A client that takes this option ignores "router", so the default route must be repeated in it.
        routes = [f"{r['destination']},{r['nexthop']}" for r in subnet.host_routes]
        routes += [f"0.0.0.0/0,{subnet.gateway_ip}"] if subnet.gateway_ip else []
        options["classless_static_route"] = "{" + ", ".join(routes) + "}"
    if subnet.dns_domain:
        options["domain_name"] = f'"{subnet.dns_domain.rstrip(".")}"'
    return options


def _dhcp6(subnet: SubnetRow) -> dict[str, str]:
    options = {"server_id": server_mac(subnet.id), **_dns(subnet)}
    if subnet.ipv6_address_mode == "dhcpv6-stateless":
        options["dhcpv6_stateless"] = "true"
    if subnet.dns_domain:
        options["domain_search"] = f'"{subnet.dns_domain.rstrip(".")}"'
    return options


def _dns(subnet: SubnetRow) -> dict[str, str]:
    servers = subnet.dns_nameservers
    if not servers:
        return {}
    return {"dns_server": servers[0] if len(servers) == 1 else "{" + ", ".join(servers) + "}"}


def segment_of(row: PortRow) -> str | None:
    """The segment that a port is on; None while that isn't known (no address yet, several segments)."""
    placed = [s["segment_id"] for s in row.subnets if s["segment_id"] is not None]
    if placed:
        return str(placed[0])
    return str(row.segments[0]["id"]) if len(row.segments) == 1 else None


def port(row: PortRow) -> list[Desired]:
    """The switch port of a port."""
    segment_id = segment_of(row)
    if segment_id is None:
        return []
    facts = row.port
    own = " ".join([facts.mac_address, *(ip["ip_address"] for ip in facts.fixed_ips)])
    secured = facts.port_security_enabled
    columns: dict[str, Any] = {
        "name": facts.id,
        "type": "",
        "addresses": [own] if secured else [own, "unknown"],
        "port_security": [own, *_pairs(facts)] if secured else [],
        # Switches have no such column: a network that is down is one whose ports are.
        "enabled": [facts.admin_state_up and row.network_up],
        # Without it, two hosts that both have the interface would take the port from each other for ever.
        "options": {"requested-chassis": facts.chassis} if facts.mechanism == "ovn" and facts.chassis else {},
        "external_ids": {
            REVISION: str(facts.revision_number),
            "moorage:device": facts.device_id,
            "moorage:project": facts.project_id,
        },
    }
    return [
        Desired(
            table=PORT,
            key=f"port:{facts.id}",
            scope=scope_of(changes.PORT, facts.id),
            columns=columns,
            refs={"dhcpv4_options": _dhcp_of(row, 4), "dhcpv6_options": _dhcp_of(row, 6)},
            parent=(SWITCH, f"segment:{segment_id}", "ports"),
            groups=(STATIC, *(f"group:{g}" for g in facts.security_groups)) if secured else (),
        )
    ]


def _pairs(facts: Port) -> list[str]:
    return [
        f"{p.get('mac_address', facts.mac_address)} {p['ip_address']}" for p in facts.allowed_address_pairs
    ]


def _dhcp_of(row: PortRow, version: int) -> tuple[tuple[str, str], ...]:
    ids = [s["id"] for s in row.subnets if s["ip_version"] == version and s["dhcp"]]
    return ((DHCP, f"subnet:{min(ids)}"),) if ids else ()


def security_group(group: SecurityGroup) -> list[Desired]:
    """The port group of a security group, with an ACL for each rule."""
    scope, key, name = scope_of(changes.SECURITY_GROUP, group.id), f"group:{group.id}", group_name(group.id)
    found = [Desired(table=GROUP, key=key, scope=scope, columns={"name": name})]
    action = "allow-related" if group.stateful else "allow-stateless"
    for rule in group.rules:
        ingress = rule["direction"] == "ingress"
        acl = _acl(ingress=ingress, priority=_ALLOW, match=match_of(rule, name), action=action)
        found.append(
            Desired(
                table=ACL, key=f"rule:{rule['id']}", scope=scope, columns=acl, parent=(GROUP, key, "acls")
            )
        )
    return found


def _acl(*, ingress: bool, priority: int, match: str, action: str) -> dict[str, Any]:
    direction = "to-lport" if ingress else "from-lport"
    return {"direction": direction, "priority": priority, "match": match, "action": action}


def match_of(rule: Mapping[str, Any], name: str) -> str:
    """The match of a rule in OVN's language. Its parts are checked values: OVN would only log a bad one."""
    ingress, family = rule["direction"] == "ingress", "ip4" if rule["ethertype"] == "IPv4" else "ip6"
    side = "src" if ingress else "dst"
    parts = [f"{'outport' if ingress else 'inport'} == @{name}", family]
    if rule["remote_ip_prefix"] and not rule["remote_ip_prefix"].endswith("/0"):
        parts.append(f"{family}.{side} == {rule['remote_ip_prefix']}")
    if rule["remote_group_id"]:
        parts.append(f"{family}.{side} == ${group_name(rule['remote_group_id'])}_{family}")
    return " && ".join([*parts, *_protocol(rule, family)])


def _protocol(rule: Mapping[str, Any], family: str) -> Iterable[str]:
    number, low, high = protocol_number(rule["protocol"]), rule["port_range_min"], rule["port_range_max"]
    if number is None:
        return []
    if number in (1, 58):
        name = "icmp4" if family == "ip4" else "icmp6"
        values = [f"{name}.{part} == {v}" for part, v in (("type", low), ("code", high)) if v is not None]
        return [name, *values]
    if number not in _PORTED:
        # DCCP and UDP-Lite have ports that OVN cannot match: the rule then lets the whole protocol through.
        return [f"ip.proto == {number}"]
    name = _PORTED[number]
    if low is None or (low, high) == (1, 65535):
        return [name]
    if low == high:
        return [name, f"{name}.dst == {low}"]
    return [name, f"{name}.dst >= {low}", f"{name}.dst <= {high}"]


def static_rows() -> list[Desired]:
    """The group of all protected ports: nothing passes that no rule lets through, but DHCP."""
    acls = {
        "out": _acl(ingress=False, priority=_DROP, match=f"inport == @{DROP} && ip", action="drop"),
        "in": _acl(ingress=True, priority=_DROP, match=f"outport == @{DROP} && ip", action="drop"),
        "dhcp4": _acl(
            ingress=False,
            priority=_ALLOW,
            match=f"inport == @{DROP} && ip4 && udp.src == 68 && udp.dst == 67",
            action="allow",
        ),
        "dhcp6": _acl(
            ingress=False,
            priority=_ALLOW,
            match=f"inport == @{DROP} && ip6 && udp.src == 546 && udp.dst == 547",
            action="allow",
        ),
    }
    parent = (GROUP, STATIC, "acls")
    return [
        Desired(table=GROUP, key=STATIC, scope=STATIC, columns={"name": DROP}),
        *(
            Desired(table=ACL, key=f"{STATIC}:{name}", scope=STATIC, columns=acl, parent=parent)
            for name, acl in acls.items()
        ),
    ]
