"""Reading the whole forest into columns: by COPY, in one snapshot, in seconds for 600,000 providers.

Rows are numbered by the database, so that nothing is joined here. Figures come in the binary form of COPY, whose
records have one length where no value is null: numpy reads them as they are.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from moorage.placement.columns import Columns
from moorage.placement.figures import Rows
from moorage.placement.names import SHARING_TRAIT
from moorage.placement.tables import inventories, resource_providers
from moorage.placement.tables import provider_aggregates as pa
from moorage.placement.tables import provider_traits as pt
from moorage.store.database import Tx
from moorage.store.statement import Statement

_numbered = sa.select(
    resource_providers.c.id,
    resource_providers.c.name,
    resource_providers.c.parent_id,
    (
        sa.func.row_number().over(order_by=(resource_providers.c.created_at, resource_providers.c.id))
        - sa.literal_column("1")
    ).label("row"),
).cte("numbered")


def _names(column: sa.Column[Any], owner: sa.Column[Any]) -> sa.Subquery:
    joined = sa.func.string_agg(column, sa.literal_column("','")).label("names")
    return sa.select(owner.label("owner"), joined).group_by(owner).subquery()


def _providers() -> sa.Select[Any]:
    parents = _numbered.alias("parents")
    traits = _names(pt.c.trait, pt.c.provider_id)
    aggregates = _names(pa.c.aggregate_id, pa.c.provider_id)
    none = sa.literal_column("''", sa.Text)
    return (
        sa.select(
            _numbered.c.id,
            _numbered.c.name,
            sa.func.coalesce(parents.c.row, sa.literal_column("-1")),
            sa.func.coalesce(traits.c.names, none),
            sa.func.coalesce(aggregates.c.names, none),
        )
        .outerjoin(parents, parents.c.id == _numbered.c.parent_id)
        .outerjoin(traits, traits.c.owner == _numbered.c.id)
        .outerjoin(aggregates, aggregates.c.owner == _numbered.c.id)
        .order_by(_numbered.c.row)
    )


_classes = (
    sa.select(
        inventories.c.resource_class,
        sa.func.row_number().over(order_by=inventories.c.resource_class).label("number"),
    )
    .group_by(inventories.c.resource_class)
    .cte("classes")
)
_FIGURES = (
    "row",
    "number",
    "total",
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "ratio",
    "used",
    "version",
)


def _inventories() -> sa.Select[Any]:
    i = inventories
    return (
        sa.select(
            _numbered.c.row, _classes.c.number, i.c.total, i.c.reserved, i.c.min_unit, i.c.max_unit,
            i.c.step_size, i.c.allocation_ratio, i.c.used, i.c.version,
        )
        .join(_numbered, _numbered.c.id == i.c.provider_id)
        .join(_classes, _classes.c.resource_class == i.c.resource_class)
    )  # fmt: skip


# Sorts and joins of a large cloud would go through files otherwise; it ends with the transaction.
_ROOMY: Statement[Any] = Statement(sa.text("SET LOCAL work_mem = '256MB'"))
_PROVIDERS: Statement[Any] = Statement(_providers())
_INVENTORIES: Statement[Any] = Statement(_inventories())
_CLASSES: Statement[Any] = Statement(sa.select(_classes.c.resource_class).order_by(_classes.c.number))

_RECORD = np.dtype(
    [("fields", ">i2")]
    + [
        part
        for name in _FIGURES
        for part in ((f"{name}_length", ">i4"), (name, ">f8" if name == "ratio" else ">i8"))
    ]
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEADER, _TRAILER = 19, 2
"""Bytes before the first record of a binary COPY (signature, flags, no extension), and after the last."""


class Dump(msgspec.Struct, frozen=True):
    """The forest as the database sent it: providers as lines, inventories as binary records, the classes' names."""

    providers: bytes
    inventories: bytes
    classes: list[str]


async def dump(tx: Tx) -> Dump:
    """Read everything; `tx` must be one snapshot."""
    await _ROOMY.run(tx)
    classes = [row[0] for row in await _CLASSES.all(tx)]
    return Dump(
        providers=await tx.copy_out(_PROVIDERS.sql, "text"),
        inventories=await tx.copy_out(_INVENTORIES.sql, "binary"),
        classes=classes,
    )


