"""What the handlers share: who sees what, lists, attribute policies, revisions.

Neutron's ways that a reader may not expect: attributes that a rule hides are left out of the answer; a write of an
attribute that has a rule of its own needs that rule too, unless a create gives just its default; ``fields`` picks
attributes of the answer; every other query parameter is a filter, and one that a resource does not have is refused.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa

from moorage.api import Call, Query, Reply, names
from moorage.api.endpoint import Header
from moorage.api.paging import limit_of, next_link
from moorage.network import errors, listing, rows
from moorage.network.service import NetworkService
from moorage.store.database import Database, Tx

CONTROLS = ("fields", "sort_key", "sort_dir", "limit", "marker", "page_reverse")

FIELDS = names("fields")
IF_MATCH = (
    Header(
        "If-Match",
        r"^revision_number=[0-9]+$",
        "Change it only if this is still its revision_number; 412 if it is not.",
        refused=412,
    ),
)


class HostAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A host as the agents list shows it."""

    id: str
    host: str
    datapath: str
    alive: bool
    admin_state_up: bool
    physical_networks: Sequence[str]
    created_at: str
    heartbeat_at: str


Agents = Callable[[Tx], Awaitable[list[HostAgent]]]


class NetworkApp:
    """What handlers find as ``call.app``. ``agents`` lists the hosts for the agents resource."""

    def __init__(self, database: Database, service: NetworkService, agents: Agents | None = None) -> None:
        self.database = database
        self.service = service
        self.agents = agents


NetworkCall = Call[NetworkApp]


