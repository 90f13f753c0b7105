"""The tables of compute."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.store.schema import IdColumn, Json, Timestamp, created_at, metadata, updated_at

flavors = sa.Table(
    "flavors",
    metadata,
    IdColumn(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("root_gb", sa.Integer, nullable=False),
    sa.Column("ephemeral_gb", sa.Integer, nullable=False, server_default="0"),
    sa.Column("swap_mb", sa.Integer, nullable=False, server_default="0"),
    sa.Column("rxtx_factor", sa.Float, nullable=False, server_default="1"),
    sa.Column("is_public", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("description", sa.Text),
    sa.Column("extra_specs", Json, nullable=False, server_default="{}"),
    created_at(),
    updated_at(),
    sa.CheckConstraint("vcpus > 0 AND memory_mb > 0 AND root_gb >= 0", name="sizes"),
)

flavor_access = sa.Table(
    "flavor_access",
    metadata,
    sa.Column("flavor_id", sa.ForeignKey(flavors.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
)

keypairs = sa.Table(
    "keypairs",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("public_key", sa.Text, nullable=False),
    created_at(),
    sa.UniqueConstraint("user_id", "name"),
)

server_groups = sa.Table(
    "server_groups",
    metadata,
    IdColumn(),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("rules", Json, nullable=False, server_default="{}"),
    created_at(),
)

# `vcpus`, `memory_mb` and `disk_gb` repeat the flavor's snapshot so that sums need no JSON.
servers = sa.Table(
    "servers",
    metadata,
    IdColumn(),
    sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hostname", sa.Text, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("reservation_id", sa.Text, nullable=False),
    sa.Column("launch_index", sa.Integer, nullable=False, server_default="0"),
    sa.Column("flavor", Json, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("image_id", sa.Text, nullable=False),
    sa.Column("image", Json, nullable=False, server_default="{}"),
    sa.Column("key_name", sa.Text),
    sa.Column("key_type", sa.Text),
    sa.Column("key_data", sa.Text),
    sa.Column("metadata", Json, nullable=False, server_default="{}"),
    sa.Column("tags", postgresql.ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("user_data", sa.Text),
    sa.Column("config_drive", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("access_ip_v4", sa.Text),
    sa.Column("access_ip_v6", sa.Text),
    sa.Column("disk_config", sa.Text, nullable=False, server_default="MANUAL"),
    sa.Column("trusted_image_certificates", Json),
    sa.Column("pinned_zone", sa.Text),
    sa.Column("availability_zone", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("requested_host", sa.Text),
    sa.Column("scheduler_hints", Json, nullable=False, server_default="{}"),
    sa.Column("server_group_id", sa.ForeignKey(server_groups.c.id, ondelete="SET NULL")),
    sa.Column("requested_networks", Json, nullable=False, server_default="[]"),
    sa.Column("security_groups", Json, nullable=False, server_default="[]"),
    sa.Column("vm_state", sa.Text, nullable=False),
    sa.Column("task_state", sa.Text),
    sa.Column("power_state", sa.Integer, nullable=False, server_default="0"),
    sa.Column("progress", sa.Integer, nullable=False, server_default="0"),
    sa.Column("fault", Json),
    sa.Column("locked", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("locked_by", sa.Text),
    sa.Column("locked_reason", sa.Text),
    sa.Column("launched_at", Timestamp),
    sa.Column("terminated_at", Timestamp),
    sa.Column("deleted_at", Timestamp),
    created_at(),
    updated_at(),
)
sa.Index("servers_project_idx", servers.c.project_id, servers.c.created_at.desc(), servers.c.id.desc())
sa.Index("servers_live_host_idx", servers.c.host, postgresql_where=servers.c.deleted_at.is_(None))
sa.Index(
    "servers_server_group_idx", servers.c.server_group_id, postgresql_where=servers.c.deleted_at.is_(None)
)

placements = sa.Table(
    "placements",
    metadata,
    sa.Column("server_id", sa.ForeignKey(servers.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("plan", Json, nullable=False),
    created_at(),
)

instance_actions = sa.Table(
    "instance_actions",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("server_id", sa.ForeignKey(servers.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text),
    sa.Column("project_id", sa.Text),
    sa.Column("message", sa.Text),
    sa.Column("start_time", Timestamp, nullable=False, server_default=sa.func.now()),
    sa.Column("updated_at", Timestamp),
)
sa.Index("instance_actions_server_idx", instance_actions.c.server_id, instance_actions.c.id.desc())

instance_action_events = sa.Table(
    "instance_action_events",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column(
        "action_id", sa.ForeignKey(instance_actions.c.id, ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("host", sa.Text),
    sa.Column("result", sa.Text),
    sa.Column("details", sa.Text),
    sa.Column("start_time", Timestamp, nullable=False, server_default=sa.func.now()),
    sa.Column("finish_time", Timestamp),
)

aggregates = sa.Table(
    "aggregates",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("uuid", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("metadata", Json, nullable=False, server_default="{}"),
    created_at(),
    updated_at(),
)

aggregate_hosts = sa.Table(
    "aggregate_hosts",
    metadata,
    sa.Column("aggregate_id", sa.ForeignKey(aggregates.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("host", sa.Text, primary_key=True, index=True),
)

# Integer names of hosts for clients below microversion 2.53, which know no UUIDs there.
host_numbers = sa.Table(
    "host_numbers",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
)

# Limits that differ from the configured ones; `scope` is "class:default" or "project:<id>".
quota_limits = sa.Table(
    "quota_limits",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("limit", sa.Integer, nullable=False),
)

# Kept by the statements that create and delete servers, so that a claim is one conditional update.
quota_usages = sa.Table(
    "quota_usages",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("instances", sa.Integer, nullable=False),
    sa.Column("cores", sa.Integer, nullable=False),
    sa.Column("ram", sa.BigInteger, nullable=False),
)