def load(source: Dump) -> Columns:
    """Build columns. No I/O, and nothing shared: it can run in a thread."""
    columns = Columns()
    lines = source.providers.decode().split("\n")[:-1]
    parent = np.empty(len(lines), dtype=np.int64)
    trait_set, aggregate_set = np.empty(len(lines), dtype=np.int32), np.empty(len(lines), dtype=np.int32)
    ids, names = [""] * len(lines), [""] * len(lines)
    # Most providers have the same few sets of names: each line of names is cut once.
    known_traits: dict[str, int] = {}
    known_aggregates: dict[str, int] = {}
    for at, line in enumerate(lines):
        ids[at], names[at], above, traits, aggregates = line.split("\t")
        parent[at] = int(above)
        number = known_traits.get(traits)
        if number is None:
            number = known_traits[traits] = columns.traits.number(_cut(traits))
        trait_set[at] = number
        number = known_aggregates.get(aggregates)
        if number is None:
            number = known_aggregates[aggregates] = columns.aggregates.number(_cut(aggregates))
        aggregate_set[at] = number
    del lines
    order, tree, first = _by_tree(parent)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    columns.grow_rows(len(order))
    columns.grow_trees(len(first))
    columns.size, columns.trees = len(order), len(first)
    columns.tree[: len(order)] = tree
    columns.first[: len(first)] = first
    columns.count[: len(first)] = np.diff(np.append(first, len(order)))
    columns.changes[: len(first)] = 0
    above_rows = parent[order]
    columns.parent[: len(order)] = np.where(above_rows >= 0, place[above_rows], -1)
    columns.trait_set[: len(order)] = trait_set[order]
    columns.aggregate_set[: len(order)] = aggregate_set[order]
    columns.ids = [_plain(ids[at]) for at in order.tolist()]
    columns.names = [_plain(names[at]) for at in order.tolist()]
    columns.row_of = {provider: row for row, provider in enumerate(columns.ids)}
    columns.tree_of_name = {columns.names[row]: number for number, row in enumerate(first.tolist())}
    sharing = columns.traits.any_of((SHARING_TRAIT,))[columns.trait_set[: len(order)]]
    columns.sharing = set(np.flatnonzero(sharing).tolist())
    _load_figures(columns, source, place)
    return columns


def _by_tree(parent: Rows) -> tuple[Rows, Rows, Rows]:
    """Return the order of rows (by root, then level by level), the tree of each, and the first of each tree."""
    here = np.arange(len(parent))
    root, depth = np.where(parent >= 0, parent, here), (parent >= 0).astype(np.int64)
    while True:
        # Twice as far in each turn: who stands at distance d of `root` is then at d plus that one's distance.
        above = root[root]
        if bool((above == root).all()):
            break
        depth += depth[root]
        root = above
    order = np.lexsort((here, depth, root))
    begins = np.diff(root[order], prepend=-1) != 0
    return order, np.cumsum(begins) - 1, np.flatnonzero(begins)


def _load_figures(columns: Columns, source: Dump, place: Rows) -> None:
    count = (len(source.inventories) - _HEADER - _TRAILER) // _RECORD.itemsize
    records = np.frombuffer(source.inventories, dtype=_RECORD, count=count, offset=_HEADER)
    number, row = records["number"].astype(np.int64), place[records["row"].astype(np.int64)]
    for at, name in enumerate(source.classes, 1):
        chosen = np.flatnonzero(number == at)
        chosen = chosen[np.argsort(row[chosen], kind="stable")]
        cells = records[chosen]
        capacity = (cells["total"] - cells["reserved"]).astype(np.float64) * cells["ratio"]
        # Rows: capacity, used, min_unit, max_unit, step_size, version, expected.
        figures: NDArray[np.int64] = np.zeros((7, len(chosen)), dtype=np.int64)
        figures[0] = np.clip(capacity, 0, 2.0**62).astype(np.int64)
        for kind, field in enumerate(("used", "min_unit", "max_unit", "step_size", "version"), 1):
            figures[kind] = cells[field]
        columns.column(name).extend(row[chosen], figures)


def _cut(names: str) -> list[str]:
    return names.split(",") if names else []


def _plain(text: str) -> str:
    """Undo what the text form of COPY does to backslashes and control characters."""
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text) if "\\" in text else text
