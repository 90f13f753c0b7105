"""Tables of placement.

`inventories.used` is kept with every write of allocations, so that a claim is one conditional update
and no sum is ever taken over allocations. `inventories.version` comes from a sequence and grows with
every write of the row: whoever holds a copy of `used` can tell which of two figures is newer.

Standard traits and resource classes live in code (os-traits, os-resource-classes); the tables `traits` and
`resource_classes` hold custom ones. Aggregates are bare ids and exist while something is associated.

Every write ends with a row in `placement_changes`, in the same transaction. `kind` is `used` (payload:
rows of [provider, resource class, used, version], complete in themselves), `provider` (read the provider
again) or `names` (a custom trait or class was deleted).
"""

from __future__ import annotations

import sqlalchemy as sa

from moorage.store.schema import IdColumn, Json, Timestamp, created_at, metadata, updated_at

MAX_UNIT = 2**31 - 1

inventory_version = sa.Sequence("placement_inventory_version", metadata=metadata)

resource_providers = sa.Table(
    "resource_providers",
    metadata,
    IdColumn(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("parent_id", sa.Text, sa.ForeignKey("resource_providers.id"), index=True),
    sa.Column("root_id", sa.Text, sa.ForeignKey("resource_providers.id"), nullable=False, index=True),
    created_at(),
    updated_at(),
    # Claims update rows in place; free room in a page keeps these updates off the indexes.
    postgresql_with={"fillfactor": 70},
)

resource_classes = sa.Table("resource_classes", metadata, IdColumn("name"), created_at(), updated_at())

traits = sa.Table("traits", metadata, IdColumn("name"), created_at(), updated_at())

inventories = sa.Table(
    "inventories",
    metadata,
    sa.Column(
        "provider_id",
        sa.Text,
        sa.ForeignKey("resource_providers.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("resource_class", sa.Text, primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
    sa.Column("reserved", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("min_unit", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("max_unit", sa.BigInteger, nullable=False, server_default=str(MAX_UNIT)),
    sa.Column("step_size", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("allocation_ratio", sa.Double, nullable=False, server_default="1.0"),
    sa.Column("used", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column(
        "version",
        sa.BigInteger,
        nullable=False,
        server_default=sa.text("nextval('placement_inventory_version')"),
    ),
    created_at(),
    updated_at(),
    sa.CheckConstraint("used >= 0", name="used"),
    sa.CheckConstraint("total >= 0 AND reserved >= 0", name="amounts"),
    sa.CheckConstraint("min_unit >= 1 AND max_unit >= 1 AND step_size >= 1", name="units"),
    sa.Index(None, "resource_class"),
    postgresql_with={"fillfactor": 70},
)

provider_traits = sa.Table(
    "provider_traits",
    metadata,
    sa.Column(
        "provider_id", sa.Text, sa.ForeignKey("resource_providers.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("trait", sa.Text, primary_key=True, index=True),
)

provider_aggregates = sa.Table(
    "provider_aggregates",
    metadata,
    sa.Column(
        "provider_id", sa.Text, sa.ForeignKey("resource_providers.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("aggregate_id", sa.Text, primary_key=True, index=True),
)

consumers = sa.Table(
    "consumers",
    metadata,
    IdColumn(),
    sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("consumer_type", sa.Text),
    created_at(),
    updated_at(),
    sa.Index(None, "project_id", "user_id"),
)

allocations = sa.Table(
    "allocations",
    metadata,
    sa.Column("consumer_id", sa.Text, sa.ForeignKey("consumers.id"), primary_key=True),
    sa.Column("provider_id", sa.Text, primary_key=True),
    sa.Column("resource_class", sa.Text, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    created_at(),
    updated_at(),
    sa.CheckConstraint("used >= 1", name="used"),
    sa.ForeignKeyConstraint(
        ["provider_id", "resource_class"],
        ["inventories.provider_id", "inventories.resource_class"],
        onupdate="CASCADE",  # a custom class can be renamed
    ),
    sa.Index(None, "provider_id", "resource_class"),
)

placement_changes = sa.Table(
    "placement_changes",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("provider_id", sa.Text),
    sa.Column("payload", Json),
    sa.Column("at", Timestamp, nullable=False, server_default=sa.func.now(), index=True),
)
