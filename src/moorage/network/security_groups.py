"""Security groups and their rules.

Every project has a default group, made when the project is first seen here: it lets everything out, and in only what
members of the group send. One unique index on (project) where is_default makes that safe however many ask at once.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.core.ids import is_uuid, new_id
from moorage.network import errors, listing, rows, selects, tables
from moorage.network.changes import SECURITY_GROUP, Changes
from moorage.network.model import SecurityGroup, SecurityGroupRule
from moorage.network.quotas import Quotas
from moorage.network.rules import RuleSpec, checked
from moorage.store.database import Tx
from moorage.store.errors import ForeignKeyViolation, UniqueViolation
from moorage.store.statement import Statement, text_param, texts_param

_g = tables.security_groups
_r = tables.security_group_rules
_SHOW = Statement(
    selects.SECURITY_GROUPS.where(_g.c.id == text_param("id"), rows.seen(_g, _g.c.shared)), row=SecurityGroup
)
_DEFAULT_ID: Statement[Any] = Statement(
    sa.select(_g.c.id).where(_g.c.project_id == text_param("project_id"), _g.c.is_default)
)
_INSERT_DEFAULT: Statement[Any] = Statement(
    postgresql.insert(_g)
    .values(
        id=text_param("id"),
        project_id=text_param("project_id"),
        name="default",
        description="Default security group",
        is_default=sa.true(),
    )
    .on_conflict_do_nothing()
    .returning(_g.c.id)
)
_INSERT: Statement[Any] = Statement(
    sa.insert(_g).values(
        id=text_param("id"),
        project_id=text_param("project_id"),
        name=text_param("name"),
        description=text_param("description"),
        stateful=sa.bindparam("stateful", type_=sa.Boolean),
    )
)
_DELETE: Statement[Any] = Statement(sa.delete(_g).where(_g.c.id == text_param("id")))
_NAMED: Statement[Any] = Statement(
    sa.select(_g.c.id, _g.c.name, _g.c.project_id).where(
        sa.or_(_g.c.id == sa.any_(texts_param("names")), _g.c.name == sa.any_(texts_param("names"))),
        rows.seen(_g, _g.c.shared),
    )
)
_RULE_FIELDS = (
    "id", "security_group_id", "project_id", "direction", "ethertype", "protocol", "port_range_min",
    "port_range_max", "remote_ip_prefix", "remote_group_id", "description",
)  # fmt: skip
_INSERT_RULE: Statement[Any] = Statement(
    sa.insert(_r).values(**{name: sa.bindparam(name, type_=_r.c[name].type) for name in _RULE_FIELDS})
)
_SHOW_RULE = Statement(
    selects.SECURITY_GROUP_RULES.where(_r.c.id == text_param("id"), rows.seen(_r)), row=SecurityGroupRule
)
_DELETE_RULE: Statement[Any] = Statement(sa.delete(_r).where(_r.c.id == text_param("id")))

SORTABLE = ("id", "name", "description", "project_id", "created_at", "updated_at")
RULE_SORTABLE = (*_RULE_FIELDS, "created_at", "updated_at")


class SecurityGroups:
    """The rules of security groups. Every method runs in the caller's transaction."""

    def __init__(self, quotas: Quotas, changes: Changes) -> None:
        self._quotas = quotas
        self._changes = changes

    async def ensure_default(self, tx: Tx, project_id: str) -> str:
        """The id of the project's default group, made if it isn't there."""
        found = await _DEFAULT_ID.scalar(tx, project_id=project_id)
        if found is not None:
            return str(found)
        group_id = await _INSERT_DEFAULT.scalar(tx, id=new_id(), project_id=project_id)
        if group_id is None:  # somebody else's transaction made it and has committed
            return str(await _DEFAULT_ID.scalar(tx, project_id=project_id))
        await self._open_rules(tx, group_id, project_id, members=True)
        await self._changes.record(tx, SECURITY_GROUP, [group_id])
        return str(group_id)

    async def _open_rules(self, tx: Tx, group_id: str, project_id: str, *, members: bool) -> None:
        specs = [RuleSpec(direction="egress", ethertype=family) for family in ("IPv4", "IPv6")]
        if members:
            specs += [
                RuleSpec(direction="ingress", ethertype=family, remote_group_id=group_id)
                for family in ("IPv4", "IPv6")
            ]
        await _INSERT_RULE.many(tx, [_rule_values(group_id, project_id, spec) for spec in specs])

    async def create(
        self, tx: Tx, *, project_id: str, name: str, description: str = "", stateful: bool = True
    ) -> SecurityGroup:
        """Make a group that lets everything out. Raises OverQuota, SecurityGroupDefaultAlreadyExists."""
        if name == "default":
            raise errors.SecurityGroupDefaultAlreadyExists("Default security group already exists.")
        await self.ensure_default(tx, project_id)
        await self._quotas.check(tx, project_id, "security_group")
        group_id = new_id()
        await _INSERT.run(
            tx, id=group_id, project_id=project_id, name=name, description=description, stateful=stateful
        )
        await self._open_rules(tx, group_id, project_id, members=False)
        await self._changes.record(tx, SECURITY_GROUP, [group_id])
        return await _SHOW.one(tx, id=group_id, project_id=None)

    async def show(self, tx: Tx, group_id: str, *, project_id: str | None) -> SecurityGroup:
        """One group that the project sees. Raises SecurityGroupNotFound."""
        found = await _SHOW.first(tx, id=group_id, project_id=project_id)
        if found is None:
            raise not_found(group_id)
        return found

    async def page(self, tx: Tx, query_: listing.ListQuery, *, project_id: str | None) -> list[SecurityGroup]:
        """The groups that the project sees."""
        select = selects.SECURITY_GROUPS
        if project_id is not None:
            select = select.where(sa.or_(_g.c.project_id == project_id, _g.c.shared))
        return await listing.page(tx, select, _g, query_, FILTERS, SORTABLE, SecurityGroup)

    async def update(
        self, tx: Tx, group: SecurityGroup, values: dict[str, Any], revision: int | None = None
    ) -> SecurityGroup:
        """Change attributes of a group. Raises SecurityGroupCannotUpdateDefault for the name of the default one."""
        if group.is_default and values.get("name", group.name) != group.name:
            raise errors.SecurityGroupCannotUpdateDefault("Updating default security group not allowed.")
        await rows.update(tx, _g, group.id, values, revision)
        await self._changes.record(tx, SECURITY_GROUP, [group.id])
        return await _SHOW.one(tx, id=group.id, project_id=None)

    async def delete(self, tx: Tx, group: SecurityGroup, *, by_admin: bool) -> None:
        """Delete a group. Raises SecurityGroupInUse, SecurityGroupCannotRemoveDefault (an admin may)."""
        if group.is_default and not by_admin:
            raise errors.SecurityGroupCannotRemoveDefault(
                "Insufficient rights for removing default security group."
            )
        try:
            await _DELETE.run(tx, id=group.id)
        except ForeignKeyViolation as error:
            raise errors.SecurityGroupInUse(f"Security Group {group.id} in use.") from error
        await self._changes.record(tx, SECURITY_GROUP, [group.id])

    async def resolve(self, tx: Tx, names: Sequence[str], *, project_id: str | None) -> list[str]:
        """The ids of groups given by id or name. Raises SecurityGroupNotFound, SecurityGroupAmbiguous."""
        if not names:
            return []
        known = await _NAMED.all(tx, names=list(names), project_id=project_id)
        return [_the_one(name, known, project_id) for name in dict.fromkeys(names)]

    async def create_rules(
        self, tx: Tx, group: SecurityGroup, specs: Sequence[RuleSpec]
    ) -> list[SecurityGroupRule]:
        """Add rules to a group. Raises InvalidInput, OverQuota, SecurityGroupRuleExists, SecurityGroupNotFound."""
        await self._quotas.check(tx, group.project_id, "security_group_rule", len(specs))
        values = [_rule_values(group.id, group.project_id, checked(spec)) for spec in specs]
        remotes = {str(v["remote_group_id"]) for v in values if v["remote_group_id"]}
        await self.resolve(tx, sorted(remotes), project_id=group.project_id)
        try:
            await _INSERT_RULE.many(tx, values)
        except UniqueViolation as error:
            raise errors.SecurityGroupRuleExists("Security group rule already exists.") from error
        await rows.update(tx, _g, group.id, {})
        await self._changes.record(tx, SECURITY_GROUP, [group.id])
        return [await _SHOW_RULE.one(tx, id=v["id"], project_id=None) for v in values]

    async def show_rule(self, tx: Tx, rule_id: str, *, project_id: str | None) -> SecurityGroupRule:
        """One rule that the project sees. Raises SecurityGroupRuleNotFound."""
        found = await _SHOW_RULE.first(tx, id=rule_id, project_id=project_id)
        if found is None:
            raise errors.SecurityGroupRuleNotFound(f"Security group rule {rule_id} does not exist")
        return found

    async def page_of_rules(
        self, tx: Tx, query_: listing.ListQuery, *, project_id: str | None
    ) -> list[SecurityGroupRule]:
        """The rules of the project."""
        select = selects.SECURITY_GROUP_RULES
        if project_id is not None:
            select = select.where(_r.c.project_id == project_id)
        return await listing.page(tx, select, _r, query_, RULE_FILTERS, RULE_SORTABLE, SecurityGroupRule)

    async def delete_rule(self, tx: Tx, rule: SecurityGroupRule) -> None:
        """Take a rule away; its connections end at once."""
        await _DELETE_RULE.run(tx, id=rule.id)
        await rows.update(tx, _g, rule.security_group_id, {})
        await self._changes.record(tx, SECURITY_GROUP, [rule.security_group_id])


