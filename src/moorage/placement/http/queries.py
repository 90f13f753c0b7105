"""The query grammar of the Placement API, microversion by microversion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from moorage.api import Query as ParameterNames
from moorage.api import Version
from moorage.core.errors import BadRequest
from moorage.core.ids import is_uuid
from moorage.placement.columns import Columns
from moorage.placement.http.common import check_uuid, only_keys
from moorage.placement.names import RESOURCE_CLASSES, TRAITS
from moorage.placement.query import Query, RequestGroup
from moorage.store.database import Tx

BAD = "placement.query.bad_value"
MISSING = "placement.query.missing_value"
DUPLICATE = "placement.query.duplicate_key"
Values = Mapping[str, list[str]]

_GROUP_KEYS = ("resources", "required", "member_of", "in_tree")
_DIGITS = "([1-9][0-9]*)?"
_WORDS = "([a-zA-Z0-9_-]{1,64})?"
_SINCE: dict[str, Version] = {
    "resources": (1, 10),
    "limit": (1, 16),
    "required": (1, 17),
    "member_of": (1, 21),
    "group_policy": (1, 25),
    "in_tree": (1, 31),
    "root_required": (1, 35),
    "same_subtree": (1, 36),
}
CANDIDATES = ParameterNames(_SINCE)


def _bad(message: str, field: str, code: str = BAD) -> BadRequest:
    return BadRequest(message, field=field, code=code)


def parse_resources(text: str, field: str) -> dict[str, int]:
    """Read `VCPU:2,MEMORY_MB:512`."""
    found: dict[str, int] = {}
    for item in text.split(","):
        name, colon, amount = (word.strip() for word in item.partition(":"))
        if not (name and colon):
            raise _bad(
                f"Badly formed resources parameter. Expected resources query string parameter in form:"
                f" ?resources=VCPU:2,MEMORY_MB:1024. Got: {item if text else 'empty string'}.",
                field,
            )
        if not re.fullmatch(r"-?[0-9]{1,18}", amount):
            raise _bad(f"Requested resource {name} expected positive integer amount. Got: {amount}.", field)
        if int(amount) < 1:
            raise _bad(f"Requested resource {name} requires amount >= 1. Got: {amount}.", field)
        found[name] = int(amount)
    return found


class TraitSets(msgspec.Struct, frozen=True):
    """Traits that must be there (each inner set by one of its members) and that must not."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Every trait that is named."""
        return self.forbidden.union(*self.required)


def parse_traits(values: Iterable[str], field: str, *, forbid: bool, any_of: bool) -> TraitSets:
    """Read repeated `T1,!T2` and `in:T3,T4`."""
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for given in values:
        text = given.strip()
        if any_of and text.startswith("in:"):
            names = frozenset(name.strip() for name in text[3:].split(","))
            if any(not name or name.startswith("!") for name in names):
                raise _bad(f"Badly formed '{field}': 'in:' takes traits without '!'. Got: {text}", field)
            required.append(names)
            continue
        for name in (part.strip() for part in text.split(",")):
            bare = name.removeprefix("!") if forbid else name
            if not bare or bare.startswith(("!", "in:")):
                raise _bad_traits(text, field, forbid=forbid)
            if bare == name:
                required.append(frozenset((name,)))
            else:
                forbidden.add(bare)
    single = {next(iter(names)) for names in required if len(names) == 1}
    if single & forbidden:
        raise _bad(
            f"Conflicting required and forbidden traits found in {field}: {', '.join(sorted(single & forbidden))}",
            field,
        )
    return TraitSets(tuple(required), frozenset(forbidden))


def _bad_traits(text: str, field: str, *, forbid: bool) -> BadRequest:
    expected = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if forbid else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    later = " The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39."
    return _bad(
        f"Invalid query string parameters: Expected '{field}' parameter value of the form: {expected}."
        f" Got: {text}.{later if 'in:' in text else ''}",
        field,
    )


class AggregateSets(msgspec.Struct, frozen=True):
    """Aggregates that must be there (each inner set by one of its members) and that must not."""

    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()


