"""Ports as the API has them: create, show, list, update, delete."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.network import errors, ipam, listing, networks, port_rows, rows, selects, tables, values
from moorage.network.binding import Bindings
from moorage.network.changes import PORT, Changes
from moorage.network.model import Port
from moorage.network.quotas import Quotas
from moorage.network.security_groups import SecurityGroups
from moorage.store.database import Tx
from moorage.store.errors import UniqueViolation
from moorage.store.statement import Statement, text_param, texts_param

_p, _ips, _members = tables.ports, tables.port_fixed_ips, tables.port_security_groups
_own_network = _p.c.network_id.in_(
    sa.select(tables.networks.c.id).where(tables.networks.c.project_id == rows.PROJECT)
)
_SHOW = Statement(selects.PORTS.where(_p.c.id == text_param("id"), rows.seen(_p, _own_network)), row=Port)
_SHOWN = Statement(selects.PORTS.where(_p.c.id == sa.any_(texts_param("ids"))), row=Port)
_DELETE: Statement[Any] = Statement(sa.delete(_p).where(_p.c.id == text_param("id")))
_DROP_IPS: Statement[Any] = Statement(
    sa.delete(_ips).where(
        _ips.c.port_id == text_param("id"), _ips.c.address == sa.any_(texts_param("addresses"))
    )
)
_DROP_GROUPS: Statement[Any] = Statement(sa.delete(_members).where(_members.c.port_id == text_param("id")))
_ADD_GROUPS: Statement[Any] = Statement(
    sa.insert(_members).from_select(
        ["port_id", "security_group_id"], sa.select(text_param("id"), sa.func.unnest(texts_param("groups")))
    )
)
_RULES: dict[str, Callable[[Any], Any]] = {
    "mac_address": values.mac,
    "allowed_address_pairs": values.address_pairs,
    "extra_dhcp_opts": values.dhcp_options,
    "dns_name": values.dns_name,
}
# Owners that Neutron itself makes ports for; they are deleted with what they belong to.
_SERVICE_OWNERS = ("network:router_interface", "network:router_gateway", "network:floatingip", "network:dhcp")

SORTABLE = (
    "id", "name", "network_id", "project_id", "status", "mac_address", "device_id", "device_owner", "admin_state_up",
    "created_at", "updated_at", "description",
)  # fmt: skip


class PortSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a creator says of a port. None (or UNSET's absence) lets the service choose."""

    network_id: str
    name: str = ""
    description: str = ""
    admin_state_up: bool = True
    mac_address: str | None = None
    fixed_ips: list[dict[str, str]] | None = None
    security_groups: list[str] | None = None
    port_security_enabled: bool | None = None
    allowed_address_pairs: list[dict[str, str]] = []
    extra_dhcp_opts: list[dict[str, Any]] = []
    device_id: str = ""
    device_owner: str = ""
    dns_name: str = ""
    vnic_type: str = "normal"
    profile: dict[str, Any] = {}
    host: str = ""


