"""Lists of servers: filters, order and pages, from the API's query to SQL.

Text filters are regular expressions, as upstream's are. A filter that only administrators may use is ignored for
others, never applied; so is one that is unknown.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.api.context import RequestContext
from moorage.compute import states
from moorage.compute.errors import InvalidField
from moorage.compute.model import Server
from moorage.compute.tables import servers
from moorage.core.errors import BadRequest
from moorage.network.listing import ListQuery
from moorage.network.service import NetworkService
from moorage.store.database import Tx
from moorage.store.statement import Statement, query, text_param

_s = servers.c
Condition = Callable[[str], Any]

SORT_KEYS: Mapping[str, Any] = {
    "access_ip_v4": _s.access_ip_v4,
    "access_ip_v6": _s.access_ip_v6,
    "auto_disk_config": _s.disk_config,
    "availability_zone": _s.availability_zone,
    "config_drive": _s.config_drive,
    "created_at": _s.created_at,
    "display_description": _s.description,
    "display_name": _s.name,
    "host": _s.host,
    "hostname": _s.hostname,
    "image_ref": _s.image_id,
    "instance_type_id": _s.flavor["id"].astext,
    "key_name": _s.key_name,
    "launch_index": _s.launch_index,
    "launched_at": _s.launched_at,
    "locked": _s.locked,
    "locked_by": _s.locked_by,
    "node": _s.host,
    "power_state": _s.power_state,
    "progress": _s.progress,
    "project_id": _s.project_id,
    "task_state": _s.task_state,
    "terminated_at": _s.terminated_at,
    "updated_at": _s.updated_at,
    "user_id": _s.user_id,
    "uuid": _s.id,
    "vm_state": _s.vm_state,
    # Accepted, and the same for every server here.
    "kernel_id": None,
    "ramdisk_id": None,
    "root_device_name": None,
}


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``filters``: values by the API's names; ``sort``: (key, descending) in order."""

    filters: Mapping[str, list[str]] = {}
    sort: tuple[tuple[str, bool], ...] = (("created_at", True),)
    limit: int = 1000
    marker: str | None = None
    all_projects: bool = False
    unknown_status_is_error: bool = True


def _equals(column: Any) -> Condition:
    return lambda value: column == value


def _regex(column: Any) -> Condition:
    def condition(value: str) -> Any:
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidField(f"'{value}' is not a regular expression: {error}", field="query") from error
        return column.op("~")(value)

    return condition


def _flag(column: Any) -> Condition:
    return lambda value: column == (value.strip().lower() in ("1", "true", "t", "yes", "y", "on"))


def _integer(column: Any, names: Mapping[str, int] | None = None) -> Condition:
    def condition(value: str) -> Any:
        if names and value.lower() in names:
            return column == names[value.lower()]
        return column == int(value) if re.fullmatch(r"-?\d{1,9}", value) else sa.false()

    return condition


_POWERS = {p.name.lower(): int(p) for p in states.Power}
# Filters of everybody, and those of administrators (and from 2.83 on of everybody).
_OPEN: Mapping[str, Condition] = {
    "name": _regex(_s.name),
    "display_name": _regex(_s.name),
    "image": _equals(_s.image_id),
    "image_ref": _equals(_s.image_id),
    "flavor": _equals(_s.flavor["id"].astext),
    "reservation_id": _equals(_s.reservation_id),
    "locked": _flag(_s.locked),
}
_WIDER: Mapping[str, Condition] = {
    "availability_zone": _equals(_s.availability_zone),
    "config_drive": _flag(_s.config_drive),
    "key_name": _equals(_s.key_name),
    "created_at": lambda value: _s.created_at == moment(value, "created_at"),
    "launched_at": lambda value: _s.launched_at == moment(value, "launched_at"),
    "terminated_at": lambda value: _s.terminated_at == moment(value, "terminated_at"),
    "power_state": _integer(_s.power_state, _POWERS),
    "task_state": _equals(_s.task_state),
    "vm_state": _equals(_s.vm_state),
    "progress": _integer(_s.progress),
    "user_id": _equals(_s.user_id),
}
_ADMIN: Mapping[str, Condition] = {
    "host": _equals(_s.host),
    "node": _regex(_s.host),
    "hostname": _regex(_s.hostname),
    "uuid": _equals(_s.id),
    "description": _regex(_s.description),
    "display_description": _regex(_s.description),
    "launch_index": _integer(_s.launch_index),
    "access_ip_v4": _equals(_s.access_ip_v4),
    "access_ip_v6": _equals(_s.access_ip_v6),
    "locked_by": _equals(_s.locked_by),
}
_MARKER = Statement(sa.select(servers).where(_s.id == text_param("id")), row=Server)


def moment(text: str, field: str) -> datetime:
    """An ISO 8601 time, UTC where it says nothing else; raises InvalidField."""
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidField(
            f"Invalid input for field {field}: '{text}' is not a date and time.", field=field
        ) from error


async def page(
    tx: Tx, networks: NetworkService, context: RequestContext, request: ListRequest, *, wider: bool = False
) -> list[Server]:
    """Servers of the caller's project (or of all), filtered and in order. ``wider``: the filters of 2.83.

    Two statements, one more for a marker and one for a filter by address. Raises InvalidField, BadRequest.
    """
    select = sa.select(servers)
    if not request.all_projects:
        select = select.where(_s.project_id == context.project_id)
    for condition in _conditions(request, context, wider=wider):
        select = select.where(condition)
    addresses = {n: request.filters[n] for n in ("ip", "ip6") if n in request.filters}
    for values in addresses.values():
        select = select.where(_s.id == sa.any_(await _at_address(tx, networks, context, request, values[-1])))
    order = _order(request.sort)
    if request.marker is not None:
        select = select.where(await _after(tx, context, request, order))
    select = select.order_by(*(_direction(c, down=down) for c, down in order)).limit(request.limit)
    try:
        return await query(tx, select, Server)
    except asyncpg.InvalidRegularExpressionError as error:
        raise InvalidField("A filter is not a regular expression.", field="query") from error


