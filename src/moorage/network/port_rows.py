"""Making ports: one statement for any number of rows with their security groups and addresses.

MAC addresses are random below the operator's prefix; the unique constraint (network, MAC) tells a collision, and the
port that lost gets another one.
"""

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.core.ids import new_id
from moorage.network import errors, ipam, quotas, rows, selects, tables
from moorage.network.model import AddressRequest
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param

_n, _p, _g = tables.networks, tables.ports, tables.security_groups


class NetworkContext(msgspec.Struct, frozen=True):
    """What making a port needs to know of its network, in one row."""

    id: str
    project_id: str
    shared: bool
    external: bool
    port_security_enabled: bool
    mtu: int
    segments: list[dict[str, Any]]
    subnets: list[dict[str, Any]]


class Ground(msgspec.Struct, frozen=True):
    """What making ports needs to know: their networks by id; the default group of the project that is to own them
    (None: not made yet), its limit of ports and, counted up to there, how many it has.
    """

    networks: dict[str, NetworkContext]
    default_group: str | None
    limit: int
    used: int

    def check_quota(self, project_id: str, adding: int) -> None:
        """Raises OverQuota."""
        quotas.check("port", project_id, limit=self.limit, used=self.used, adding=adding)


_context = (
    _n.c.id,
    _n.c.project_id,
    _n.c.shared,
    _n.c.external,
    _n.c.port_security_enabled,
    _n.c.mtu,
    selects.network_segments(_n.c.id).label("segments"),
    selects.network_subnets(_n.c.id).label("subnets"),
)
_wanted = sa.and_(_n.c.id == sa.any_(texts_param("ids")), rows.seen(_n, _n.c.shared, _n.c.external))
_CONTEXT = Statement(sa.select(*_context).where(_wanted), row=NetworkContext)
_default_group = (
    sa.select(_g.c.id).where(_g.c.project_id == text_param("owner"), _g.c.is_default).scalar_subquery()
)
# SELECT the owner's default group, limit and use, each network FROM (SELECT 1) LEFT JOIN networks: never without a row
_one = sa.select(sa.literal_column("1")).subquery("one")
_GROUND: Statement[Any] = Statement(
    sa.select(
        _default_group, quotas.limit_of("port", "owner"), quotas.used_of("port", "owner"), *_context
    ).select_from(_one.outerjoin(_n, _wanted))
)


class PortDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A port to be made. ``mac``: None lets the service choose; ``fixed_ips``: None too, [] means none."""

    network: NetworkContext
    project_id: str
    security_groups: list[str] = []
    mac: str | None = None
    fixed_ips: list[dict[str, str]] | None = None
    name: str = ""
    description: str = ""
    admin_state_up: bool = True
    device_id: str = ""
    device_owner: str = ""
    device_index: int = 0
    device_tag: str | None = None
    created_for_device: bool = False
    port_security_enabled: bool = True
    allowed_address_pairs: list[dict[str, str]] = []
    extra_dhcp_opts: list[dict[str, Any]] = []
    dns_name: str = ""
    ip_allocation: str = "immediate"
    vnic_type: str = "normal"
    profile: dict[str, Any] = {}


class MadePort(msgspec.Struct, frozen=True, kw_only=True):
    """A port that was made: what the database and the allocation decided."""

    id: str
    mac: str
    created_at: datetime
    fixed_ips: list[dict[str, str]]
    draft: PortDraft


_FIELDS = (
    "project_id", "name", "description", "admin_state_up", "device_id", "device_owner", "device_index", "device_tag",
    "created_for_device", "port_security_enabled", "allowed_address_pairs", "extra_dhcp_opts", "dns_name",
    "ip_allocation", "vnic_type", "profile",
)  # fmt: skip
_COLUMNS = ("id", "network_id", "mac_address", *_FIELDS)
# WITH made AS (INSERT INTO ports SELECT .. FROM jsonb_to_recordset(rows) ON CONFLICT DO NOTHING RETURNING id, created_at),
#      linked AS (INSERT INTO port_security_groups SELECT made.id, each group of its row)
#      taken AS (INSERT INTO port_fixed_ips: see ``ipam``)
# SELECT id, created_at, subnet_id, address FROM made LEFT JOIN taken: a row for each address
_given = (
    sa.func.jsonb_to_recordset(sa.bindparam("rows", type_=postgresql.JSONB))
    .table_valued(
        *(sa.column(name, _p.c[name].type) for name in _COLUMNS),
        sa.column("security_groups", postgresql.JSONB),
    )
    .render_derived(name="given", with_types=True)
)
_made = (
    postgresql.insert(_p)
    .from_select(list(_COLUMNS), sa.select(*(_given.c[name] for name in _COLUMNS)))
    .on_conflict_do_nothing(index_elements=["network_id", "mac_address"])
    .returning(_p.c.id, _p.c.created_at)
    .cte("made")
)
_group = (
    sa.func.jsonb_array_elements_text(_given.c.security_groups)
    .table_valued("value")
    .render_derived(name="each_group")
    .lateral()
)
_linked = (
    sa.insert(tables.port_security_groups)
    .from_select(
        ["port_id", "security_group_id"],
        sa.select(_made.c.id, _group.c.value).select_from(
            _made.join(_given, _given.c.id == _made.c.id).join(_group, sa.true())
        ),
    )
    .cte("linked")
)
_taken = ipam.taking(_made.c.id).cte("taken")
_INSERT: Statement[Any] = Statement(
    sa.select(_made.c.id, _made.c.created_at, _taken.c.subnet_id, _taken.c.address)
    .select_from(_made.outerjoin(_taken, _taken.c.port_id == _made.c.id))
    .add_cte(_linked)
)


async def contexts(tx: Tx, ids: Sequence[str], *, project_id: str | None) -> dict[str, NetworkContext]:
    """The networks, of those given, that the project sees, by id. One statement."""
    return {c.id: c for c in await _CONTEXT.all(tx, ids=list(ids), project_id=project_id)}


async def ground(
    tx: Tx, quota: quotas.Quotas, ids: Sequence[str], *, seen_by: str | None, owner: str
) -> Ground:
    """See Ground; of the networks, those that the project ``seen_by`` sees (None: every). One statement."""
    found = await _GROUND.all(
        tx, ids=list(ids), project_id=seen_by, owner=owner, default_limit=quota.defaults["port"]
    )
    networks = {row[3]: NetworkContext(*row[3:]) for row in found if row[3] is not None}
    return Ground(networks, *found[0][:3])


class PortMaker:
    """Makes ports. ``mac_prefix`` is three octets, ``fa:16:3e``."""

    def __init__(self, *, mac_prefix: str, chance: random.Random) -> None:
        self._prefix = mac_prefix.lower()
        self._chance = chance

    def random_mac(self) -> str:
        """A MAC address below the prefix."""
        tail = self._chance.getrandbits(24)
        return f"{self._prefix}:{tail >> 16:02x}:{tail >> 8 & 255:02x}:{tail & 255:02x}"

    async def make(self, tx: Tx, drafts: Sequence[PortDraft]) -> list[MadePort]:
        """Insert the ports and give them addresses: one statement, unless something was taken.

        Raises MacAddressInUse, MacAddressGenerationFailure, and what ``ipam`` raises.
        """
        made: dict[int, MadePort] = {}
        for _ in range(8):
            missing = [i for i in range(len(drafts)) if i not in made]
            if not missing:
                return [made[i] for i in range(len(drafts))]
            found = await self._insert(tx, [drafts[i] for i in missing])
            made.update({missing[place]: port for place, port in found.items()})
            _check_macs([drafts[i] for i in missing if i not in made])
        raise errors.MacAddressGenerationFailure(f"No free MAC address was found below {self._prefix}.")

    async def _insert(self, tx: Tx, drafts: Sequence[PortDraft]) -> dict[int, MadePort]:
        """Those whose MAC address was free, by their place."""
        ids = [new_id() for _ in drafts]
        macs = [draft.mac or self.random_mac() for draft in drafts]
        requests: list[AddressRequest] = []
        pools: dict[str, ipam.Pool] = {}
        for port_id, mac, draft in zip(ids, macs, drafts, strict=True):
            subnets = draft.network.subnets
            requests += ipam.plan_addresses(port_id, mac, subnets, draft.fixed_ips)
            pools.update({s["id"]: ipam.pool_of(s) for s in subnets if s["id"] not in pools})
        offers = ipam.first_offers(requests, pools, self._chance)
        rows = [_row(*each) for each in zip(ids, macs, drafts, strict=True)]
        found = await _INSERT.all(tx, rows=rows, **ipam.offered(requests, offers))
        created = {row[0]: row[1] for row in found}
        given = ipam.taken_by(offers, [(row[2], row[3]) for row in found if row[2] is not None])
        mine = [slot for slot, request in enumerate(requests) if request.port_id in created]
        if rest := [slot for slot in mine if slot not in given]:
            late = await ipam.allocate(tx, [requests[slot] for slot in rest], pools, self._chance)
            given.update(zip(rest, ((a["subnet_id"], a["ip_address"]) for a in late), strict=True))
        addresses: dict[str, list[dict[str, str]]] = {port_id: [] for port_id in created}
        for slot in mine:
            subnet_id, address = given[slot]
            addresses[requests[slot].port_id].append({"subnet_id": subnet_id, "ip_address": address})
        return {
            place: MadePort(
                id=port_id,
                mac=macs[place],
                created_at=created[port_id],
                fixed_ips=addresses[port_id],
                draft=drafts[place],
            )
            for place, port_id in enumerate(ids)
            if port_id in created
        }


def _row(port_id: str, mac: str, draft: PortDraft) -> dict[str, Any]:
    row = {name: getattr(draft, name) for name in _FIELDS}
    row.update(
        id=port_id, network_id=draft.network.id, mac_address=mac, security_groups=draft.security_groups
    )
    return row


def _check_macs(drafts: Sequence[PortDraft]) -> None:
    for draft in drafts:
        if draft.mac is not None:
            raise errors.MacAddressInUse(
                f"Unable to complete operation for network {draft.network.id}. The mac address {draft.mac} is in use.",
                mac=draft.mac,
            )
