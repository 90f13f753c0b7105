"""Segments: which kind of network, on which physical network, with which tag. Tags are taken like addresses are:
a few random candidates, the first free one wins, the unique constraint decides.
"""

import random
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.core.errors import Conflict
from moorage.core.ids import new_id
from moorage.network import errors, tables
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param

TUNNELS = ("geneve", "vxlan")
TYPES = ("flat", "vlan", *TUNNELS)
# Bytes that the encapsulation takes from the underlay's packets (IPv4 outer header).
OVERHEAD = {"geneve": 58, "vxlan": 50}
_ANY = "*"
_VLANS = range(1, 4095)
_VNIS = range(1, 1 << 24)
_CANDIDATES = 16


class SegmentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a network's creator says of its segment; None: let the service choose."""

    network_type: str | None = None
    physical_network: str | None = None
    segmentation_id: int | None = None


class SegmentRules(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's choices: types for projects' networks, and the tags that may be given out."""

    project_types: tuple[str, ...] = ("geneve",)
    tunnel_ids: tuple[range, ...] = (range(1, 65536),)
    vlans: dict[str, tuple[range, ...]] = {}
    flat: frozenset[str] = frozenset({_ANY})
    mtu: int = 1500

    def largest_mtu(self, network_type: str) -> int:
        """The biggest packet, in bytes, that a network of the type can carry."""
        return self.mtu - OVERHEAD.get(network_type, 0)

    def resolve(self, spec: SegmentSpec) -> SegmentSpec:
        """The segment's type and physical network, checked. Raises InvalidInput naming the attribute."""
        kind = spec.network_type or self.project_types[0]
        if kind not in TYPES:
            raise _bad("network_type", f"'{kind}' is not one of {', '.join(TYPES)}")
        physnet, tag = spec.physical_network, spec.segmentation_id
        if kind in TUNNELS and physnet is not None:
            raise _bad("physical_network", f"a {kind} network has no physical network")
        if kind == "flat" and tag is not None:
            raise _bad("segmentation_id", "a flat network has no segmentation id")
        if kind == "flat" and physnet is None:
            raise _bad("physical_network", "a flat network needs a physical network")
        if kind == "flat" and _ANY not in self.flat and physnet not in self.flat:
            raise _bad("physical_network", f"'{physnet}' may not carry a flat network")
        if kind == "vlan" and physnet is None:
            if tag is not None or not self.vlans:
                raise _bad("physical_network", "a vlan network needs a physical network")
            physnet = next(iter(self.vlans))
        if kind == "vlan" and tag is None and not self.vlans.get(physnet or ""):
            raise _bad("physical_network", f"'{physnet}' has no range of VLANs; give a segmentation id")
        allowed = _VLANS if kind == "vlan" else _VNIS
        if tag is not None and tag not in allowed:
            raise _bad("segmentation_id", f"{tag} is not within {allowed.start} and {allowed.stop - 1}")
        return SegmentSpec(network_type=kind, physical_network=physnet, segmentation_id=tag)

    def ranges(self, spec: SegmentSpec) -> tuple[range, ...]:
        """The tags that may be given out for a resolved segment."""
        return (
            self.vlans.get(spec.physical_network or "", ())
            if spec.network_type == "vlan"
            else self.tunnel_ids
        )


def _bad(attribute: str, reason: str) -> errors.InvalidInput:
    return errors.InvalidInput(f"Invalid input for operation: {reason}.", field=f"provider:{attribute}")


_s = tables.segments
# INSERT INTO segments SELECT .. first of the offered tags that is free ON CONFLICT DO NOTHING RETURNING tag
_offers = (
    sa.func.unnest(sa.bindparam("tags", type_=postgresql.ARRAY(sa.Integer)))
    .table_valued("tag", with_ordinality="place")
    .render_derived(name="offers")
)
_same: Any = (
    sa.select(sa.literal_column("1"))
    .where(_s.c.network_type == text_param("network_type"))
    .where(_s.c.physical_network.is_not_distinct_from(text_param("physical_network")))
    .where(_s.c.segmentation_id.is_not_distinct_from(_offers.c.tag))
    .correlate(_offers)
)
_COLUMNS = ["id", "network_id", "network_type", "physical_network"]
_TAKE: Statement[Any] = Statement(
    postgresql.insert(_s)
    .from_select(
        [*_COLUMNS, "segmentation_id"],
        sa.select(*(text_param(c) for c in _COLUMNS), _offers.c.tag)
        .where(~_same.exists())
        .order_by(_offers.c.place)
        .limit(sa.literal_column("1")),
    )
    .on_conflict_do_nothing()
    .returning(_s.c.id)
)
_USED: Statement[Any] = Statement(
    sa.select(_s.c.segmentation_id)
    .where(_s.c.network_type == text_param("network_type"))
    .where(_s.c.physical_network.is_not_distinct_from(text_param("physical_network")))
)


async def create(
    tx: Tx, rules: SegmentRules, network_id: str, spec: SegmentSpec, chance: random.Random
) -> str:
    """Make the segment of a network from a resolved ``spec``; its id.

    Raises FlatNetworkInUse, VlanIdInUse or TunnelIdInUse for a certain one that is taken, NoNetworkAvailable when the
    ranges are used up.
    """
    key = {"network_type": spec.network_type, "physical_network": spec.physical_network}
    for attempt in range(4):
        if spec.network_type == "flat" or spec.segmentation_id is not None:
            tags: list[int | None] = [spec.segmentation_id]
        elif attempt == 0:
            tags = [_pick(rules.ranges(spec), chance) for _ in range(_CANDIDATES)]
        else:
            used = {row[0] for row in await _USED.all(tx, **key)}
            left = [tag for tags_ in rules.ranges(spec) for tag in tags_ if tag not in used]
            tags = list(chance.sample(left, min(len(left), _CANDIDATES)))
        segment_id = await _TAKE.scalar(tx, id=new_id(), network_id=network_id, tags=tags, **key)
        if segment_id is not None:
            return str(segment_id)
        if len(tags) <= 1:
            break
    raise _taken(spec)


def _pick(ranges: tuple[range, ...], chance: random.Random) -> int:
    index = chance.randrange(sum(len(r) for r in ranges))
    for tags in ranges:
        if index < len(tags):
            return tags[index]
        index -= len(tags)
    raise IndexError(index)


def _taken(spec: SegmentSpec) -> Conflict:
    physnet, tag = spec.physical_network, spec.segmentation_id
    if spec.network_type == "flat":
        return errors.FlatNetworkInUse(f"Physical network {physnet} carries a flat network already.")
    if tag is None:
        return errors.NoNetworkAvailable("No segmentation id is left; the operator can widen the ranges.")
    if spec.network_type == "vlan":
        return errors.VlanIdInUse(f"VLAN {tag} on physical network {physnet} is in use.")
    return errors.TunnelIdInUse(f"Tunnel id {tag} is in use.")