class Ports:
    """The rules of ports. Every method runs in the caller's transaction."""

    def __init__(
        self,
        maker: port_rows.PortMaker,
        quotas: Quotas,
        groups: SecurityGroups,
        bindings: Bindings,
        changes: Changes,
        chance: random.Random,
    ) -> None:
        self._maker = maker
        self._quotas = quotas
        self._groups = groups
        self._bindings = bindings
        self._changes = changes
        self._chance = chance

    async def create(
        self, tx: Tx, *, project_id: str, seen_by: str | None, specs: Sequence[PortSpec]
    ) -> list[Port]:
        """Make ports, all or none, in the order given. ``seen_by``: whose networks may be used, None for every.

        Raises NetworkNotFound, OverQuota, InvalidInput, MacAddressInUse, IpAddressInUse, IpAddressGenerationFailure,
        SecurityGroupNotFound.
        """
        ids = [s.network_id for s in specs]
        ground = await port_rows.ground(tx, self._quotas, ids, seen_by=seen_by, owner=project_id)
        ground.check_quota(project_id, len(specs))
        default = ground.default_group
        drafts = []
        for spec in specs:
            network = ground.networks.get(spec.network_id)
            if network is None:
                raise networks.not_found(spec.network_id)
            secured = (
                network.port_security_enabled
                if spec.port_security_enabled is None
                else spec.port_security_enabled
            )
            if spec.security_groups is None and secured and not spec.device_owner.startswith("network:"):
                default = default or await self._groups.ensure_default(tx, project_id)
                groups = [default]
            else:
                groups = await self._groups.resolve(tx, spec.security_groups or [], project_id=seen_by)
            drafts.append(_draft(project_id, network, spec, groups, secured=secured))
        made = await self._maker.make(tx, drafts)
        await self._changes.record(tx, PORT, [m.id for m in made])
        for port, spec in zip(made, specs, strict=True):
            if spec.host:
                await self._bindings.bind_port(tx, port_id=port.id, host=spec.host)
        if any(spec.host for spec in specs):
            shown = {p.id: p for p in await _SHOWN.all(tx, ids=[m.id for m in made])}
            return [shown[m.id] for m in made]
        return [_fresh(m) for m in made]

    async def show(self, tx: Tx, port_id: str, *, project_id: str | None) -> Port:
        """One port that the project sees: its own, or of its own network. Raises PortNotFound."""
        found = await _SHOW.first(tx, id=port_id, project_id=project_id)
        if found is None:
            raise not_found(port_id)
        return found

    async def page(self, tx: Tx, query_: listing.ListQuery, *, project_id: str | None) -> list[Port]:
        """The ports that the project sees."""
        select = selects.PORTS
        if project_id is not None:
            own = sa.select(tables.networks.c.id).where(tables.networks.c.project_id == project_id)
            select = select.where(sa.or_(_p.c.project_id == project_id, _p.c.network_id.in_(own)))
        return await listing.page(tx, select, _p, query_, FILTERS, SORTABLE, Port, lost=not_found)

    async def update(
        self, tx: Tx, port: Port, changes: dict[str, Any], *, seen_by: str | None, revision: int | None = None
    ) -> Port:
        """Change attributes of a port that ``show`` gave; ``host``, ``fixed_ips`` and ``security_groups`` too.

        Raises as ``create`` does, and PortSecurityPortHasSecurityGroup.
        """
        given = _checked(changes)
        fixed_ips, groups, host = (given.pop(k, None) for k in ("fixed_ips", "security_groups", "host"))
        if groups is not None:
            groups = await self._groups.resolve(tx, groups, project_id=seen_by)
        _check_security(port, given, groups)
        try:
            await rows.update(tx, _p, port.id, given, revision)
        except UniqueViolation as error:
            raise errors.MacAddressInUse(f"The mac address {given['mac_address']} is in use.") from error
        if groups is not None:
            await _DROP_GROUPS.run(tx, id=port.id)
            await _ADD_GROUPS.run(tx, id=port.id, groups=groups)
        if fixed_ips is not None:
            await self._change_addresses(tx, port, given.get("mac_address", port.mac_address), fixed_ips)
        await self._changes.record(tx, PORT, [port.id])
        if host == "":
            await self._bindings.unbind_ports(tx, [port.id])
        elif host is not None:
            await self._bindings.bind_port(tx, port_id=port.id, host=host)
        return await _SHOW.one(tx, id=port.id, project_id=None)

    async def _change_addresses(self, tx: Tx, port: Port, mac: str, wanted: list[dict[str, str]]) -> None:
        """Give back what is no longer wanted, keep what still fits a wish, allocate the rest."""
        network = (await port_rows.contexts(tx, [port.network_id], project_id=None))[port.network_id]
        requests = ipam.plan_addresses(port.id, mac, network.subnets, wanted)
        have = {(ip["subnet_id"], ip["ip_address"]) for ip in port.fixed_ips}
        new = [r for r in requests if (r.subnet_ids[0], r.address) not in have]
        kept = {r.address for r in requests if (r.subnet_ids[0], r.address) in have}
        for request in list(new):
            # A wish for any address of a subnet is met by one the port has there already.
            match = next(
                (
                    (s, a)
                    for s, a in sorted(have)
                    if request.address is None and s in request.subnet_ids and a not in kept
                ),
                None,
            )
            if match is not None:
                kept.add(match[1])
                new.remove(request)
        gone = [address for _, address in have if address not in kept]
        if gone:
            await _DROP_IPS.run(tx, id=port.id, addresses=gone)
        if new:
            await ipam.allocate(tx, new, {s["id"]: ipam.pool_of(s) for s in network.subnets}, self._chance)

    async def delete(self, tx: Tx, port: Port) -> None:
        """Delete a port with its addresses and bindings. Raises ServicePortInUse for a router's or alike."""
        if port.device_owner in _SERVICE_OWNERS and port.device_id:
            raise errors.ServicePortInUse(
                f"Port {port.id} cannot be deleted directly via the port API: it has device owner {port.device_owner}."
            )
        await _DELETE.run(tx, id=port.id)
        await self._changes.record(tx, PORT, [port.id])