class Face(msgspec.Struct, frozen=True):
    """One resource in the API: its names, how a row is shown, and attributes that a rule may hide."""

    name: str
    plural: str
    view: Callable[[Any], dict[str, Any]]
    hidden: tuple[str, ...] = ()

    def show(self, call: NetworkCall, row: Any, status: int | None = None) -> Reply:
        """One row as an answer."""
        return Reply({self.name: self.views(call, [row])[0]}, status=status)

    def hidden_from(self, call: NetworkCall) -> set[str]:
        """Attributes that the caller may not read."""
        return {a for a in self.hidden if not call.allowed(f"get_{self.name}:{a}")}

    def views(self, call: NetworkCall, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """Rows as the caller may see them, with the fields asked for."""
        out = self.hidden_from(call)
        fields = set(call.query.get("fields", ())) if isinstance(call.query, dict) else set()
        shown = []
        for row in rows:
            view = self.view(row)
            shown.append({k: v for k, v in view.items() if k not in out and (not fields or k in fields)})
        return shown

    def created(self, call: NetworkCall, rows: Sequence[Any], *, bulk: bool) -> Reply:
        """What was made: one, or the list of a bulk create."""
        views = self.views(call, rows)
        return Reply({self.plural: views} if bulk else {self.name: views[0]}, status=201)

    def page(self, call: NetworkCall, rows: Sequence[Any], asked: listing.ListQuery) -> Reply:
        """A list, with links to the pages around it where one was asked for."""
        body: dict[str, Any] = {self.plural: self.views(call, rows)}
        if asked.limit is not None and rows:
            url = call.url(f"/v2.0/{self.plural.replace('_', '-')}")
            kept = {k: v for k, v in call.query.items() if k != "page_reverse"}
            full = len(rows) == asked.limit
            links = []
            if full or asked.page_reverse:
                links.append(next_link(url, kept, rows[-1].id))
            if full or not asked.page_reverse:
                before = next_link(url, {**kept, "page_reverse": "True"}, rows[0].id)
                links.append({**before, "rel": "previous"})
            body[f"{self.plural}_links"] = links
        return Reply(body)


def filters(conditions: Iterable[str]) -> Query:
    """The parameters of a list; others are refused, as by Neutron's filter validation."""
    return Query(dict.fromkeys((*conditions, *CONTROLS), (0, 0)), strict=(0, 0))


class Page(Protocol):
    """A service's list: rows of one page."""

    async def __call__(self, tx: Tx, asked: listing.ListQuery, /, *, project_id: str | None) -> Sequence[Any]:
        """Rows that the project sees."""
        ...


class Get(Protocol):
    """A service's look at one thing; raises its NotFound."""

    async def __call__(self, tx: Tx, identifier: str, /, *, project_id: str | None) -> Any:
        """The row, where the project sees it."""
        ...


Make = Callable[[NetworkCall, Tx, Any], Awaitable[Any]]
"""Makes one item of a create, after asking whether the caller may."""


async def listed(call: NetworkCall, face: Face, page: Page, *, default_group: bool = False) -> Reply:
    """A list. ``default_group``: the caller's project gets its default security group first, as upstream's does."""
    asked = list_query(call)
    if face.hidden_from(call) & set(asked.filters):
        return face.page(call, [], asked)  # what one may not read, one does not find out by guesses either
    database = call.app.database
    async with database.transaction() if default_group else database.read() as tx:
        if default_group and call.context.project_id is not None:
            await call.app.service.security_groups.ensure_default(tx, call.context.project_id)
        rows = await page(tx, asked, project_id=seen_by(call))
    return face.page(call, rows, asked)


async def shown(call: NetworkCall, face: Face, get: Get) -> Reply:
    """One thing by its id."""
    async with call.app.database.read() as tx:
        row = await get(tx, call.path["id"], project_id=seen_by(call))
    return face.show(call, row)


async def created(call: NetworkCall, face: Face, make: Make) -> Reply:
    """One, or all of a bulk create, in one transaction."""
    items, bulk = items_of(getattr(call.body, face.name), getattr(call.body, face.plural), face.name)
    async with call.app.database.transaction() as tx:
        made = [await make(call, tx, item) for item in items]
    return face.created(call, made, bulk=bulk)


def seen_by(call: NetworkCall) -> str | None:
    """Whose things the caller sees; None for everybody's. A token without project sees nobody's."""
    return None if call.context.is_admin or call.context.is_service else call.context.project_id or ""


def list_query(call: NetworkCall) -> listing.ListQuery:
    """The list query of a request. Raises InvalidInput for sort directions that don't fit."""
    given: dict[str, list[str]] = call.query
    keys, directions = given.get("sort_key", []), given.get("sort_dir", [])
    if len(directions) not in (0, len(keys)) or not set(directions) <= {"asc", "desc"}:
        raise errors.InvalidInput("every sort_key needs a sort_dir of asc or desc", field="sort_dir")
    descending = [d == "desc" for d in directions] or [False] * len(keys)
    return listing.ListQuery(
        filters={k: v for k, v in given.items() if k not in CONTROLS},
        sort=tuple(zip(keys, descending, strict=True)),
        limit=limit_of(given["limit"][-1]) if "limit" in given else None,
        marker=given["marker"][-1] if given.get("marker", [""])[-1] else None,
        page_reverse=given.get("page_reverse", [""])[-1].lower() == "true",
    )


def given_of(body: msgspec.Struct) -> dict[str, Any]:
    """What a body sets, by the API's names."""
    names = zip(body.__struct_fields__, body.__struct_encode_fields__, strict=True)
    values = ((api, getattr(body, field)) for field, api in names)
    return {api: value for api, value in values if value is not msgspec.UNSET}


def fields_of(body: msgspec.Struct, *leave_out: str) -> dict[str, Any]:
    """What a body sets, by the model's names."""
    values = ((field, getattr(body, field)) for field in body.__struct_fields__)
    return {f: v for f, v in values if v is not msgspec.UNSET and f not in leave_out}


async def check_attributes(
    call: NetworkCall, action: str, body: msgspec.Struct, target: Mapping[str, Any]
) -> None:
    """Check the rules of attributes that the body sets. Raises Forbidden."""
    create = action.startswith("create_")
    for name, value in given_of(body).items():
        if create and not value:
            continue  # the default: nothing is claimed
        rule = f"{action}:{name}"
        if rule in call.policies.names:
            await call.authorize(rule, target)


def items_of(one: Any, many: Any, name: str) -> tuple[list[Any], bool]:
    """The items of a create, and whether it is a bulk one. Raises InvalidInput when there is none."""
    if one is not msgspec.UNSET:
        return [one], False
    if many is not msgspec.UNSET and many:
        return list(many), True
    raise errors.InvalidInput(f"Unable to find '{name}' in request body", field=name)


async def project_of(call: NetworkCall, item: Any, action: str) -> str:
    """The project that a new resource belongs to; another than the caller's needs the policy for it."""
    own = call.context.project_id
    asked = [p for p in (item.project_id, item.tenant_id) if p is not msgspec.UNSET]
    if not asked or asked[0] == own:
        if own is None:
            raise errors.InvalidInput("the token has no project; give a project_id", field="project_id")
        return own
    await call.authorize(action, {"project_id": asked[0], "tenant_id": asked[0]})
    return str(asked[0])


def target_of(row: Any) -> dict[str, Any]:
    """The policy target of a resource."""
    return {"project_id": row.project_id, "tenant_id": row.project_id}


def revision_of(call: NetworkCall) -> int | None:
    """``If-Match: revision_number=N``. Raises InvalidInput for any other form."""
    text = call.headers.get("if-match")
    if text is None:
        return None
    name, _, number = text.partition("=")
    found = listing.whole(number.strip())
    if name.strip() != "revision_number" or found is None:
        raise errors.InvalidInput("If-Match has the form revision_number=N", field="If-Match")
    return found


async def match_revision(call: NetworkCall, tx: Tx, table: sa.Table, row: Any) -> None:
    """Hold a row that is to be deleted at the revision the caller has read, if it names one.

    Raises RevisionNumberConstraintFailed.
    """
    revision = revision_of(call)
    if revision is not None:
        await rows.update(tx, table, row.id, {}, revision)