def parse_member_of(values: list[str], field: str, *, repeat: bool, forbid: bool) -> AggregateSets:
    """Read `uuid`, `in:u1,u2`, and from 1.32 on `!uuid`, `!in:u1,u2`."""
    if len(values) > 1 and not repeat:
        raise _bad("Multiple member_of parameters are not supported before microversion 1.24.", field)
    wanted: list[frozenset[str]] = []
    unwanted: set[str] = set()
    for text in values:
        negative = text.startswith("!")
        if negative and not forbid:
            raise _bad(
                "Forbidden member_of parameters are not supported in the specified microversion.", field
            )
        rest = text[1:] if negative else text
        several = rest.startswith("in:")
        names = frozenset(rest[3:].split(",")) if several else frozenset((rest,))
        if not several and "," in rest:
            raise _bad(
                "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the valid"
                f" microversion. Got: {text}",
                field,
            )
        if not all(is_uuid(name) for name in names):
            raise _bad(
                "Invalid query string parameters: Expected 'member_of' parameter to contain valid UUID(s)."
                f" Got: {text}",
                field,
            )
        if negative:
            unwanted |= names
        else:
            wanted.append(names)
    return AggregateSets(tuple(wanted), frozenset(unwanted))


class ProviderFilter(msgspec.Struct, frozen=True):
    """The conditions of GET /resource_providers that the index answers."""

    resources: dict[str, int]
    traits: TraitSets
    aggregates: AggregateSets

    async def check_names(self, tx: Tx) -> None:
        """Raise BadRequest for names that do not exist."""
        await RESOURCE_CLASSES.require(tx, self.resources, "Invalid resource class in resources parameter")
        await TRAITS.require(tx, self.traits.names)

    def matching(self, columns: Columns) -> set[str]:
        """Return the ids of the providers that meet all conditions."""
        mask = columns.alive.copy()
        for resource_class, amount in self.resources.items():
            column = columns.classes.get(resource_class)
            fits = np.zeros(len(columns), dtype=np.bool_)
            if column is not None:
                fits[column.fitting(amount)] = True
            mask &= fits
        for names in self.traits.required:
            mask &= columns.with_traits(names)
        for names in self.aggregates.member_of:
            mask &= columns.with_aggregates(names)
        mask &= ~columns.with_traits(self.traits.forbidden)
        mask &= ~columns.with_aggregates(self.aggregates.not_member_of)
        return {columns.ids[row] for row in np.flatnonzero(mask).tolist()}


def provider_filter(query: Values, version: Version) -> ProviderFilter | None:
    """Read the query of GET /resource_providers; None when it only asks by name, uuid or tree."""
    for key in ("uuid", "in_tree"):
        if key in query:
            check_uuid(query[key][0], key)
    if not {"resources", "required", "member_of"} & set(query):
        return None
    return ProviderFilter(
        parse_resources(query["resources"][-1], "resources") if "resources" in query else {},
        _traits(query.get("required", []), "required", version),
        _aggregates(query.get("member_of", []), "member_of", version),
    )


def _traits(values: list[str], field: str, version: Version) -> TraitSets:
    values = values if version >= (1, 39) else values[-1:]
    return parse_traits(values, field, forbid=version >= (1, 22), any_of=version >= (1, 39))


def _aggregates(values: list[str], field: str, version: Version) -> AggregateSets:
    return parse_member_of(values, field, repeat=version >= (1, 24), forbid=version >= (1, 32))


class CandidatesRequest(msgspec.Struct, frozen=True):
    """The query of GET /allocation_candidates."""

    query: Query
    limit: int | None

    @property
    def classes(self) -> set[str]:
        """Every resource class that is named."""
        return {name for group in self.query.groups for name in group.resources}

    @property
    def traits(self) -> frozenset[str]:
        """Every trait that is named."""
        named = (names for group in self.query.groups for names in (*group.required, group.forbidden))
        return (self.query.root_required | self.query.root_forbidden).union(*named)


def candidates_request(query: Values, version: Version) -> CandidatesRequest:
    """Read the query of GET /allocation_candidates; raises BadRequest naming the parameter."""
    grouped = _grouped(query, version)
    groups = tuple(_group(suffix, values, version) for suffix, values in sorted(grouped.items()))
    root = _root_traits(query)
    subtrees = tuple(_subtree(text, grouped) for text in query.get("same_subtree", []))
    _check_groups(groups, subtrees, version)
    policy = query.get("group_policy", [None])[0]
    if policy not in {None, "none", "isolate"}:
        raise _bad(
            f"Invalid query string parameters: '{policy}' is not one of ['none', 'isolate']", "group_policy"
        )
    if policy is None and sum(1 for group in groups if group.suffix) > 1:
        raise _bad(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.',
            "group_policy",
            MISSING,
        )
    return CandidatesRequest(
        Query(
            groups=groups,
            isolate=policy == "isolate",
            same_subtree=subtrees,
            root_required=frozenset(next(iter(names)) for names in root.required),
            root_forbidden=root.forbidden,
            nested=version >= (1, 29),
        ),
        _limit(query),
    )


