"""Flavors: sizes of servers, their extra specs, and who may use the private ones."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from moorage.compute.errors import FlavorAccessExists, FlavorExists, FlavorNotFound
from moorage.compute.model import Flavor
from moorage.compute.tables import flavor_access, flavors
from moorage.core.errors import BadRequest, NotFound
from moorage.store.database import Tx
from moorage.store.errors import ForeignKeyViolation, UniqueViolation
from moorage.store.schema import Json
from moorage.store.statement import Statement, query, text_param

SORT_KEYS: Mapping[str, Any] = {
    "created_at": flavors.c.created_at,
    "description": flavors.c.description,
    "disabled": flavors.c.id,
    "ephemeral_gb": flavors.c.ephemeral_gb,
    "flavorid": flavors.c.id,
    "id": flavors.c.id,
    "is_public": flavors.c.is_public,
    "memory_mb": flavors.c.memory_mb,
    "name": flavors.c.name,
    "root_gb": flavors.c.root_gb,
    "rxtx_factor": flavors.c.rxtx_factor,
    "swap": flavors.c.swap_mb,
    "updated_at": flavors.c.updated_at,
    "vcpu_weight": flavors.c.vcpus,
    "vcpus": flavors.c.vcpus,
}


def _usable(project: Any) -> Any:
    shared = sa.select(flavor_access.c.flavor_id).where(
        flavor_access.c.flavor_id == flavors.c.id, flavor_access.c.project_id == project
    )
    return sa.or_(flavors.c.is_public, sa.exists(shared))


_ONE = Statement(
    sa.select(flavors).where(
        flavors.c.id == text_param("id"),
        sa.or_(sa.bindparam("any", type_=sa.Boolean), _usable(text_param("project_id"))),
    ),
    row=Flavor,
)
_NUMBERS = ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap_mb")
_ADD = Statement(
    sa.insert(flavors)
    .values(
        id=text_param("id"),
        name=text_param("name"),
        **{n: sa.bindparam(n, type_=sa.Integer) for n in _NUMBERS},
        rxtx_factor=sa.bindparam("rxtx_factor", type_=sa.Float),
        is_public=sa.bindparam("is_public", type_=sa.Boolean),
        description=text_param("description"),
        extra_specs=sa.bindparam("extra_specs", type_=Json),
    )
    .returning(flavors),
    row=Flavor,
)
_DESCRIBE = Statement(
    sa.update(flavors)
    .where(flavors.c.id == text_param("id"))
    .values(description=text_param("description"), updated_at=sa.func.now())
    .returning(flavors),
    row=Flavor,
)
_DELETE = Statement(sa.delete(flavors).where(flavors.c.id == text_param("id")))
_SPECS = Statement(
    sa.update(flavors)
    .where(flavors.c.id == text_param("id"))
    .values(
        extra_specs=flavors.c.extra_specs.op("||")(sa.bindparam("specs", type_=Json)),
        updated_at=sa.func.now(),
    )
    .returning(flavors),
    row=Flavor,
)
_DROP_SPEC = Statement(
    sa.update(flavors)
    .where(flavors.c.id == text_param("id"), flavors.c.extra_specs.has_key(text_param("key")))
    .values(extra_specs=flavors.c.extra_specs.op("-")(text_param("key")), updated_at=sa.func.now())
)
_GRANT = Statement(
    sa.insert(flavor_access).values(flavor_id=text_param("id"), project_id=text_param("project_id"))
)
_REVOKE = Statement(
    sa.delete(flavor_access).where(
        flavor_access.c.flavor_id == text_param("id"), flavor_access.c.project_id == text_param("project_id")
    )
)
_ACCESS = Statement(
    sa.select(flavor_access.c.project_id)
    .where(flavor_access.c.flavor_id == text_param("id"))
    .order_by(flavor_access.c.project_id)
)


async def get(tx: Tx, flavor_id: str, *, project_id: str | None, any_project: bool = False) -> Flavor:
    """A flavor that the project may use; raises FlavorNotFound."""
    found = await _ONE.first(tx, id=flavor_id, project_id=project_id, any=any_project)
    if found is None:
        raise FlavorNotFound(f"Flavor {flavor_id} could not be found.")
    return found


async def create(tx: Tx, **values: Any) -> Flavor:
    """Make one; the values are the columns. Raises FlavorExists."""
    try:
        return await _ADD.one(tx, **values)
    except UniqueViolation as error:
        what = f"name {values['name']}" if "name" in error.constraint else f"ID {values['id']}"
        raise FlavorExists(f"Flavor with {what} already exists.") from error


async def describe(tx: Tx, flavor_id: str, description: str | None) -> Flavor:
    """Change its description; raises FlavorNotFound."""
    found = await _DESCRIBE.first(tx, id=flavor_id, description=description)
    if found is None:
        raise FlavorNotFound(f"Flavor {flavor_id} could not be found.")
    return found


async def delete(tx: Tx, flavor_id: str) -> None:
    """Delete it; servers keep their snapshot. Raises FlavorNotFound."""
    if not await _DELETE.run(tx, id=flavor_id):
        raise FlavorNotFound(f"Flavor {flavor_id} could not be found.")


async def list_(
    tx: Tx,
    *,
    project_id: str | None,
    is_public: bool | None,
    any_project: bool,
    min_ram: int = 0,
    min_disk: int = 0,
    sort_key: str = "flavorid",
    descending: bool = False,
    limit: int,
    marker: str | None,
) -> list[Flavor]:
    """Flavors that the project may use; an admin (``any_project``) sees all by ``is_public`` None.

    Raises BadRequest for a marker that they do not see.
    """
    select = sa.select(flavors).where(flavors.c.memory_mb >= min_ram, flavors.c.root_gb >= min_disk)
    if is_public is not None:
        select = select.where(flavors.c.is_public == is_public)
    if not any_project:
        select = select.where(_usable(sa.bindparam("project", project_id, type_=sa.Text)))
    column = SORT_KEYS[sort_key]
    if marker is not None:
        last = await _ONE.first(tx, id=marker, project_id=project_id, any=any_project)
        if last is None:
            raise BadRequest(f"marker {marker} could not be found", field="marker")
        select = select.where(_after(last, column, descending=descending))
    order = (
        [column.desc().nulls_last(), flavors.c.id.desc()]
        if descending
        else [column.nulls_first(), flavors.c.id]
    )
    return await query(tx, select.order_by(*order).limit(limit), Flavor)


def _after(last: Flavor, column: Any, *, descending: bool) -> Any:
    at = getattr(last, column.key)
    if at is None:
        return sa.false() if descending else sa.or_(column.is_not(None), flavors.c.id > last.id)
    row = sa.tuple_(column, flavors.c.id)
    value = sa.tuple_(sa.literal(at, column.type), sa.literal(last.id, sa.Text))
    return row < value if descending else row > value


async def add_specs(tx: Tx, flavor_id: str, specs: Mapping[str, str]) -> Flavor:
    """Set extra specs, keeping others; raises FlavorNotFound."""
    found = await _SPECS.first(tx, id=flavor_id, specs=dict(specs))
    if found is None:
        raise FlavorNotFound(f"Flavor {flavor_id} could not be found.")
    return found


async def drop_spec(tx: Tx, flavor_id: str, key: str) -> None:
    """Forget one extra spec; raises NotFound."""
    if not await _DROP_SPEC.run(tx, id=flavor_id, key=key):
        raise NotFound(
            f"Flavor {flavor_id} has no extra specs with key {key}.", code="compute.extra_spec_not_found"
        )


async def access(tx: Tx, flavor_id: str) -> list[str]:
    """The projects that a private flavor is shared with."""
    return [row[0] for row in await _ACCESS.all(tx, id=flavor_id)]


async def grant(tx: Tx, flavor_id: str, project_id: str) -> None:
    """Share it; raises FlavorAccessExists, FlavorNotFound."""
    try:
        await _GRANT.run(tx, id=flavor_id, project_id=project_id)
    except UniqueViolation as error:
        raise FlavorAccessExists(
            f"Flavor access already exists for flavor {flavor_id} and project {project_id} combination."
        ) from error
    except ForeignKeyViolation as error:
        raise FlavorNotFound(f"Flavor {flavor_id} could not be found.") from error


async def revoke(tx: Tx, flavor_id: str, project_id: str) -> None:
    """Take the sharing back; raises NotFound."""
    if not await _REVOKE.run(tx, id=flavor_id, project_id=project_id):
        raise NotFound(f"Flavor access not found for {flavor_id} / {project_id} combination.")
