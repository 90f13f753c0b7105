"""Changes of a server that are done when the answer is given: attributes, metadata, tags, lock."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from moorage.api.context import RequestContext
from moorage.compute import actions, quotas, server_state, servers
from moorage.compute.errors import InvalidField, QuotaExceeded, ServerNotFound
from moorage.compute.model import Server
from moorage.compute.service import ComputeService
from moorage.compute.tables import servers as table
from moorage.core.errors import NotFound
from moorage.store.database import Tx
from moorage.store.schema import Json
from moorage.store.statement import Statement, query, text_param

MAX_TAGS = 50
_live = sa.and_(table.c.id == text_param("id"), table.c.deleted_at.is_(None))


def _set(**values: Any) -> Statement[Server]:
    return Statement(
        sa.update(table).where(_live).values(**values, updated_at=sa.func.now()).returning(table), row=Server
    )


_METADATA = _set(metadata=sa.bindparam("metadata", type_=Json))
_TAGS = _set(tags=sa.bindparam("tags", type_=sa.ARRAY(sa.Text)))
_LOCK = _set(
    locked=sa.bindparam("locked", type_=sa.Boolean),
    locked_by=text_param("by"),
    locked_reason=text_param("reason"),
)
_ROW = Statement(sa.select(table.c.id).where(_live).with_for_update())


async def _mine(tx: Tx, context: RequestContext, server_id: str, *, check_lock: bool = True) -> Server:
    """The server, its row held for the change that follows; raises ServerNotFound, ServerLocked."""
    await _ROW.all(tx, id=server_id)
    server = await servers.get(tx, context, server_id)
    if check_lock:
        server_state.check_lock(server, by_admin=context.is_admin)
    return server


def _found(server: Server | None, server_id: str) -> Server:
    if server is None:
        raise ServerNotFound(f"Instance {server_id} could not be found.")
    return server


async def update(tx: Tx, context: RequestContext, server_id: str, values: Mapping[str, Any]) -> Server:
    """Set columns that a user may set; raises ServerNotFound."""
    server = await servers.get(tx, context, server_id)
    if not values:
        return server
    statement = sa.update(table).where(table.c.id == server.id, table.c.deleted_at.is_(None))
    rows = await query(tx, statement.values(**values, updated_at=sa.func.now()).returning(table), Server)
    return _found(rows[0] if rows else None, server_id)


async def set_metadata(
    tx: Tx,
    app: ComputeService,
    context: RequestContext,
    server_id: str,
    items: Mapping[str, str],
    *,
    replace: bool = False,
) -> Server:
    """Merge items into the server's metadata, or replace it; raises QuotaExceeded."""
    server = await _mine(tx, context, server_id)
    merged = dict(items) if replace else {**server.metadata, **items}
    limits = await quotas.limits(tx, app.limits, server.project_id)
    if 0 <= limits["metadata_items"] < len(merged):
        raise QuotaExceeded(
            f"Maximum number of metadata items exceeds {limits['metadata_items']}",
            resources=["metadata_items"],
        )
    return _found(await _METADATA.first(tx, id=server_id, metadata=merged), server_id)


async def drop_metadata(tx: Tx, context: RequestContext, server_id: str, key: str) -> None:
    """Remove one item; raises NotFound."""
    server = await _mine(tx, context, server_id)
    if key not in server.metadata:
        raise NotFound("Metadata item was not found", code="compute.metadata_not_found")
    left = {k: v for k, v in server.metadata.items() if k != key}
    await _METADATA.first(tx, id=server_id, metadata=left)


async def set_tags(tx: Tx, context: RequestContext, server_id: str, tags: Sequence[str]) -> list[str]:
    """Replace the tags; raises InvalidField for too many."""
    await _mine(tx, context, server_id)
    wanted = sorted(set(tags))
    if len(wanted) > MAX_TAGS:
        raise InvalidField(f"The number of tags exceeded the per-server limit {MAX_TAGS}", field="tags")
    return _found(await _TAGS.first(tx, id=server_id, tags=wanted), server_id).tags


async def add_tag(tx: Tx, context: RequestContext, server_id: str, tag: str) -> bool:
    """Add one; False where it was there already."""
    server = await _mine(tx, context, server_id)
    if tag in server.tags:
        return False
    if len(server.tags) >= MAX_TAGS:
        raise InvalidField(f"The number of tags exceeded the per-server limit {MAX_TAGS}", field="tag")
    await _TAGS.first(tx, id=server_id, tags=sorted([*server.tags, tag]))
    return True


async def drop_tag(tx: Tx, context: RequestContext, server_id: str, tag: str) -> None:
    """Remove one; raises NotFound."""
    server = await _mine(tx, context, server_id)
    if tag not in server.tags:
        raise NotFound(f"Server {server_id} has no tag '{tag}'", code="compute.tag_not_found")
    await _TAGS.first(tx, id=server_id, tags=[t for t in server.tags if t != tag])


async def lock(tx: Tx, context: RequestContext, server_id: str, reason: str | None) -> None:
    """Only an administrator may change it now, or its owner after ``unlock``.

    An owner who locks what is locked changes nothing: an administrator's lock stays one.
    """
    server = await _mine(tx, context, server_id, check_lock=False)
    owner = server.project_id == context.project_id
    if server.locked and owner:
        return
    by = "owner" if owner else "admin"
    await _LOCK.first(tx, id=server_id, locked=True, by=by, reason=reason)
    await actions.start(tx, server_id, context, "lock")


async def unlock(tx: Tx, context: RequestContext, server_id: str) -> Server:
    """The caller checks whether this user may undo an administrator's lock."""
    await servers.get(tx, context, server_id)
    found = _found(await _LOCK.first(tx, id=server_id, locked=False, by=None, reason=None), server_id)
    await actions.start(tx, server_id, context, "unlock")
    return found
