"""The first schema."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Forward."""
    op.execute(sa.schema.CreateSequence(sa.Sequence("placement_inventory_version")))
    op.create_table(
        "aggregates",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("aggregates_pkey")),
        sa.UniqueConstraint("name", name=op.f("aggregates_name_key")),
        sa.UniqueConstraint("uuid", name=op.f("aggregates_uuid_key")),
    )
    op.create_table(
        "call_results",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("result", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("call_results_pkey")),
    )
    op.create_table(
        "consumers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("consumer_type", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("consumers_pkey")),
    )
    op.create_index(
        op.f("consumers_project_id_user_id_idx"), "consumers", ["project_id", "user_id"], unique=False
    )
    op.create_table(
        "enrollment_tokens",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("uses_left >= 0", name=op.f("enrollment_tokens_uses_left_check")),
        sa.PrimaryKeyConstraint("hash", name=op.f("enrollment_tokens_pkey")),
    )
    op.create_table(
        "flavors",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), server_default="0", nullable=False),
        sa.Column("swap_mb", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rxtx_factor", sa.Float(), server_default="1", nullable=False),
        sa.Column("is_public", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column(
            "extra_specs", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("vcpus > 0 AND memory_mb > 0 AND root_gb >= 0", name=op.f("flavors_sizes_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("flavors_pkey")),
        sa.UniqueConstraint("name", name=op.f("flavors_name_key")),
    )
    op.create_table(
        "host_numbers",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("host_numbers_pkey")),
        sa.UniqueConstraint("number", name=op.f("host_numbers_number_key")),
    )
    op.create_table(
        "hosts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("protocol", sa.Integer(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("hypervisor_type", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column(
            "guests", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("hosts_pkey")),
        sa.UniqueConstraint("name", name=op.f("hosts_name_key")),
    )
    op.create_table(
        "keypairs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("keypairs_pkey")),
        sa.UniqueConstraint("user_id", "name", name=op.f("keypairs_user_id_name_key")),
    )
    op.create_table(
        "network_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("network_changes_pkey")),
    )
    op.create_table(
        "network_quotas",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name=op.f("network_quotas_pkey")),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("shared", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("external", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("is_default", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("mtu", sa.Integer(), nullable=False),
        sa.Column("dns_domain", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "tags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision_number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("networks_pkey")),
    )
    op.create_index(op.f("networks_project_id_idx"), "networks", ["project_id"], unique=False)
    op.create_table(
        "operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), server_default="forward", nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("params", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("sent", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("round", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("undo_to", sa.Text(), nullable=True),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("refusals", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("inbox", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("error", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("cancel", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("wakes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wake_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("direction IN ('forward', 'undo')", name=op.f("operations_direction_check")),
        sa.CheckConstraint(
            "state IN ('ready', 'running', 'waiting', 'done', 'failed', 'cancelled', 'stuck')",
            name=op.f("operations_state_check"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("operations_pkey")),
    )
    op.create_index(
        "operations_open_idx",
        "operations",
        ["priority", "seq"],
        unique=False,
        postgresql_where=sa.text("state IN ('ready', 'running', 'waiting', 'stuck')"),
    )
    op.create_index(
        "operations_open_subject_idx",
        "operations",
        ["subject", "seq"],
        unique=False,
        postgresql_where=sa.text("state IN ('ready', 'running', 'waiting', 'stuck')"),
    )
    op.create_table(
        "placement_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("provider_id", sa.Text(), nullable=True),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("placement_changes_pkey")),
    )
    op.create_index(op.f("placement_changes_at_idx"), "placement_changes", ["at"], unique=False)
    op.create_table(
        "quota_limits",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "resource", name=op.f("quota_limits_pkey")),
    )
    op.create_table(
        "quota_usages",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("instances", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("ram", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name=op.f("quota_usages_pkey")),
    )
    op.create_table(
        "resource_classes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("resource_classes_pkey")),
    )
    op.create_table(
        "resource_providers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["resource_providers.id"], name=op.f("resource_providers_parent_id_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["root_id"], ["resource_providers.id"], name=op.f("resource_providers_root_id_fkey")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("resource_providers_pkey")),
        sa.UniqueConstraint("name", name=op.f("resource_providers_name_key")),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index(
        op.f("resource_providers_parent_id_idx"), "resource_providers", ["parent_id"], unique=False
    )
    op.create_index(op.f("resource_providers_root_id_idx"), "resource_providers", ["root_id"], unique=False)
    op.create_table(
        "security_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("is_default", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("stateful", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("shared", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "tags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision_number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("security_groups_pkey")),
    )
    op.create_index(op.f("security_groups_project_id_idx"), "security_groups", ["project_id"], unique=False)
    op.create_index(
        "uq_security_groups_default",
        "security_groups",
        ["project_id"],
        unique=True,
        postgresql_where=sa.text("is_default"),
    )
    op.create_table(
        "server_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("rules", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("server_groups_pkey")),
    )
    op.create_index(op.f("server_groups_project_id_idx"), "server_groups", ["project_id"], unique=False)
    op.create_table(
        "traits",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("traits_pkey")),
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["aggregate_id"],
            ["aggregates.id"],
            name=op.f("aggregate_hosts_aggregate_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("aggregate_id", "host", name=op.f("aggregate_hosts_pkey")),
    )
    op.create_index(op.f("aggregate_hosts_host_idx"), "aggregate_hosts", ["host"], unique=False)
    op.create_table(
        "commands",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("error", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("commands_host_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("commands_pkey")),
        sa.UniqueConstraint(
            "operation",
            "step",
            "kind",
            "fence",
            "host",
            name=op.f("commands_operation_step_kind_fence_host_key"),
        ),
    )
    op.create_index(
        "commands_finished_at_idx", "commands", ["finished_at"], unique=False, postgresql_using="brin"
    )
    op.create_index(
        "commands_unfinished_idx",
        "commands",
        ["host"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_table(
        "flavor_access",
        sa.Column("flavor_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["flavor_id"], ["flavors.id"], name=op.f("flavor_access_flavor_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("flavor_id", "project_id", name=op.f("flavor_access_pkey")),
    )
    op.create_table(
        "host_credentials",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["host"], ["hosts.name"], name=op.f("host_credentials_host_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("hash", name=op.f("host_credentials_pkey")),
    )
    op.create_index(op.f("host_credentials_host_idx"), "host_credentials", ["host"], unique=False)
    op.create_table(
        "inventories",
        sa.Column("provider_id", sa.Text(), nullable=False),
        sa.Column("resource_class", sa.Text(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("min_unit", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("max_unit", sa.BigInteger(), server_default="2147483647", nullable=False),
        sa.Column("step_size", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("allocation_ratio", sa.Double(), server_default="1.0", nullable=False),
        sa.Column("used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "version",
            sa.BigInteger(),
            server_default=sa.text("nextval('placement_inventory_version')"),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "min_unit >= 1 AND max_unit >= 1 AND step_size >= 1", name=op.f("inventories_units_check")
        ),
        sa.CheckConstraint("total >= 0 AND reserved >= 0", name=op.f("inventories_amounts_check")),
        sa.CheckConstraint("used >= 0", name=op.f("inventories_used_check")),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["resource_providers.id"],
            name=op.f("inventories_provider_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("provider_id", "resource_class", name=op.f("inventories_pkey")),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index(op.f("inventories_resource_class_idx"), "inventories", ["resource_class"], unique=False)
    op.create_table(
        "operation_steps",
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint(
            "event IN ('started', 'succeeded', 'failed', 'undo_started', 'undone', 'undo_failed')",
            name=op.f("operation_steps_event_check"),
        ),
        sa.ForeignKeyConstraint(
            ["operation"], ["operations.id"], name=op.f("operation_steps_operation_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("operation", "round", "step", "event", name=op.f("operation_steps_pkey")),
    )
    op.create_table(
        "ports",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'DOWN'"), nullable=False),
        sa.Column("mac_address", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("device_owner", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("device_index", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("device_tag", sa.Text(), nullable=True),
        sa.Column("created_for_device", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "allowed_address_pairs",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "extra_dhcp_opts",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("dns_name", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("ip_allocation", sa.Text(), server_default=sa.text("'immediate'"), nullable=False),
        sa.Column("vnic_type", sa.Text(), server_default=sa.text("'normal'"), nullable=False),
        sa.Column(
            "profile",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "tags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision_number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name=op.f("ports_network_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("ports_pkey")),
        sa.UniqueConstraint("network_id", "mac_address", name=op.f("ports_network_id_mac_address_key")),
    )
    op.create_index(
        "ix_ports_device_id",
        "ports",
        ["device_id"],
        unique=False,
        postgresql_where=sa.text("device_id <> ''"),
    )
    op.create_index(op.f("ports_project_id_idx"), "ports", ["project_id"], unique=False)
    op.create_table(
        "provider_aggregates",
        sa.Column("provider_id", sa.Text(), nullable=False),
        sa.Column("aggregate_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["resource_providers.id"],
            name=op.f("provider_aggregates_provider_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("provider_id", "aggregate_id", name=op.f("provider_aggregates_pkey")),
    )
    op.create_index(
        op.f("provider_aggregates_aggregate_id_idx"), "provider_aggregates", ["aggregate_id"], unique=False
    )
    op.create_table(
        "provider_traits",
        sa.Column("provider_id", sa.Text(), nullable=False),
        sa.Column("trait", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["resource_providers.id"],
            name=op.f("provider_traits_provider_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("provider_id", "trait", name=op.f("provider_traits_pkey")),
    )
    op.create_index(op.f("provider_traits_trait_idx"), "provider_traits", ["trait"], unique=False)
    op.create_table(
        "security_group_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("security_group_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("ethertype", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=True),
        sa.Column("port_range_min", sa.Integer(), nullable=True),
        sa.Column("port_range_max", sa.Integer(), nullable=True),
        sa.Column("remote_ip_prefix", sa.Text(), nullable=True),
        sa.Column("remote_group_id", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("revision_number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["remote_group_id"],
            ["security_groups.id"],
            name=op.f("security_group_rules_remote_group_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["security_group_id"],
            ["security_groups.id"],
            name=op.f("security_group_rules_security_group_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("security_group_rules_pkey")),
        sa.UniqueConstraint(
            "security_group_id",
            "direction",
            "ethertype",
            "protocol",
            "port_range_min",
            "port_range_max",
            "remote_ip_prefix",
            "remote_group_id",
            name="uq_security_group_rules_same",
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "segments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("segment_index", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("network_type", sa.Text(), nullable=False),
        sa.Column("physical_network", sa.Text(), nullable=True),
        sa.Column("segmentation_id", sa.Integer(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("segments_network_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("segments_pkey")),
        sa.UniqueConstraint(
            "network_id", "segment_index", name=op.f("segments_network_id_segment_index_key")
        ),
        sa.UniqueConstraint(
            "network_type",
            "physical_network",
            "segmentation_id",
            name=op.f("segments_network_type_physical_network_segmentation_id_key"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "servers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("launch_index", sa.Integer(), server_default="0", nullable=False),
        sa.Column("flavor", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("image_id", sa.Text(), nullable=False),
        sa.Column("image", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("key_name", sa.Text(), nullable=True),
        sa.Column("key_type", sa.Text(), nullable=True),
        sa.Column("key_data", sa.Text(), nullable=True),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("user_data", sa.Text(), nullable=True),
        sa.Column("config_drive", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("access_ip_v4", sa.Text(), nullable=True),
        sa.Column("access_ip_v6", sa.Text(), nullable=True),
        sa.Column("disk_config", sa.Text(), server_default="MANUAL", nullable=False),
        sa.Column("trusted_image_certificates", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("pinned_zone", sa.Text(), nullable=True),
        sa.Column("availability_zone", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("requested_host", sa.Text(), nullable=True),
        sa.Column(
            "scheduler_hints", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False
        ),
        sa.Column("server_group_id", sa.Text(), nullable=True),
        sa.Column(
            "requested_networks", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False
        ),
        sa.Column(
            "security_groups", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False
        ),
        sa.Column("vm_state", sa.Text(), nullable=False),
        sa.Column("task_state", sa.Text(), nullable=True),
        sa.Column("power_state", sa.Integer(), server_default="0", nullable=False),
        sa.Column("progress", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fault", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("locked", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("locked_by", sa.Text(), nullable=True),
        sa.Column("locked_reason", sa.Text(), nullable=True),
        sa.Column("launched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("terminated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["server_group_id"],
            ["server_groups.id"],
            name=op.f("servers_server_group_id_fkey"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("servers_pkey")),
        sa.UniqueConstraint("number", name=op.f("servers_number_key")),
    )
    op.create_index(
        "servers_live_host_idx",
        "servers",
        ["host"],
        unique=False,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "servers_project_idx",
        "servers",
        ["project_id", sa.literal_column("created_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "servers_server_group_idx",
        "servers",
        ["server_group_id"],
        unique=False,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_table(
        "allocations",
        sa.Column("consumer_id", sa.Text(), nullable=False),
        sa.Column("provider_id", sa.Text(), nullable=False),
        sa.Column("resource_class", sa.Text(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("used >= 1", name=op.f("allocations_used_check")),
        sa.ForeignKeyConstraint(["consumer_id"], ["consumers.id"], name=op.f("allocations_consumer_id_fkey")),
        sa.ForeignKeyConstraint(
            ["provider_id", "resource_class"],
            ["inventories.provider_id", "inventories.resource_class"],
            name=op.f("allocations_provider_id_resource_class_fkey"),
            onupdate="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "consumer_id", "provider_id", "resource_class", name=op.f("allocations_pkey")
        ),
    )
    op.create_index(
        op.f("allocations_provider_id_resource_class_idx"),
        "allocations",
        ["provider_id", "resource_class"],
        unique=False,
    )
    op.create_table(
        "bindings",
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'ACTIVE'"), nullable=False),
        sa.Column("mechanism", sa.Text(), nullable=False),
        sa.Column("chassis", sa.Text(), nullable=True),
        sa.Column("vif_type", sa.Text(), nullable=False),
        sa.Column(
            "vif_details",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "profile",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("vnic_type", sa.Text(), server_default=sa.text("'normal'"), nullable=False),
        sa.ForeignKeyConstraint(
            ["port_id"], ["ports.id"], name=op.f("bindings_port_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("port_id", "host", name=op.f("bindings_pkey")),
    )
    op.create_index("ix_bindings_host", "bindings", ["host"], unique=False)
    op.create_index(
        "uq_bindings_active",
        "bindings",
        ["port_id"],
        unique=True,
        postgresql_where=sa.text("status = 'ACTIVE'"),
    )
    op.create_table(
        "instance_actions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("start_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("instance_actions_server_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("instance_actions_pkey")),
    )
    op.create_index(
        "instance_actions_server_idx",
        "instance_actions",
        ["server_id", sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_table(
        "placements",
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("plan", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("placements_server_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("server_id", "attempt", name=op.f("placements_pkey")),
    )
    op.create_table(
        "port_security_groups",
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("security_group_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["port_id"], ["ports.id"], name=op.f("port_security_groups_port_id_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["security_group_id"],
            ["security_groups.id"],
            name=op.f("port_security_groups_security_group_id_fkey"),
        ),
        sa.PrimaryKeyConstraint("port_id", "security_group_id", name=op.f("port_security_groups_pkey")),
    )
    op.create_index(
        "ix_port_security_groups_group", "port_security_groups", ["security_group_id"], unique=False
    )
    op.create_table(
        "subnets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("network_id", sa.Text(), nullable=False),
        sa.Column("segment_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("ip_version", sa.SmallInteger(), nullable=False),
        sa.Column("cidr", sa.Text(), nullable=False),
        sa.Column("gateway_ip", sa.Text(), nullable=True),
        sa.Column("enable_dhcp", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "dns_nameservers",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "host_routes",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("ipv6_ra_mode", sa.Text(), nullable=True),
        sa.Column("ipv6_address_mode", sa.Text(), nullable=True),
        sa.Column(
            "service_types",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "tags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision_number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("subnets_network_id_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["segment_id"], ["segments.id"], name=op.f("subnets_segment_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("subnets_pkey")),
    )
    op.create_index("ix_subnets_network_id", "subnets", ["network_id"], unique=False)
    op.create_index(op.f("subnets_project_id_idx"), "subnets", ["project_id"], unique=False)
    op.create_table(
        "allocation_pools",
        sa.Column("subnet_id", sa.Text(), nullable=False),
        sa.Column("start", sa.Text(), nullable=False),
        sa.Column("end", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["subnet_id"], ["subnets.id"], name=op.f("allocation_pools_subnet_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("subnet_id", "start", name=op.f("allocation_pools_pkey")),
    )
    op.create_table(
        "instance_action_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("action_id", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.Column("start_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finish_time", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["action_id"],
            ["instance_actions.id"],
            name=op.f("instance_action_events_action_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("instance_action_events_pkey")),
    )
    op.create_index(
        op.f("instance_action_events_action_id_idx"), "instance_action_events", ["action_id"], unique=False
    )
    op.create_table(
        "port_fixed_ips",
        sa.Column("port_id", sa.Text(), nullable=False),
        sa.Column("subnet_id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["port_id"], ["ports.id"], name=op.f("port_fixed_ips_port_id_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["subnet_id"], ["subnets.id"], name=op.f("port_fixed_ips_subnet_id_fkey")),
        sa.PrimaryKeyConstraint("subnet_id", "address", name=op.f("port_fixed_ips_pkey")),
    )
    op.create_index("ix_port_fixed_ips_port_id", "port_fixed_ips", ["port_id"], unique=False)


def downgrade() -> None:
    """Back."""
    op.drop_index("ix_port_fixed_ips_port_id", table_name="port_fixed_ips")
    op.drop_table("port_fixed_ips")
    op.drop_index(op.f("instance_action_events_action_id_idx"), table_name="instance_action_events")
    op.drop_table("instance_action_events")
    op.drop_table("allocation_pools")
    op.drop_index(op.f("subnets_project_id_idx"), table_name="subnets")
    op.drop_index("ix_subnets_network_id", table_name="subnets")
    op.drop_table("subnets")
    op.drop_index("ix_port_security_groups_group", table_name="port_security_groups")
    op.drop_table("port_security_groups")
    op.drop_table("placements")
    op.drop_index("instance_actions_server_idx", table_name="instance_actions")
    op.drop_table("instance_actions")
    op.drop_index("uq_bindings_active", table_name="bindings", postgresql_where=sa.text("status = 'ACTIVE'"))
    op.drop_index("ix_bindings_host", table_name="bindings")
    op.drop_table("bindings")
    op.drop_index(op.f("allocations_provider_id_resource_class_idx"), table_name="allocations")
    op.drop_table("allocations")
    op.drop_index(
        "servers_server_group_idx", table_name="servers", postgresql_where=sa.text("deleted_at IS NULL")
    )
    op.drop_index("servers_project_idx", table_name="servers")
    op.drop_index(
        "servers_live_host_idx", table_name="servers", postgresql_where=sa.text("deleted_at IS NULL")
    )
    op.drop_table("servers")
    op.drop_table("segments")
    op.drop_table("security_group_rules")
    op.drop_index(op.f("provider_traits_trait_idx"), table_name="provider_traits")
    op.drop_table("provider_traits")
    op.drop_index(op.f("provider_aggregates_aggregate_id_idx"), table_name="provider_aggregates")
    op.drop_table("provider_aggregates")
    op.drop_index(op.f("ports_project_id_idx"), table_name="ports")
    op.drop_index("ix_ports_device_id", table_name="ports", postgresql_where=sa.text("device_id <> ''"))
    op.drop_table("ports")
    op.drop_table("operation_steps")
    op.drop_index(op.f("inventories_resource_class_idx"), table_name="inventories")
    op.drop_table("inventories")
    op.drop_index(op.f("host_credentials_host_idx"), table_name="host_credentials")
    op.drop_table("host_credentials")
    op.drop_table("flavor_access")
    op.drop_index(
        "commands_unfinished_idx", table_name="commands", postgresql_where=sa.text("finished_at IS NULL")
    )
    op.drop_index("commands_finished_at_idx", table_name="commands", postgresql_using="brin")
    op.drop_table("commands")
    op.drop_index(op.f("aggregate_hosts_host_idx"), table_name="aggregate_hosts")
    op.drop_table("aggregate_hosts")
    op.drop_table("traits")
    op.drop_index(op.f("server_groups_project_id_idx"), table_name="server_groups")
    op.drop_table("server_groups")
    op.drop_index(
        "uq_security_groups_default", table_name="security_groups", postgresql_where=sa.text("is_default")
    )
    op.drop_index(op.f("security_groups_project_id_idx"), table_name="security_groups")
    op.drop_table("security_groups")
    op.drop_index(op.f("resource_providers_root_id_idx"), table_name="resource_providers")
    op.drop_index(op.f("resource_providers_parent_id_idx"), table_name="resource_providers")
    op.drop_table("resource_providers")
    op.drop_table("resource_classes")
    op.drop_table("quota_usages")
    op.drop_table("quota_limits")
    op.drop_index(op.f("placement_changes_at_idx"), table_name="placement_changes")
    op.drop_table("placement_changes")
    op.drop_index(
        "operations_open_subject_idx",
        table_name="operations",
        postgresql_where=sa.text("state IN ('ready', 'running', 'waiting', 'stuck')"),
    )
    op.drop_index(
        "operations_open_idx",
        table_name="operations",
        postgresql_where=sa.text("state IN ('ready', 'running', 'waiting', 'stuck')"),
    )
    op.drop_table("operations")
    op.drop_index(op.f("networks_project_id_idx"), table_name="networks")
    op.drop_table("networks")
    op.drop_table("network_quotas")
    op.drop_table("network_changes")
    op.drop_table("keypairs")
    op.drop_table("hosts")
    op.drop_table("host_numbers")
    op.drop_table("flavors")
    op.drop_table("enrollment_tokens")
    op.drop_index(op.f("consumers_project_id_user_id_idx"), table_name="consumers")
    op.drop_table("consumers")
    op.drop_table("call_results")
    op.drop_table("aggregates")
    op.execute(sa.schema.DropSequence(sa.Sequence("placement_inventory_version")))
