"""Quotas: how many of each resource a project may have; -1 is without limit.

A check counts no further than the limit, so it costs the same however large the limit of others is. Two creates at the
same moment may together pass the limit by one, as in Neutron without its reservations.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.network import errors, tables
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param

COUNTED: Mapping[str, sa.Table] = {
    "network": tables.networks,
    "subnet": tables.subnets,
    "port": tables.ports,
    "security_group": tables.security_groups,
    "security_group_rule": tables.security_group_rules,
}
DEFAULTS: Mapping[str, int] = {
    "network": 100,
    "subnet": 100,
    "port": 500,
    "security_group": 10,
    "security_group_rule": 100,
    "router": 10,
    "floatingip": 50,
    "subnetpool": -1,
    "rbac_policy": 10,
}
_q = tables.network_quotas


def limit_of(resource: str, project: str = "project_id") -> Any:
    """SQL: the project's limit of a resource; parameters ``project`` and default_limit."""
    own = (
        sa.select(_q.c.limit)
        .where(_q.c.project_id == text_param(project))
        .where(_q.c.resource == sa.literal_column(f"'{resource}'"))
        .scalar_subquery()
    )
    return sa.func.coalesce(own, sa.bindparam("default_limit", type_=sa.Integer))


def used_of(resource: str, project: str = "project_id") -> Any:
    """SQL: how many the project has, counted up to its limit."""
    table = COUNTED[resource]
    bound = sa.func.greatest(limit_of(resource, project), sa.literal_column("0"))
    rows: Any = sa.select(sa.literal_column("1")).where(table.c.project_id == text_param(project))
    return (
        sa.select(sa.func.count())
        .select_from(rows.limit(sa.select(bound).scalar_subquery()).subquery())
        .scalar_subquery()
    )


_CHECK: dict[str, Statement[Any]] = {
    name: Statement(sa.select(limit_of(name), used_of(name))) for name in COUNTED
}
_COUNT: dict[str, Statement[Any]] = {
    name: Statement(
        sa.select(sa.func.count()).select_from(table).where(table.c.project_id == text_param("project_id"))
    )
    for name, table in COUNTED.items()
}
_OWN: Statement[Any] = Statement(
    sa.select(_q.c.resource, _q.c.limit).where(_q.c.project_id == text_param("project_id"))
)
_ALL: Statement[Any] = Statement(
    sa.select(_q.c.project_id, _q.c.resource, _q.c.limit).order_by(_q.c.project_id)
)
_RESET: Statement[Any] = Statement(sa.delete(_q).where(_q.c.project_id == text_param("project_id")))
_SET: Statement[Any] = Statement(
    postgresql.insert(_q)
    .values(
        project_id=text_param("project_id"),
        resource=text_param("resource"),
        limit=sa.bindparam("limit", type_=sa.Integer),
    )
    .on_conflict_do_update(
        index_elements=["project_id", "resource"], set_={"limit": sa.bindparam("limit", type_=sa.Integer)}
    )
)


def check(resource: str, project_id: str, *, limit: int, used: int, adding: int) -> None:
    """Raise OverQuota when ``adding`` more would pass the limit."""
    if 0 <= limit < used + adding:
        raise errors.OverQuota(
            f"Quota exceeded for resources: ['{resource}'].",
            resource=resource,
            project_id=project_id,
            needed=adding,
            available=max(limit - used, 0),
        )


class Quotas:
    """Limits by project; ``defaults`` are the operator's for a project without its own."""

    def __init__(self, defaults: Mapping[str, int]) -> None:
        self.defaults = {**DEFAULTS, **defaults}

    async def check(self, tx: Tx, project_id: str, resource: str, adding: int = 1) -> None:
        """Raise OverQuota when the project may not have ``adding`` more. One statement."""
        row = await _CHECK[resource].first(tx, project_id=project_id, default_limit=self.defaults[resource])
        assert row is not None
        check(resource, project_id, limit=row[0], used=row[1], adding=adding)

    async def show(self, tx: Tx, project_id: str) -> dict[str, int]:
        """Every limit of a project."""
        return {**self.defaults, **{row[0]: row[1] for row in await _OWN.all(tx, project_id=project_id)}}

    async def details(self, tx: Tx, project_id: str) -> dict[str, dict[str, int]]:
        """Every limit with what is used of it."""
        limits = await self.show(tx, project_id)
        return {
            name: {
                "limit": limit,
                "used": await _COUNT[name].scalar(tx, project_id=project_id) if name in _COUNT else 0,
                "reserved": 0,
            }
            for name, limit in limits.items()
        }

    async def everyone(self, tx: Tx) -> dict[str, dict[str, int]]:
        """The limits of every project that has its own."""
        found: dict[str, dict[str, int]] = {}
        for project_id, resource, limit in await _ALL.all(tx):
            found.setdefault(project_id, dict(self.defaults))[resource] = limit
        return found

    async def update(self, tx: Tx, project_id: str, limits: Mapping[str, int]) -> None:
        """Set some limits of a project. Raises InvalidInput for an unknown resource or a limit below -1."""
        for resource, limit in limits.items():
            if resource not in self.defaults:
                raise errors.InvalidInput(f"there is no quota for '{resource}'", field=resource)
            if not -1 <= limit < 1 << 31:
                raise errors.InvalidInput(f"{limit} is not a limit; -1 is without limit", field=resource)
        await _SET.many(
            tx, [{"project_id": project_id, "resource": r, "limit": n} for r, n in limits.items()]
        )

    async def reset(self, tx: Tx, project_id: str) -> None:
        """Back to the defaults."""
        await _RESET.run(tx, project_id=project_id)
