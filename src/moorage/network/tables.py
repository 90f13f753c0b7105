"""Tables of the network service.

What must never be wrong is a constraint here, not a check in the code: an address belongs to one port of a subnet, a
VLAN tag to one network of a physical network, a host binds a port once, and a port has at most one active binding.
Everything that hangs on a port goes with it (``ON DELETE CASCADE``), so that deleting a port is one statement.
"""

import sqlalchemy as sa

from moorage.store.schema import IdColumn, Json, created_at, metadata, updated_at


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=sa.text(f"'{default}'"))


def _flag(name: str, default: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.text(default))


def _json_list(name: str) -> sa.Column[object]:
    return sa.Column(name, Json, nullable=False, server_default=sa.text("'[]'::jsonb"))


def _json_map(name: str) -> sa.Column[object]:
    return sa.Column(name, Json, nullable=False, server_default=sa.text("'{}'::jsonb"))


def _revision() -> sa.Column[int]:
    return sa.Column("revision_number", sa.Integer, nullable=False, server_default=sa.text("1"))


def _parent(name: str, target: str, *, nullable: bool = False, cascade: bool = True) -> sa.Column[str]:
    # NO ACTION is checked at the end of the statement, so what a cascade removes as well is no obstacle.
    ondelete = "CASCADE" if cascade else None
    return sa.Column(name, sa.Text, sa.ForeignKey(target, ondelete=ondelete), nullable=nullable)


networks = sa.Table(
    "networks",
    metadata,
    IdColumn(),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    _text("name"),
    _text("description"),
    _flag("admin_state_up", "true"),
    _flag("shared", "false"),
    _flag("external", "false"),
    _flag("is_default", "false"),
    _flag("port_security_enabled", "true"),
    sa.Column("mtu", sa.Integer, nullable=False),
    _text("dns_domain"),
    _json_list("tags"),
    _revision(),
    created_at(),
    updated_at(),
)

