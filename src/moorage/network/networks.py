"""Networks: create, show, list, update, delete."""

import random
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.core.ids import new_id
from moorage.network import errors, listing, rows, segmentation, selects, tables, values
from moorage.network.changes import NETWORK, PORT, SUBNET, Changes
from moorage.network.model import Network
from moorage.network.quotas import Quotas
from moorage.store.database import Tx
from moorage.store.errors import ForeignKeyViolation
from moorage.store.statement import Statement, text_param, texts_param

_n = tables.networks
_visible = rows.seen(_n, _n.c.shared, _n.c.external)
_SHOW = Statement(selects.NETWORKS.where(_n.c.id == text_param("id"), _visible), row=Network)
_NAMED = Statement(selects.NETWORKS.where(_n.c.id == sa.any_(texts_param("ids")), _visible), row=Network)
_DELETE: Statement[Any] = Statement(sa.delete(_n).where(_n.c.id == text_param("id")))
_TOUCH: Statement[Any] = Statement(
    sa.update(_n)
    .where(_n.c.id == text_param("id"))
    .values(revision_number=_n.c.revision_number + 1, updated_at=sa.func.now())
)
_FIELDS = (
    "id",
    "project_id",
    "name",
    "description",
    "admin_state_up",
    "shared",
    "external",
    "is_default",
    "mtu",
)
_INSERT: Statement[Any] = Statement(
    sa.insert(_n).values(
        **{
            name: sa.bindparam(name, type_=_n.c[name].type)
            for name in (*_FIELDS, "port_security_enabled", "dns_domain")
        }
    )
)
_FOREIGN_PORTS: Statement[Any] = Statement(
    sa.select(sa.func.count())
    .select_from(tables.ports)
    .where(tables.ports.c.network_id == text_param("id"), tables.ports.c.project_id != text_param("owner"))
)
_PORT_IDS: Statement[Any] = Statement(
    sa.select(tables.ports.c.id).where(tables.ports.c.network_id == text_param("id"))
)

SORTABLE = (
    "id",
    "name",
    "project_id",
    "admin_state_up",
    "shared",
    "mtu",
    "created_at",
    "updated_at",
    "description",
)


class NetworkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a creator says of a network."""

    name: str = ""
    description: str = ""
    admin_state_up: bool = True
    shared: bool = False
    external: bool = False
    is_default: bool = False
    port_security_enabled: bool = True
    mtu: int | None = None
    dns_domain: str = ""
    segment: segmentation.SegmentSpec = segmentation.SegmentSpec()


class Networks:
    """The rules of networks. Every method runs in the caller's transaction."""

    def __init__(
        self, rules: segmentation.SegmentRules, quotas: Quotas, changes: Changes, chance: random.Random
    ) -> None:
        self._rules = rules
        self._quotas = quotas
        self._changes = changes
        self._chance = chance

    async def create(self, tx: Tx, *, project_id: str, spec: NetworkSpec) -> Network:
        """Make a network with one segment. Raises InvalidInput, OverQuota, and segmentation's conflicts."""
        await self._quotas.check(tx, project_id, "network")
        segment = self._rules.resolve(spec.segment)
        largest = self._rules.largest_mtu(str(segment.network_type))
        if spec.mtu is not None and not 68 <= spec.mtu <= largest:
            raise errors.InvalidInput(f"the MTU {spec.mtu} is not within 68 and {largest}", field="mtu")
        network_id = new_id()
        columns = msgspec.structs.asdict(spec)
        columns.update(
            id=network_id,
            project_id=project_id,
            mtu=spec.mtu or largest,
            dns_domain=values.dns_domain(spec.dns_domain),
        )
        await _INSERT.run(tx, **columns)
        await segmentation.create(tx, self._rules, network_id, segment, self._chance)
        await self._changes.record(tx, NETWORK, [network_id])
        return await _SHOW.one(tx, id=network_id, project_id=None)

    async def show(self, tx: Tx, network_id: str, *, project_id: str | None) -> Network:
        """One network that the project sees: its own, a shared or an external one. Raises NetworkNotFound."""
        found = await _SHOW.first(tx, id=network_id, project_id=project_id)
        if found is None:
            raise not_found(network_id)
        return found

    async def page(self, tx: Tx, query_: listing.ListQuery, *, project_id: str | None) -> list[Network]:
        """The networks that the project sees."""
        select = selects.NETWORKS
        if project_id is not None:
            select = select.where(sa.or_(_n.c.project_id == project_id, _n.c.shared, _n.c.external))
        return await listing.page(tx, select, _n, query_, FILTERS, SORTABLE, Network)

    async def update(
        self, tx: Tx, network: Network, given: dict[str, Any], revision: int | None = None
    ) -> Network:
        """Change attributes of a network that ``show`` gave.

        Raises InvalidSharedSetting when it stops being shared while other projects have ports on it.
        """
        if given.get("shared") is False and network.shared:
            foreign = await _FOREIGN_PORTS.scalar(tx, id=network.id, owner=network.project_id)
            if foreign:
                raise errors.InvalidSharedSetting(
                    f"Unable to reconfigure sharing settings for network {network.name}: {foreign} ports of other "
                    "projects are on it."
                )
        if "dns_domain" in given:
            given = {**given, "dns_domain": values.dns_domain(given["dns_domain"])}
        largest = self._rules.largest_mtu(network.segments[0]["network_type"])
        if "mtu" in given and not 68 <= given["mtu"] <= largest:
            raise errors.InvalidInput(f"the MTU is not within 68 and {largest}", field="mtu")
        await rows.update(tx, _n, network.id, given, revision)
        await self._changes.record(tx, NETWORK, [network.id])
        if given.keys() & {"mtu", "admin_state_up", "port_security_enabled", "dns_domain"}:
            await self._changes.record(tx, PORT, [r[0] for r in await _PORT_IDS.all(tx, id=network.id)])
        return await _SHOW.one(tx, id=network.id, project_id=None)

    async def delete(self, tx: Tx, network: Network) -> None:
        """Delete a network and its subnets. Raises NetworkInUse while it has ports."""
        try:
            await _DELETE.run(tx, id=network.id)
        except ForeignKeyViolation as error:
            raise errors.NetworkInUse(
                f"Unable to complete operation on network {network.id}. There are one or more ports still in use on "
                "the network."
            ) from error
        await self._changes.record(tx, NETWORK, [network.id])
        await self._changes.record(tx, SUBNET, network.subnet_ids)


async def named(tx: Tx, ids: list[str], *, project_id: str | None) -> dict[str, Network]:
    """Those of the networks that the project sees, by id."""
    return {n.id: n for n in await _NAMED.all(tx, ids=ids, project_id=project_id)}


async def touch(tx: Tx, network_id: str) -> None:
    """A subnet of the network came or went: its revision counts up."""
    await _TOUCH.run(tx, id=network_id)


def not_found(network_id: str) -> errors.NetworkNotFound:
    """The error for a network that isn't seen."""
    return errors.NetworkNotFound(f"Network {network_id} could not be found.", network_id=network_id)


def _segment_has(column: Any) -> listing.Condition:
    def condition(values: list[str]) -> Any:
        having = sa.select(tables.segments.c.network_id).where(sa.cast(column, sa.Text).in_(values))
        return _n.c.id.in_(having)

    return condition


FILTERS: dict[str, listing.Condition] = {
    **{name: listing.equals(_n.c[name]) for name in (*_FIELDS, "revision_number")},
    **listing.tags(_n.c.tags),
    "tenant_id": listing.equals(_n.c.project_id),
    "status": lambda values: sa.true() if "ACTIVE" in values else sa.false(),
    "router:external": listing.equals(_n.c.external),
    "provider:network_type": _segment_has(tables.segments.c.network_type),
    "provider:physical_network": _segment_has(tables.segments.c.physical_network),
    "provider:segmentation_id": _segment_has(tables.segments.c.segmentation_id),
}
