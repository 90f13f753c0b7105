"""The moves of a server's states. Each is one conditional statement: two requests cannot both begin something.

Operations call these; nobody else writes vm_state, task_state, power_state, host or fault.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from moorage.agentlink.statements import GUESTS, LAST_REPORTS
from moorage.compute.errors import ServerLocked, ServerNotFound, ServerWrongState
from moorage.compute.model import Server
from moorage.compute.states import Power, Task, Vm
from moorage.compute.tables import quota_usages, servers
from moorage.core.clock import iso, utcnow
from moorage.store.database import Tx
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param, texts_param

_here = servers.c.id == text_param("id")
_live = sa.and_(_here, servers.c.deleted_at.is_(None))
_kept = servers.c.task_state.is_distinct_from(Task.DELETING)


def _update(condition: Any, **values: Any) -> Statement[Server]:
    return Statement(
        sa.update(servers).where(condition).values(**values, updated_at=sa.func.now()).returning(servers),
        row=Server,
    )


_BEGIN = _update(
    sa.and_(
        _live,
        servers.c.vm_state == sa.any_(texts_param("vm_states")),
        sa.or_(servers.c.task_state.is_(None), servers.c.task_state == sa.any_(texts_param("task_states"))),
    ),
    task_state=text_param("task_state"),
)
_BEGIN_DELETE = _update(sa.and_(_live, _kept), task_state=Task.DELETING, progress=0)
_PLACED = _update(
    sa.and_(_live, _kept),
    host=text_param("host"),
    availability_zone=text_param("zone"),
    task_state=Task.SPAWNING,
)
_UNPLACED = _update(_live, host=None, availability_zone=None)
_RUNNING = _update(
    sa.and_(_live, _kept),
    vm_state=Vm.ACTIVE,
    task_state=None,
    power_state=int(Power.RUNNING),
    progress=0,
    fault=None,
    launched_at=sa.func.coalesce(servers.c.launched_at, sa.func.now()),
)
_STOPPED = _update(
    sa.and_(_live, _kept), vm_state=Vm.STOPPED, task_state=None, power_state=int(Power.SHUTDOWN), fault=None
)
_ended = sa.and_(
    servers.c.deleted_at.is_(None), servers.c.vm_state == Vm.ACTIVE, servers.c.task_state.is_(None)
)
_OFF: dict[str, Any] = {"vm_state": Vm.STOPPED, "power_state": int(Power.SHUTDOWN)}
_GUEST_ENDED = _update(sa.and_(_here, _ended, servers.c.host == text_param("host")), **_OFF)

# ACTIVE and idle for longer than ``grace`` when its host last spoke, and the host has no guest that is on:
# UPDATE servers FROM hosts' last reports WHERE NOT EXISTS (a guest of it there that is on)
_heard = LAST_REPORTS.subquery("heard")
_on = GUESTS.subquery("guests")
_GUESTS_LOST = _update(
    sa.and_(
        _ended,
        servers.c.host == _heard.c.host,
        sa.func.coalesce(servers.c.updated_at, servers.c.created_at)
        < _heard.c.last_seen
        - sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.bindparam("grace", type_=sa.Double())),
        ~sa.exists().where(
            _on.c.host == servers.c.host,
            _on.c.server_id == servers.c.id,
            _on.c.power_state.not_in(("shutdown", "crashed")),
        ),
    ),
    **_OFF,
)
_FAILED = _update(
    sa.and_(_live, sa.or_(_kept, sa.bindparam("deleting", type_=sa.Boolean))),
    vm_state=Vm.ERROR,
    task_state=None,
    power_state=sa.case((sa.bindparam("unplace", type_=sa.Boolean), 0), else_=servers.c.power_state),
    host=sa.case((sa.bindparam("unplace", type_=sa.Boolean), sa.null()), else_=servers.c.host),
    fault=sa.bindparam("fault", type_=Json),
)
_RESET = _update(_live, vm_state=text_param("vm_state"), task_state=None)

# The row is marked and the quota given back by one statement: a repeated call finds nothing to mark.
_gone = (
    sa.update(servers)
    .where(_live)
    .values(
        vm_state=Vm.DELETED,
        task_state=None,
        power_state=0,
        host=servers.c.host,
        terminated_at=sa.func.now(),
        deleted_at=sa.func.now(),
        updated_at=sa.func.now(),
    )
    .returning(servers.c.project_id, servers.c.vcpus, servers.c.memory_mb)
    .cte("gone")
)
_DELETED = Statement(
    sa.update(quota_usages)
    .where(quota_usages.c.project_id == _gone.c.project_id)
    .values(
        instances=quota_usages.c.instances - 1,
        cores=quota_usages.c.cores - _gone.c.vcpus,
        ram=quota_usages.c.ram - _gone.c.memory_mb,
    )
)
_GET = Statement(sa.select(servers).where(_here), row=Server)
_KEPT = Statement(sa.select(servers).where(_live, _kept), row=Server)


def fault(message: str, *, code: int = 500, details: str = "", at: datetime | None = None) -> dict[str, Any]:
    """What the API shows of a failure. ``details`` are for administrators."""
    return {"code": code, "message": message[:255], "details": details, "created": iso(at or utcnow())}


def check_lock(server: Server, *, by_admin: bool) -> None:
    """Raise ServerLocked where the server is locked and the caller is no administrator."""
    if server.locked and not by_admin:
        raise ServerLocked(f"Instance {server.id} is locked")


async def begin_task(
    tx: Tx,
    server: Server,
    task_state: str,
    *,
    action: str,
    vm_states: Sequence[str],
    task_states: Sequence[str] = (),
) -> Server:
    """Take the server for ``action``: from one of ``vm_states``, idle or in one of ``task_states``.

    Raises ServerWrongState where it is in another state by now, ServerNotFound where it is gone.
    """
    found = await _BEGIN.first(
        tx, id=server.id, task_state=task_state, vm_states=list(vm_states), task_states=list(task_states)
    )
    if found is not None:
        return found
    now = await _GET.first(tx, id=server.id)
    if now is None or now.deleted_at is not None:
        raise ServerNotFound(f"Instance {server.id} could not be found.")
    name, value = (
        ("vm_state", now.vm_state) if now.vm_state not in vm_states else ("task_state", now.task_state)
    )
    raise ServerWrongState(
        f"Cannot '{action}' instance {server.id} while it is in {name} {value}",
        vm_state=now.vm_state,
        task_state=now.task_state,
    )


async def begin_delete(tx: Tx, server: Server) -> Server | None:
    """Mark it as being deleted; None where it already was, or is gone."""
    return await _BEGIN_DELETE.first(tx, id=server.id)


async def get(tx: Tx, server_id: str) -> Server | None:
    """The row as it is, deleted or not."""
    return await _GET.first(tx, id=server_id)


async def kept(tx: Tx, server_id: str) -> Server | None:
    """The row as it is; None where the server is being deleted, or gone."""
    return await _KEPT.first(tx, id=server_id)


async def placed(tx: Tx, server_id: str, *, host: str, zone: str) -> Server | None:
    """A host is chosen, and is to build the guest; None (and no change) where the server is being deleted."""
    return await _PLACED.first(tx, id=server_id, host=host, zone=zone)


async def unplaced(tx: Tx, server_id: str) -> Server | None:
    """The host is given up; undo of ``placed``."""
    return await _UNPLACED.first(tx, id=server_id)


async def running(tx: Tx, server_id: str) -> Server | None:
    """ACTIVE and idle; the first time sets launched_at. None where the server is being deleted."""
    return await _RUNNING.first(tx, id=server_id)


async def stopped(tx: Tx, server_id: str) -> Server | None:
    """SHUTOFF and idle; None where the server is being deleted."""
    return await _STOPPED.first(tx, id=server_id)


async def guest_ended(tx: Tx, server_id: str, *, host: str) -> Server | None:
    """SHUTOFF: the guest went off by itself on ``host``; None where the server is elsewhere, busy or not ACTIVE."""
    return await _GUEST_ENDED.first(tx, id=server_id, host=host)


async def guests_lost(tx: Tx, *, grace: float) -> list[Server]:
    """SHUTOFF for every ACTIVE server whose guest is off, or gone, by what its host last said.

    ``grace``: seconds that a server must have been ACTIVE and idle when the host last spoke. A report takes a while on
    its way, and one made before the guest was there must not count against it.
    """
    return await _GUESTS_LOST.all(tx, grace=grace)


async def failed(
    tx: Tx, server_id: str, why: dict[str, Any], *, unplace: bool = False, deleting: bool = False
) -> Server | None:
    """ERROR with a fault (see ``fault``); ``unplace`` forgets the host too: nothing of the server is left there.

    ``deleting``: it is the delete that failed. What else fails leaves a server that is being deleted as it is.
    """
    return await _FAILED.first(tx, id=server_id, fault=why, unplace=unplace, deleting=deleting)


async def deleted(tx: Tx, server_id: str) -> bool:
    """DELETED, and its quota given back; False where it already was."""
    return await _DELETED.run(tx, id=server_id) > 0


async def reset(tx: Tx, server_id: str, *, active: bool) -> Server | None:
    """An administrator's word: ACTIVE or ERROR, and idle."""
    return await _RESET.first(tx, id=server_id, vm_state=Vm.ACTIVE if active else Vm.ERROR)
