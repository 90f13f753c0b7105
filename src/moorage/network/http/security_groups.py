"""/v2.0/security-groups and /v2.0/security-group-rules."""

import msgspec

from moorage.api import Reply
from moorage.network import tables
from moorage.network.http import bodies, views
from moorage.network.http.common import (
    Face,
    NetworkCall,
    created,
    fields_of,
    items_of,
    listed,
    match_revision,
    project_of,
    revision_of,
    seen_by,
    shown,
    target_of,
)
from moorage.network.model import SecurityGroup
from moorage.network.rules import RuleSpec
from moorage.store.database import Tx

FACE = Face("security_group", "security_groups", views.security_group)
RULES = Face("security_group_rule", "security_group_rules", views.security_group_rule)
_FAMILIES = {"ipv4": "IPv4", "ipv6": "IPv6"}


async def index(call: NetworkCall) -> Reply:
    return await listed(call, FACE, call.app.service.security_groups.page, default_group=True)


async def _make(call: NetworkCall, tx: Tx, item: bodies.NewGroup) -> SecurityGroup:
    project_id = await project_of(call, item, "create_security_group")
    values = {"name": "", **fields_of(item, "project_id", "tenant_id")}
    return await call.app.service.security_groups.create(tx, project_id=project_id, **values)


async def create(call: NetworkCall) -> Reply:
    return await created(call, FACE, _make)


async def show(call: NetworkCall) -> Reply:
    return await shown(call, FACE, call.app.service.security_groups.show)


async def update(call: NetworkCall) -> Reply:
    values = fields_of(call.body.security_group)
    async with call.app.database.transaction() as tx:
        row = await call.app.service.security_groups.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("update_security_group", target_of(row))
        row = await call.app.service.security_groups.update(tx, row, values, revision_of(call))
    return FACE.show(call, row)


async def delete(call: NetworkCall) -> None:
    async with call.app.database.transaction() as tx:
        row = await call.app.service.security_groups.show(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("delete_security_group", target_of(row))
        await match_revision(call, tx, tables.security_groups, row)
        await call.app.service.security_groups.delete(tx, row, by_admin=call.context.is_admin)


async def rule_index(call: NetworkCall) -> Reply:
    return await listed(call, RULES, call.app.service.security_groups.page_of_rules, default_group=True)


def _rule(item: bodies.NewRule) -> RuleSpec:
    leave_out = ("project_id", "tenant_id", "security_group_id", "remote_address_group_id")
    values = fields_of(item, *leave_out)
    if isinstance(values.get("protocol"), int):
        values["protocol"] = str(values["protocol"])
    family = values.get("ethertype", "IPv4")
    values["ethertype"] = _FAMILIES.get(str(family).lower(), family)
    return msgspec.convert(values, RuleSpec)


async def create_rules(call: NetworkCall) -> Reply:
    items, bulk = items_of(
        call.body.security_group_rule, call.body.security_group_rules, "security_group_rule"
    )
    groups: dict[str, list[RuleSpec]] = {}
    for item in items:
        groups.setdefault(item.security_group_id, []).append(_rule(item))
    made = []
    async with call.app.database.transaction() as tx:
        for group_id, specs in groups.items():
            group = await call.app.service.security_groups.show(tx, group_id, project_id=seen_by(call))
            await call.authorize("create_security_group_rule", target_of(group))
            made += await call.app.service.security_groups.create_rules(tx, group, specs)
    return RULES.created(call, made, bulk=bulk)


async def show_rule(call: NetworkCall) -> Reply:
    return await shown(call, RULES, call.app.service.security_groups.show_rule)


async def delete_rule(call: NetworkCall) -> None:
    async with call.app.database.transaction() as tx:
        row = await call.app.service.security_groups.show_rule(tx, call.path["id"], project_id=seen_by(call))
        await call.authorize("delete_security_group_rule", target_of(row))
        await match_revision(call, tx, tables.security_group_rules, row)
        await call.app.service.security_groups.delete_rule(tx, row)
