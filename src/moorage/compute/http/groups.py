"""/os-server-groups."""

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from moorage.api.endpoint import since, until
from moorage.api.fields import only
from moorage.compute import groups, quotas
from moorage.compute.errors import InvalidField
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall, Number
from moorage.compute.model import ServerGroup

_ALL = "os_compute_api:os-server-groups:index:all_projects"


class Rules(Body, frozen=True):
    max_server_per_host: Number | UnsetType = UNSET


class NewGroup(Body, frozen=True):
    name: str
    policies: Annotated[list[str] | UnsetType, only(until("2.63"))] = UNSET
    policy: Annotated[str | UnsetType, only(since("2.64"))] = UNSET
    rules: Annotated[Rules | UnsetType, only(since("2.64"))] = UNSET


class CreateServerGroup(Body, frozen=True):
    server_group: NewGroup


async def index(call: ComputeCall) -> dict[str, Any]:
    """GET /os-server-groups."""
    everyone = "all_projects" in call.query and call.context.is_admin
    if everyone:
        await call.authorize(_ALL)
    offset = values.number(values.last(call, "offset") or 0, "offset")
    async with call.app.database.read() as tx:
        found = await groups.list_(
            tx,
            project_id=call.context.project_id,
            any_project=everyone,
            offset=offset,
            limit=values.page_limit(call),
        )
    return {"server_groups": [_view(call, g) for g in found]}


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET /os-server-groups/{group_id}."""
    async with call.app.database.read() as tx:
        found = await groups.get(
            tx, call.path["group_id"], project_id=call.context.project_id, any_project=call.context.is_admin
        )
    return {"server_group": _view(call, found)}


async def create(call: ComputeCall) -> dict[str, Any]:
    """POST /os-server-groups."""
    given: NewGroup = call.body.server_group
    name = values.name(given.name, "server_group.name")
    policy, rules = _policy(call, given)
    async with call.app.database.transaction() as tx:
        limits = await quotas.limits(tx, call.app.limits, call.context.project_id)
        made = await groups.create(
            tx,
            project_id=call.context.project_id or "",
            user_id=call.context.user_id or "",
            name=name,
            policy=policy,
            rules=rules,
            limit=limits["server_groups"],
        )
    return {"server_group": _view(call, made)}


def _policy(call: ComputeCall, given: NewGroup) -> tuple[str, dict[str, int]]:
    if call.version < (2, 64):
        policies = values.given(given.policies, [])
        if len(policies) != 1:
            raise InvalidField(
                "server_group.policies holds exactly one policy.", field="server_group.policies"
            )
        return _checked(policies[0], "policies", soft=call.version >= (2, 15)), {}
    policy = _checked(values.given(given.policy), "policy", soft=True)
    if given.rules is UNSET or given.rules.max_server_per_host is UNSET:
        return policy, {}
    if policy != "anti-affinity":
        raise InvalidField("Only anti-affinity policy supports rules.", field="server_group.rules")
    most = values.number(given.rules.max_server_per_host, "server_group.rules.max_server_per_host", 1)
    return policy, {"max_server_per_host": most}


def _checked(policy: str | None, field: str, *, soft: bool) -> str:
    if policy not in groups.POLICIES or (policy.startswith("soft") and not soft):
        raise InvalidField(
            f"Invalid input for server_group.{field}: no such policy.", field=f"server_group.{field}"
        )
    return policy


async def delete(call: ComputeCall) -> None:
    """DELETE /os-server-groups/{group_id}."""
    async with call.app.database.transaction() as tx:
        await groups.delete(
            tx, call.path["group_id"], project_id=call.context.project_id, any_project=call.context.is_admin
        )


def _view(call: ComputeCall, group: ServerGroup) -> dict[str, Any]:
    view: dict[str, Any] = {"id": group.id, "name": group.name, "members": group.members}
    if call.version >= (2, 64):
        view |= {"policy": group.policy, "rules": group.rules}
    else:
        view |= {"policies": [group.policy], "metadata": {}}
    if call.version >= (2, 13):
        view |= {"project_id": group.project_id, "user_id": group.user_id}
    return view