def _conditions(request: ListRequest, context: RequestContext, *, wider: bool) -> list[Any]:
    allowed = dict(_OPEN)
    if context.is_admin or wider:
        allowed |= _WIDER
    if context.is_admin:
        allowed |= _ADMIN
    filters = request.filters
    found = [allowed[name](values[-1]) for name, values in filters.items() if name in allowed]
    if "status" in filters:
        found.append(_with_status(filters["status"], strict=request.unknown_status_is_error))
    if request.all_projects:
        found += [_s.project_id == filters[n][-1] for n in ("project_id", "tenant_id") if n in filters]
    return [*found, *_tags(filters), *_times(filters), _deleted(filters, context)]


def _with_status(names: list[str], *, strict: bool) -> Any:
    options: list[Any] = [sa.false()]
    for name in names:
        known = states.states_of(name)
        if known is None:
            if strict:
                raise InvalidField(f"Invalid status value: {name}", field="status")
            continue
        plain, overlaid = known
        for vm in plain:
            covered = states.overlaying_tasks(vm)
            idle = sa.or_(_s.task_state.is_(None), _s.task_state.not_in(covered)) if covered else sa.true()
            options.append(sa.and_(_s.vm_state == vm, idle))
        options += [sa.and_(_s.vm_state == vm, _s.task_state.in_(tasks)) for vm, tasks in overlaid.items()]
    return sa.or_(*options)


def _tags(filters: Mapping[str, list[str]]) -> list[Any]:
    found: list[Any] = []
    for name, overlap, negated in (
        ("tags", False, False),
        ("tags-any", True, False),
        ("not-tags", False, True),
        ("not-tags-any", True, True),
    ):
        if name in filters:
            wanted = sa.cast(filters[name][-1].split(","), postgresql.ARRAY(sa.Text))
            condition = _s.tags.overlap(wanted) if overlap else _s.tags.contains(wanted)
            found.append(sa.not_(condition) if negated else condition)
    return found


def _times(filters: Mapping[str, list[str]]) -> list[Any]:
    changed = sa.func.coalesce(_s.updated_at, _s.created_at)
    found: list[Any] = []
    if "changes-since" in filters:
        found.append(changed >= moment(filters["changes-since"][-1], "changes-since"))
    if "changes-before" in filters:
        found.append(changed <= moment(filters["changes-before"][-1], "changes-before"))
    return found


def _deleted(filters: Mapping[str, list[str]], context: RequestContext) -> Any:
    if "deleted" in filters and context.is_admin:
        wanted = filters["deleted"][-1].strip().lower() in ("1", "true", "t", "yes", "y", "on")
        return _s.deleted_at.is_not(None) if wanted else _s.deleted_at.is_(None)
    # Who follows changes wants to hear of the end too.
    return sa.true() if "changes-since" in filters else _s.deleted_at.is_(None)


async def _at_address(
    tx: Tx, networks: NetworkService, context: RequestContext, request: ListRequest, pattern: str
) -> Any:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise InvalidField(f"'{pattern}' is not a regular expression: {error}", field="ip") from error
    literal = re.sub(r"[\\^$]", "", pattern)
    filters = (
        {"fixed_ips": [f"ip_address_substr={literal}"]} if re.fullmatch(r"[0-9a-fA-F.:]+", literal) else {}
    )
    ports = await networks.ports.page(
        tx, ListQuery(filters=filters), project_id=None if request.all_projects else context.project_id
    )
    ids = {
        p.device_id for p in ports if p.device_id and any(wanted.match(a["ip_address"]) for a in p.fixed_ips)
    }
    return sa.cast(sorted(ids), sa.ARRAY(sa.Text))


def _order(sort: tuple[tuple[str, bool], ...]) -> list[tuple[Any, bool]]:
    found: list[tuple[Any, bool]] = []
    for key, down in sort:
        if key not in SORT_KEYS:
            raise BadRequest(f"Invalid sort key {key}.", field="sort_key")
        if SORT_KEYS[key] is not None:
            found.append((SORT_KEYS[key], down))
    down = found[0][1] if found else True
    names = {c.key for c, _ in found}
    return [*found, *((column, down) for column in (_s.created_at, _s.id) if column.key not in names)]


def _direction(column: Any, *, down: bool) -> Any:
    return column.desc().nulls_last() if down else column.asc().nulls_first()


async def _after(tx: Tx, context: RequestContext, request: ListRequest, order: list[tuple[Any, bool]]) -> Any:
    last = await _MARKER.first(tx, id=request.marker)
    if last is None or not (request.all_projects or last.project_id == context.project_id):
        raise BadRequest(f"marker [{request.marker}] not found", field="marker")
    # (a, b) after (x, y): a after x, or a the same and b after y. NULL comes before every value.
    options: list[Any] = []
    same: list[Any] = []
    for column, down in order:
        value = last.flavor["id"] if column is SORT_KEYS["instance_type_id"] else getattr(last, column.key)
        options.append(sa.and_(*same, _beyond(column, value, down=down)))
        same.append(column.is_not_distinct_from(sa.literal(value, column.type)))
    return sa.or_(*options)


def _beyond(column: Any, value: Any, *, down: bool) -> Any:
    if value is None:
        return sa.false() if down else column.is_not(None)
    bound = sa.literal(value, column.type)
    return sa.or_(column < bound, column.is_(None)) if down else column > bound
