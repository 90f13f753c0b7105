"""Server groups: which servers belong on one host, or apart."""

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from moorage.compute.errors import QuotaExceeded, ServerGroupNotFound
from moorage.compute.model import ServerGroup
from moorage.compute.tables import server_groups, servers
from moorage.core.ids import new_id
from moorage.scheduling.company import Company, company
from moorage.store.database import Tx
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param

POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")

_members = (
    sa.select(
        sa.func.coalesce(
            sa.func.array_agg(aggregate_order_by(servers.c.id, servers.c.number)),
            sa.cast(sa.literal_column("'{}'"), sa.ARRAY(sa.Text)),
        )
    )
    .where(servers.c.server_group_id == server_groups.c.id, servers.c.deleted_at.is_(None))
    .scalar_subquery()
    .label("members")
)
_mine = sa.or_(sa.bindparam("any", type_=sa.Boolean), server_groups.c.project_id == text_param("project_id"))
_one = sa.and_(server_groups.c.id == text_param("id"), _mine)
_GET = Statement(sa.select(server_groups, _members).where(_one), row=ServerGroup)
_LIST = Statement(
    sa.select(server_groups, _members)
    .where(_mine)
    .order_by(server_groups.c.created_at, server_groups.c.id)
    .offset(sa.bindparam("offset", type_=sa.Integer))
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    row=ServerGroup,
)
_ADD = Statement(
    sa.insert(server_groups).values(
        **{n: text_param(n) for n in ("id", "project_id", "user_id", "name", "policy")},
        rules=sa.bindparam("rules", type_=Json),
    )
)
_LOCK_GROUP = Statement(
    sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(text_param("id"), 9)))
)


class _Elsewhere(msgspec.Struct, frozen=True):
    policy: str
    rules: dict[str, int]
    host: str | None
    servers: int


# One row a host with other members; one row without a host where there are none.
_ELSEWHERE: Statement[_Elsewhere] = Statement(
    sa.select(
        server_groups.c.policy,
        server_groups.c.rules,
        servers.c.host,
        sa.func.count(servers.c.id).label("servers"),
    )
    .select_from(
        server_groups.outerjoin(
            servers,
            sa.and_(
                servers.c.server_group_id == server_groups.c.id,
                servers.c.id != text_param("server_id"),
                servers.c.host.is_not(None),
                servers.c.deleted_at.is_(None),
            ),
        )
    )
    .where(server_groups.c.id == text_param("id"))
    .group_by(server_groups.c.id, servers.c.host),
    row=_Elsewhere,
)
_DELETE = Statement(sa.delete(server_groups).where(_one))
_LOCK = Statement(
    sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(text_param("project_id"), 8)))
)
_COUNT = Statement(
    sa.select(sa.func.count())
    .select_from(server_groups)
    .where(server_groups.c.project_id == text_param("project_id"))
)


async def wishes(tx: Tx, group_id: str, *, server_id: str) -> Company:
    """What the group asks for a server, from where its other members are.

    The group is locked until the transaction ends, so that two members that are placed at once see each other
    (upstream's late check on the host, bugs 1821755 and 1763181, is not needed). A group that was deleted
    meanwhile asks nothing.
    """
    await _LOCK_GROUP.run(tx, id=group_id)
    rows = await _ELSEWHERE.all(tx, id=group_id, server_id=server_id)
    taken = {row.host: row.servers for row in rows if row.host is not None}
    if not taken:
        return Company()
    return company(rows[0].policy, taken, most=rows[0].rules.get("max_server_per_host", 1))


async def get(tx: Tx, group_id: str, *, project_id: str | None, any_project: bool) -> ServerGroup:
    """Raises ServerGroupNotFound."""
    found = await _GET.first(tx, id=group_id, project_id=project_id, any=any_project)
    if found is None:
        raise ServerGroupNotFound(f"Instance group {group_id} could not be found.")
    return found


async def list_(
    tx: Tx, *, project_id: str | None, any_project: bool, offset: int = 0, limit: int = 1000
) -> list[ServerGroup]:
    """Oldest first."""
    return await _LIST.all(tx, project_id=project_id, any=any_project, offset=offset, limit=limit)


async def create(
    tx: Tx, *, project_id: str, user_id: str, name: str, policy: str, rules: Mapping[str, int], limit: int
) -> ServerGroup:
    """Raises QuotaExceeded."""
    await _LOCK.run(tx, project_id=project_id)
    if 0 <= limit <= await _COUNT.scalar(tx, project_id=project_id):
        raise QuotaExceeded("Quota exceeded, too many server groups.", resources=["server_groups"])
    group_id = new_id()
    await _ADD.run(
        tx, id=group_id, project_id=project_id, user_id=user_id, name=name, policy=policy, rules=dict(rules)
    )
    return await get(tx, group_id, project_id=project_id, any_project=False)


async def delete(tx: Tx, group_id: str, *, project_id: str | None, any_project: bool) -> None:
    """Delete it; its servers stay. Raises ServerGroupNotFound."""
    if not await _DELETE.run(tx, id=group_id, project_id=project_id, any=any_project):
        raise ServerGroupNotFound(f"Instance group {group_id} could not be found.")