def not_found(name: str) -> errors.SecurityGroupNotFound:
    """The error for a group that isn't seen."""
    return errors.SecurityGroupNotFound(f"Security group {name} does not exist", security_group=name)


def _the_one(name: str, known: Sequence[Any], project_id: str | None) -> str:
    by_id = [row[0] for row in known if row[0] == name]
    if by_id:
        return str(by_id[0])
    if is_uuid(name):
        raise not_found(name)
    named = [row[0] for row in known if row[1] == name and (project_id is None or row[2] == project_id)]
    if not named:
        raise not_found(name)
    if len(named) > 1:
        raise errors.SecurityGroupAmbiguous(f"{len(named)} security groups are named {name}; use an id.")
    return str(named[0])


def _rule_values(group_id: str, project_id: str, spec: RuleSpec) -> dict[str, Any]:
    values = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return {"id": new_id(), "security_group_id": group_id, "project_id": project_id, **values}


FILTERS: dict[str, listing.Condition] = {
    **{
        name: listing.equals(_g.c[name])
        for name in (
            "id",
            "name",
            "description",
            "project_id",
            "stateful",
            "shared",
            "revision_number",
            "is_default",
        )
    },
    **listing.tags(_g.c.tags),
    "tenant_id": listing.equals(_g.c.project_id),
}
RULE_FILTERS: dict[str, listing.Condition] = {
    **{name: listing.equals(_r.c[name]) for name in (*_RULE_FIELDS, "revision_number")},
    "tenant_id": listing.equals(_r.c.project_id),
}