def not_found(port_id: str) -> errors.PortNotFound:
    """The error for a port that isn't seen."""
    return errors.PortNotFound(f"Port {port_id} could not be found.", port_id=port_id)


def _draft(
    project_id: str, network: port_rows.NetworkContext, spec: PortSpec, groups: list[str], *, secured: bool
) -> port_rows.PortDraft:
    if not secured and (groups or spec.allowed_address_pairs):
        raise errors.PortSecurityAndIPRequiredForSecurityGroups(
            "Port security must be enabled and port must have an IP address in order to use security groups.",
            field="port_security_enabled",
        )
    same = (
        "name", "description", "admin_state_up", "fixed_ips", "allowed_address_pairs", "extra_dhcp_opts", "device_id",
        "device_owner", "dns_name", "vnic_type", "profile",
    )  # fmt: skip
    return port_rows.PortDraft(
        network=network,
        project_id=project_id,
        security_groups=groups,
        mac=None if spec.mac_address is None else values.mac(spec.mac_address),
        port_security_enabled=secured,
        **_checked({name: getattr(spec, name) for name in same}),
    )


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Attributes as they are kept. Raises InvalidInput."""
    found = dict(given)
    for name, rule in _RULES.items():
        if name in found:
            found[name] = rule(found[name])
    return found


def _check_security(port: Port, given: dict[str, Any], groups: list[str] | None) -> None:
    secured = given.get("port_security_enabled", port.port_security_enabled)
    left = port.security_groups if groups is None else groups
    pairs = given.get("allowed_address_pairs", port.allowed_address_pairs)
    if not secured and (left or pairs):
        raise errors.PortSecurityPortHasSecurityGroup(
            "Port has security group or address pair associated. Cannot disable port security until they are removed."
        )


def _fresh(made: port_rows.MadePort) -> Port:
    """The port as it was just made, without reading it again."""
    draft = made.draft
    same = {name: getattr(draft, name) for name in Port.__struct_fields__ if hasattr(draft, name)}
    same.update(
        id=made.id,
        network_id=draft.network.id,
        status="DOWN",
        mac_address=made.mac,
        tags=[],
        revision_number=1,
        created_at=made.created_at,
        updated_at=None,
        fixed_ips=made.fixed_ips,
        security_groups=sorted(draft.security_groups),
        host="",
        mechanism=None,
        chassis=None,
        vif_type="unbound",
        vif_details={},
    )
    return Port(**same)


def _address_is(values: list[str]) -> Any:
    """fixed_ips=ip_address=10.0.0.3, =ip_address_substr=10.0, =subnet_id=..: all kinds given must hold."""
    conditions: list[Any] = []
    for kind, column in (("ip_address", _ips.c.address), ("subnet_id", _ips.c.subnet_id)):
        wanted = [v.partition("=")[2] for v in values if v.startswith(f"{kind}=")]
        if wanted:
            conditions.append(column.in_(wanted))
    parts = [v.partition("=")[2] for v in values if v.startswith("ip_address_substr=")]
    conditions += [_ips.c.address.contains(part, autoescape=True) for part in parts]
    return _p.c.id.in_(sa.select(_ips.c.port_id).where(*conditions)) if conditions else sa.false()


def _bound_to(values: list[str]) -> Any:
    b = tables.bindings
    return _p.c.id.in_(sa.select(b.c.port_id).where(b.c.host.in_(values), b.c.status == "ACTIVE"))


FILTERS: dict[str, listing.Condition] = {
    **{
        name: listing.equals(_p.c[name])
        for name in (
            "id", "name", "network_id", "project_id", "status", "mac_address", "device_id", "admin_state_up",
            "description", "dns_name", "ip_allocation", "revision_number", "port_security_enabled",
        )
    },
    "device_owner": listing.equals(_p.c.device_owner),
    **listing.tags(_p.c.tags),
    "tenant_id": listing.equals(_p.c.project_id),
    "binding:vnic_type": listing.equals(_p.c.vnic_type),
    "binding:host_id": _bound_to,
    "fixed_ips": _address_is,
    "security_groups": lambda values: _p.c.id.in_(
        sa.select(_members.c.port_id).where(_members.c.security_group_id.in_(values))
    ),
}  # fmt: skip