segments = sa.Table(
    "segments",
    metadata,
    IdColumn(),
    _parent("network_id", "networks.id"),
    sa.Column("segment_index", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("network_type", sa.Text, nullable=False),
    sa.Column("physical_network", sa.Text),
    sa.Column("segmentation_id", sa.Integer),
    sa.Column("name", sa.Text),
    sa.UniqueConstraint("network_id", "segment_index"),
    # NULLS NOT DISTINCT: one flat network per physical network, one tunnel id per tunnel type.
    sa.UniqueConstraint(
        "network_type", "physical_network", "segmentation_id", postgresql_nulls_not_distinct=True
    ),
)

subnets = sa.Table(
    "subnets",
    metadata,
    IdColumn(),
    # A subnet goes with its network; the service refuses to delete a network that has ports.
    _parent("network_id", "networks.id"),
    _parent("segment_id", "segments.id", nullable=True, cascade=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    _text("name"),
    _text("description"),
    sa.Column("ip_version", sa.SmallInteger, nullable=False),
    sa.Column("cidr", sa.Text, nullable=False),
    sa.Column("gateway_ip", sa.Text),
    _flag("enable_dhcp", "true"),
    _json_list("dns_nameservers"),
    _json_list("host_routes"),
    sa.Column("ipv6_ra_mode", sa.Text),
    sa.Column("ipv6_address_mode", sa.Text),
    _json_list("service_types"),
    _json_list("tags"),
    _revision(),
    created_at(),
    updated_at(),
    sa.Index("ix_subnets_network_id", "network_id"),
)

allocation_pools = sa.Table(
    "allocation_pools",
    metadata,
    _parent("subnet_id", "subnets.id"),
    sa.Column("start", sa.Text, nullable=False),
    sa.Column("end", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("subnet_id", "start"),
)

ports = sa.Table(
    "ports",
    metadata,
    IdColumn(),
    # No cascade: a port of somebody's must never vanish with its network.
    _parent("network_id", "networks.id", cascade=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    _text("name"),
    _text("description"),
    _flag("admin_state_up", "true"),
    _text("status", "DOWN"),
    sa.Column("mac_address", sa.Text, nullable=False),
    _text("device_id"),
    _text("device_owner"),
    # Order of the NIC in its server, and the tag its owner gave it.
    sa.Column("device_index", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("device_tag", sa.Text),
    # True: made for the server in device_id, deleted with it. False: somebody's own port, given back.
    _flag("created_for_device", "false"),
    _flag("port_security_enabled", "true"),
    _json_list("allowed_address_pairs"),
    _json_list("extra_dhcp_opts"),
    _text("dns_name"),
    _text("ip_allocation", "immediate"),
    _text("vnic_type", "normal"),
    _json_map("profile"),
    _json_list("tags"),
    _revision(),
    created_at(),
    updated_at(),
    sa.UniqueConstraint("network_id", "mac_address"),
    sa.Index("ix_ports_device_id", "device_id", postgresql_where=sa.text("device_id <> ''")),
)

port_fixed_ips = sa.Table(
    "port_fixed_ips",
    metadata,
    _parent("port_id", "ports.id"),
    # No cascade: a subnet with addresses in use cannot go.
    _parent("subnet_id", "subnets.id", cascade=False),
    sa.Column("address", sa.Text, nullable=False),
    # The promise of the whole service: an address of a subnet belongs to one port.
    sa.PrimaryKeyConstraint("subnet_id", "address"),
    sa.Index("ix_port_fixed_ips_port_id", "port_id"),
)

bindings = sa.Table(
    "bindings",
    metadata,
    _parent("port_id", "ports.id"),
    sa.Column("host", sa.Text, nullable=False),
    _text("status", "ACTIVE"),
    # Which mechanism wires the port there, and the name its data plane knows the host by.
    sa.Column("mechanism", sa.Text, nullable=False),
    sa.Column("chassis", sa.Text),
    sa.Column("vif_type", sa.Text, nullable=False),
    _json_map("vif_details"),
    _json_map("profile"),
    _text("vnic_type", "normal"),
    sa.PrimaryKeyConstraint("port_id", "host"),
    sa.Index("uq_bindings_active", "port_id", unique=True, postgresql_where=sa.text("status = 'ACTIVE'")),
    sa.Index("ix_bindings_host", "host"),
)

security_groups = sa.Table(
    "security_groups",
    metadata,
    IdColumn(),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    _text("name"),
    _text("description"),
    _flag("is_default", "false"),
    _flag("stateful", "true"),
    _flag("shared", "false"),
    _json_list("tags"),
    _revision(),
    created_at(),
    updated_at(),
    sa.Index("uq_security_groups_default", "project_id", unique=True, postgresql_where=sa.text("is_default")),
)

security_group_rules = sa.Table(
    "security_group_rules",
    metadata,
    IdColumn(),
    _parent("security_group_id", "security_groups.id"),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("direction", sa.Text, nullable=False),
    sa.Column("ethertype", sa.Text, nullable=False),
    sa.Column("protocol", sa.Text),
    sa.Column("port_range_min", sa.Integer),
    sa.Column("port_range_max", sa.Integer),
    sa.Column("remote_ip_prefix", sa.Text),
    _parent("remote_group_id", "security_groups.id", nullable=True),
    _text("description"),
    _revision(),
    created_at(),
    updated_at(),
    sa.UniqueConstraint(
        "security_group_id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max",
        "remote_ip_prefix", "remote_group_id",
        name="uq_security_group_rules_same",
        postgresql_nulls_not_distinct=True,
    ),
)  # fmt: skip

port_security_groups = sa.Table(
    "port_security_groups",
    metadata,
    _parent("port_id", "ports.id"),
    # No cascade: a group that a port uses cannot go.
    _parent("security_group_id", "security_groups.id", cascade=False),
    sa.PrimaryKeyConstraint("port_id", "security_group_id"),
    sa.Index("ix_port_security_groups_group", "security_group_id"),
)

network_quotas = sa.Table(
    "network_quotas",
    metadata,
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("resource", sa.Text, nullable=False),
    sa.Column("limit", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("project_id", "resource"),
)

# What the data plane has yet to be told; see changes.py.
network_changes = sa.Table(
    "network_changes",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("ref", sa.Text, nullable=False),
)
