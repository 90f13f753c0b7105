"""Limits and what is used of them.

Limits: the project's own, else those of the class "default", else the configured ones. -1 is no limit.

Use of instances, cores and memory is kept in one row a project. ``claim`` is a conditional update of that row, so
two requests at once cannot both take the last of it; it is the last statement of a creation, because the row
stays locked until the commit. ``server_state.deleted`` gives back in the statement that marks the server.
"""

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from moorage.compute.errors import QuotaExceeded
from moorage.compute.tables import keypairs, quota_limits, quota_usages, server_groups
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param

_CLASS = "class:default"


class Usage(msgspec.Struct, frozen=True):
    """What a project uses."""

    instances: int
    cores: int
    ram: int
    server_groups: int


class _Limit(msgspec.Struct, frozen=True):
    scope: str
    resource: str
    limit: int


_LIMITS = Statement(
    sa.select(quota_limits)
    .where(sa.or_(quota_limits.c.scope == _CLASS, quota_limits.c.scope == text_param("scope")))
    .order_by(quota_limits.c.scope),
    row=_Limit,
)
_limit = insert(quota_limits).values(
    scope=text_param("scope"), resource=text_param("resource"), limit=sa.bindparam("limit", type_=sa.Integer)
)
_SET = Statement(
    _limit.on_conflict_do_update(index_elements=["scope", "resource"], set_={"limit": _limit.excluded.limit})
)
_RESET = Statement(sa.delete(quota_limits).where(quota_limits.c.scope == text_param("scope")))

_USAGE = Statement(
    sa.select(
        sa.func.coalesce(sa.func.max(quota_usages.c.instances), 0).label("instances"),
        sa.func.coalesce(sa.func.max(quota_usages.c.cores), 0).label("cores"),
        sa.func.coalesce(sa.func.max(quota_usages.c.ram), 0).label("ram"),
        sa.select(sa.func.count())
        .select_from(server_groups)
        .where(server_groups.c.project_id == text_param("project_id"))
        .scalar_subquery()
        .label("server_groups"),
    ).where(quota_usages.c.project_id == text_param("project_id")),
    row=Usage,
)
_KEYS = Statement(
    sa.select(sa.func.count()).select_from(keypairs).where(keypairs.c.user_id == text_param("user_id"))
)


def _int(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.BigInteger)


# No row is updated where the new use would exceed a limit, or where the project has no row yet.
_ENSURE = Statement(
    insert(quota_usages)
    .values(project_id=text_param("project_id"), instances=0, cores=0, ram=0)
    .on_conflict_do_nothing()
)
_CLAIM = Statement(
    sa.update(quota_usages)
    .where(
        quota_usages.c.project_id == text_param("project_id"),
        sa.or_(
            _int("max_instances") < 0, quota_usages.c.instances + _int("instances") <= _int("max_instances")
        ),
        sa.or_(_int("max_cores") < 0, quota_usages.c.cores + _int("cores") <= _int("max_cores")),
        sa.or_(_int("max_ram") < 0, quota_usages.c.ram + _int("ram") <= _int("max_ram")),
    )
    .values(
        instances=quota_usages.c.instances + _int("instances"),
        cores=quota_usages.c.cores + _int("cores"),
        ram=quota_usages.c.ram + _int("ram"),
    )
)


async def limits(tx: Tx, defaults: Mapping[str, int], project_id: str | None) -> dict[str, int]:
    """Every limit that holds for a project (None: for projects without their own), by resource."""
    rows = await _LIMITS.all(tx, scope=f"project:{project_id}" if project_id else _CLASS)
    found = dict(defaults)
    # "class:default" sorts before "project:…", so the project's own come last and win.
    found.update({row.resource: row.limit for row in rows})
    return found


async def set_limits(tx: Tx, project_id: str | None, values: Mapping[str, int]) -> None:
    """Set a project's own limits (None: those of every project that has none)."""
    scope = f"project:{project_id}" if project_id else _CLASS
    await _SET.many(tx, [{"scope": scope, "resource": r, "limit": n} for r, n in values.items()])


async def reset(tx: Tx, project_id: str) -> None:
    """Forget a project's own limits."""
    await _RESET.run(tx, scope=f"project:{project_id}")


async def usage(tx: Tx, project_id: str) -> Usage:
    """What the project uses now."""
    return await _USAGE.one(tx, project_id=project_id)


async def keypairs_of(tx: Tx, user_id: str) -> int:
    """The number of a user's keypairs."""
    found: int = await _KEYS.scalar(tx, user_id=user_id)
    return found


async def claim(
    tx: Tx, project_id: str, limits: Mapping[str, int], *, instances: int, cores: int, ram: int
) -> None:
    """Take so much of the project's quota; raises QuotaExceeded naming what would be too much."""
    asked = {"instances": instances, "cores": cores, "ram": ram}
    params = {**asked, **{f"max_{name}": limits[name] for name in asked}, "project_id": project_id}
    if await _CLAIM.run(tx, **params):
        return
    await _ENSURE.run(tx, project_id=project_id)
    if await _CLAIM.run(tx, **params):
        return
    used = await usage(tx, project_id)
    raise _exceeded(asked, {"instances": used.instances, "cores": used.cores, "ram": used.ram}, limits)


def _exceeded(asked: Mapping[str, int], used: Mapping[str, int], limits: Mapping[str, int]) -> QuotaExceeded:
    over = [n for n, amount in asked.items() if 0 <= limits[n] < used[n] + amount] or ["instances"]

    def figures(values: Mapping[str, int]) -> str:
        return ", ".join(str(values[n]) for n in over)

    return QuotaExceeded(
        f"Quota exceeded for {', '.join(over)}: Requested {figures(asked)}, but already used {figures(used)}"
        f" of {figures(limits)} {', '.join(over)}",
        resources=over,
        requested={n: asked[n] for n in over},
        used={n: used[n] for n in over},
        limits={n: limits[n] for n in over},
    )
