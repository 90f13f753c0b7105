"""Instance actions: what was asked of a server, by which request, and how it went.

Every mutating request records an action in its own transaction; operations add events to it.
"""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from moorage.api.context import RequestContext
from moorage.compute.model import Action, ActionEvent, Server
from moorage.compute.tables import instance_action_events as events
from moorage.compute.tables import instance_actions as actions
from moorage.store.database import Tx
from moorage.store.statement import Statement, query, text_param, texts_param

_START = Statement(
    sa.insert(actions)
    .values(
        server_id=text_param("server_id"),
        action=text_param("action"),
        request_id=text_param("request_id"),
        user_id=text_param("user_id"),
        project_id=text_param("project_id"),
        updated_at=sa.func.now(),
    )
    .returning(actions.c.id)
)

_newest = (
    sa.select(actions.c.id)
    .where(actions.c.server_id == text_param("server_id"), actions.c.request_id == text_param("request_id"))
    .order_by(actions.c.id.desc())
    .limit(1)
)

_EVENT = Statement(
    sa.insert(events).from_select(
        ["action_id", "event", "host"],
        sa.select(_newest.subquery().c.id, text_param("event"), text_param("host")),
    )
)

# The newest event of that name which has not ended; the action takes the error over.
_open_event = (
    sa.select(events.c.id)
    .where(
        events.c.action_id == _newest.scalar_subquery(),
        events.c.event == text_param("event"),
        events.c.finish_time.is_(None),
    )
    .order_by(events.c.id.desc())
    .limit(1)
)
_ended = (
    sa.update(events)
    .where(events.c.id == _open_event.scalar_subquery())
    .values(
        finish_time=sa.func.now(),
        result=text_param("result"),
        details=text_param("details"),
        host=sa.func.coalesce(text_param("host"), events.c.host),
    )
    .returning(events.c.action_id)
    .cte("ended")
)
_FINISH = Statement(
    sa.update(actions)
    .where(actions.c.id == sa.select(_ended.c.action_id).scalar_subquery())
    .values(
        updated_at=sa.func.now(),
        message=sa.case((text_param("result") == "Error", "Error"), else_=actions.c.message),
    )
)

# WITH acted AS (INSERT one action for each of ``servers``) INSERT one event that has ended for each action
_told = (
    sa.func.unnest(texts_param("servers"), texts_param("hosts"))
    .table_valued("server_id", "host")
    .render_derived(name="told")
)
_acted = (
    sa.insert(actions)
    .from_select(
        ["server_id", "action", "request_id", "updated_at"],
        sa.select(_told.c.server_id, text_param("action"), text_param("request_id"), sa.func.now()),
    )
    .returning(actions.c.id, actions.c.server_id)
    .cte("acted")
)
_HAPPENED = Statement(
    sa.insert(events).from_select(
        ["action_id", "event", "host", "result", "details", "finish_time"],
        sa.select(
            _acted.c.id,
            text_param("event"),
            _told.c.host,
            sa.literal_column("'Success'"),
            text_param("details"),
            sa.func.now(),
        ).where(_acted.c.server_id == _told.c.server_id),
    )
)

_BY_REQUEST = Statement(
    sa.select(actions)
    .where(actions.c.server_id == text_param("server_id"), actions.c.request_id == text_param("request_id"))
    .order_by(actions.c.id.desc()),
    row=Action,
)
_EVENTS = Statement(
    sa.select(events)
    .where(events.c.action_id == sa.bindparam("action_id", type_=sa.BigInteger))
    .order_by(events.c.id),
    row=ActionEvent,
)


async def start(tx: Tx, server_id: str, context: RequestContext, action: str) -> int:
    """Record that this request asks ``action`` of the server; the action's id."""
    found: int = await _START.scalar(
        tx,
        server_id=server_id,
        action=action,
        request_id=context.request_id,
        user_id=context.user_id,
        project_id=context.project_id,
    )
    return found


async def event_started(
    tx: Tx, server_id: str, request_id: str, event: str, *, host: str | None = None
) -> None:
    """Open an event of the action that this request started; nothing happens where there is none."""
    await _EVENT.run(tx, server_id=server_id, request_id=request_id, event=event, host=host)


async def event_finished(
    tx: Tx,
    server_id: str,
    request_id: str,
    event: str,
    *,
    error: str | None = None,
    host: str | None = None,
) -> None:
    """Close the open event of that name; ``error`` (for the user to read) makes it and its action failed."""
    await _FINISH.run(
        tx,
        server_id=server_id,
        request_id=request_id,
        event=event,
        result="Success" if error is None else "Error",
        details=error,
        host=host,
    )


async def happened(
    tx: Tx, servers: Sequence[Server], *, action: str, event: str, request_id: str, details: str
) -> None:
    """Record what nobody asked for: an action of nobody for each server, with an event that has ended."""
    await _HAPPENED.run(
        tx,
        servers=[server.id for server in servers],
        hosts=[server.host for server in servers],
        action=action,
        event=event,
        request_id=request_id,
        details=details,
    )


async def of_server(
    tx: Tx,
    server_id: str,
    *,
    limit: int = 1000,
    marker: str | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
) -> list[Action]:
    """Actions of one server, newest first; ``marker`` is the request id of the last one seen."""
    select = (
        sa.select(actions).where(actions.c.server_id == server_id).order_by(actions.c.id.desc()).limit(limit)
    )
    if marker is not None:
        last = sa.select(sa.func.max(actions.c.id)).where(
            actions.c.server_id == server_id, actions.c.request_id == marker
        )
        select = select.where(actions.c.id < last.scalar_subquery())
    if since is not None:
        select = select.where(actions.c.updated_at >= since)
    if before is not None:
        select = select.where(actions.c.updated_at <= before)
    return await query(tx, select, Action)


async def by_request(tx: Tx, server_id: str, request_id: str) -> tuple[Action, list[ActionEvent]] | None:
    """One action with its events in order."""
    action = await _BY_REQUEST.first(tx, server_id=server_id, request_id=request_id)
    return (action, await _EVENTS.all(tx, action_id=action.id)) if action is not None else None