def _grouped(query: Values, version: Version) -> dict[str, dict[str, list[str]]]:
    single = [
        key for key in ("limit", "group_policy", "root_required", "same_subtree") if version >= _SINCE[key]
    ]
    suffixes = _WORDS if version >= (1, 33) else _DIGITS
    known = [key for key in _GROUP_KEYS if version >= _SINCE[key]]
    pattern = re.compile(rf"({'|'.join(known)}){suffixes}")
    found: dict[str, dict[str, list[str]]] = {}
    for key, values in query.items():
        match = None if key in single else pattern.fullmatch(key)
        suffix = (match[2] or "") if match else ""
        if match is None or (suffix and version < (1, 25)):
            only_keys({key: values}, single, [f"^{name}{suffixes}$" for name in known])
            continue
        found.setdefault(suffix, {})[match[1]] = values
    return found


def _group(suffix: str, values: Mapping[str, list[str]], version: Version) -> RequestGroup:
    traits = _traits(values.get("required", []), f"required{suffix}", version)
    aggregates = _aggregates(values.get("member_of", []), f"member_of{suffix}", version)
    tree = values["in_tree"][-1] if "in_tree" in values else None
    if tree is not None:
        check_uuid(tree, f"in_tree{suffix}")
    return RequestGroup(
        suffix=suffix,
        resources=parse_resources(values["resources"][-1], f"resources{suffix}")
        if "resources" in values
        else {},
        required=traits.required,
        forbidden=traits.forbidden,
        member_of=aggregates.member_of,
        not_member_of=aggregates.not_member_of,
        in_tree=tree,
    )


def _check_groups(
    groups: tuple[RequestGroup, ...], subtrees: tuple[frozenset[str], ...], version: Version
) -> None:
    """Raise BadRequest when a condition has no resources that it could apply to."""
    bare = [group for group in groups if not group.resources]
    if version < (1, 36):
        _check_orphans(bare)
    elif groups and len(bare) == len(groups):
        raise _bad("There must be at least one resources or resources[$S] parameter.", "resources", MISSING)
    if not groups:
        raise _bad(
            "At least one request group (`resources` or `resources{$S}`) is required. ('resources' is a required property.)",
            "resources",
            MISSING,
        )
    tied = frozenset().union(*subtrees)
    loose = [group.suffix for group in bare if not group.suffix or group.suffix not in tied]
    if loose:
        raise _bad(
            "Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s)"
            f" - {', '.join(map(repr, loose))}",
            "same_subtree",
        )


def _check_orphans(bare: Iterable[RequestGroup]) -> None:
    conditions = (
        ("required", "traits", [group.suffix for group in bare if group.required]),
        ("member_of", "member_of", [g.suffix for g in bare if g.member_of or g.not_member_of]),
    )
    for key, name, suffixes in conditions:
        if suffixes:
            raise _bad(
                f"All {name} parameters must be associated with resources. Found the following orphaned {name}"
                f" keys: {', '.join(key + suffix for suffix in suffixes)}",
                f"{key}{suffixes[0]}",
            )
    for group in bare:
        raise _bad("All request groups must specify resources.", f"resources{group.suffix}")


def _subtree(text: str, grouped: Mapping[str, object]) -> frozenset[str]:
    suffixes = [suffix.strip() for suffix in text.split(",")]
    for suffix in suffixes:
        if not suffix:
            raise _bad(
                f"Empty string (unsuffixed group) can not be specified in `same_subtree`: {text}",
                "same_subtree",
            )
        if suffix not in grouped:
            raise _bad(
                f"Real suffixes should be specified in `same_subtree`: {suffix} is none.", "same_subtree"
            )
    return frozenset(suffixes)


def _root_traits(query: Values) -> TraitSets:
    values = query.get("root_required", [])
    if len(values) > 1:
        raise _bad("Query parameter 'root_required' may be specified only once.", "root_required", DUPLICATE)
    return parse_traits(values, "root_required", forbid=True, any_of=False)


def _limit(query: Values) -> int | None:
    if "limit" not in query:
        return None
    text = query["limit"][0]
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise _bad(
            "Invalid query string parameters: Failed validating 'pattern':"
            f" limit '{text}' does not match '^[1-9][0-9]*$'.",
            "limit",
        )
    # A number of more than 18 digits limits nothing.
    return int(text) if len(text) <= 18 else None
