"""Changes of the forest: providers that come, change, move and go, and rows that move together.

A provider whose shape has not changed is written in place. Otherwise its tree (both trees, when it moves) is laid
out again at the end of the columns. The order of what is read does not matter: a child that is read before its
parent stands as a tree of its own until the parent comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from moorage.placement.columns import Columns, NameSets
from moorage.placement.figures import ClassColumn, Rows
from moorage.placement.reads import Held

Expected = Mapping[tuple[str, str], int]
"""Provider and resource class -> what claims under way will take."""

MANY = 1024
"""Dead rows, or sets of names that nobody has, below this number are no reason to move the live rows."""
_MOST = 2**62
"""Capacity is cut here: figures are 64 bits wide."""


class Node(msgspec.Struct):
    """A provider between two layouts; traits and aggregates are numbers of sets, inventories figures by class."""

    id: str
    name: str
    parent_id: str | None
    traits: int
    aggregates: int
    inventories: dict[str, list[int]]


def build(records: Iterable[Held]) -> Columns:
    """Return the columns of a forest."""
    columns = Columns()
    apply(columns, (), records, {})
    return columns


def apply(columns: Columns, gone: Iterable[str], found: Iterable[Held], expected: Expected) -> None:
    """Take over whole providers, and that some are gone."""
    shaped: dict[str, Node] = {}
    for record in found:
        node = _node(columns, record, expected)
        row = columns.row_of.get(node.id)
        if row is None or not _same_shape(columns, row, node):
            shaped[node.id] = node
        else:
            _write(columns, row, node)
    lost = {provider for provider in gone if provider in columns.row_of}
    if shaped or lost:
        _lay_out(columns, shaped, lost)
    live = len(columns) - columns.dead
    if columns.dead > max(MANY, live) or len(columns.traits) + len(columns.aggregates) > MANY + 2 * live:
        compact(columns)


def _node(columns: Columns, record: Held, expected: Expected) -> Node:
    inventories = {}
    for name, total, reserved, low, high, step, ratio, used, version in record.inventories or ():
        capacity = max(0, min(int((total - reserved) * ratio), _MOST))
        inventories[name] = [
            capacity, used, low, high, step, version, expected.get((record.id, name), 0),
        ]  # fmt: skip
    return Node(
        id=record.id,
        name=record.name,
        parent_id=record.parent_id,
        traits=columns.traits.number(record.traits or ()),
        aggregates=columns.aggregates.number(record.aggregates or ()),
        inventories=inventories,
    )


def _known(columns: Columns, row: int) -> Node:
    provider = columns.ids[row]
    return Node(
        id=provider,
        name=columns.names[row],
        parent_id=_parent_id(columns, row),
        traits=int(columns.trait_set[row]),
        aggregates=int(columns.aggregate_set[row]),
        inventories={name: column.get(row) for name, column in _columns_of(columns, row)},
    )


def _columns_of(columns: Columns, row: int) -> list[tuple[str, ClassColumn]]:
    return [(name, column) for name, column in columns.classes.items() if column.at[row] >= 0]


def _parent_id(columns: Columns, row: int) -> str | None:
    parent = int(columns.parent[row])
    return columns.ids[parent] if parent >= 0 else columns.orphans.get(columns.ids[row])


def _same_shape(columns: Columns, row: int, node: Node) -> bool:
    return (
        _parent_id(columns, row) == node.parent_id
        and {name for name, _ in _columns_of(columns, row)} == node.inventories.keys()
    )


def _write(columns: Columns, row: int, node: Node) -> None:
    """Write what a provider says of itself where its row is. Usage that is known to be newer is kept."""
    tree = int(columns.tree[row])
    if columns.parent[row] < 0 and columns.names[row] != node.name:
        _forget_name(columns, columns.names[row], tree)
        columns.tree_of_name[node.name] = tree
    columns.names[row] = node.name
    if (node.traits, node.aggregates) != (columns.trait_set[row], columns.aggregate_set[row]):
        columns.set_names(row, node.traits, node.aggregates)
    for name, figures in node.inventories.items():
        column = columns.classes[name]
        column.set(row, _newest(figures, column.get(row)))
    columns.touch_served(row)
    columns.layout += 1


def _newest(figures: list[int], known: list[int]) -> list[int]:
    if known[5] > figures[5]:
        figures[1], figures[5] = known[1], known[5]
    return figures


def _lay_out(columns: Columns, shaped: dict[str, Node], lost: set[str]) -> None:
    trees = _concerned(columns, shaped, lost)
    nodes: dict[str, Node] = {}
    number_of: dict[str, int] = {}
    for tree in trees:
        rows = columns.tree_rows(tree)
        number_of[columns.ids[rows.start]] = tree
        nodes.update((columns.ids[row], _known(columns, row)) for row in rows)
    for provider, node in shaped.items():
        known = nodes.get(provider)
        if known is not None:
            for name in node.inventories.keys() & known.inventories.keys():
                node.inventories[name] = _newest(node.inventories[name], known.inventories[name])
        nodes[provider] = node
    for provider in lost:
        del nodes[provider]
    for tree in trees:
        _kill(columns, tree)
    _append_all(columns, nodes, number_of)
    columns.layout += 1


def _append_all(columns: Columns, nodes: Mapping[str, Node], number_of: Mapping[str, int]) -> None:
    children: dict[str | None, list[Node]] = {}
    for node in nodes.values():
        children.setdefault(node.parent_id if node.parent_id in nodes else None, []).append(node)
    for root in children.get(None, ()):
        _append(columns, root, children, number_of.get(root.id))
    for node in nodes.values():
        if node.id not in columns.row_of:
            root = _in_ring(nodes, node)
            children[root.parent_id].remove(root)
            _append(columns, root, children, number_of.get(root.id))


def _in_ring(nodes: Mapping[str, Node], node: Node) -> Node:
    """Return the first provider above one without a root that is below itself.

    It was read after it had moved, and one above it is known only as it was before: that one is in the log too, and the
    ring is cut here until it is read.
    """
    seen: set[str] = set()
    while node.id not in seen:
        seen.add(node.id)
        node = nodes[node.parent_id or ""]
    return node


def _concerned(columns: Columns, shaped: Mapping[str, Node], lost: set[str]) -> list[int]:
    """Return the trees whose layout changes: those of the providers, of their parents, of orphans that wait."""
    near = set(shaped) | lost
    near.update(node.parent_id for node in shaped.values() if node.parent_id is not None)
    near.update(child for child, parent in columns.orphans.items() if parent in shaped)
    return sorted({int(columns.tree[columns.row_of[p]]) for p in near if p in columns.row_of})


def _kill(columns: Columns, tree: int) -> None:
    rows = columns.tree_rows(tree)
    _forget_name(columns, columns.names[rows.start], tree)
    for row in rows:
        provider = columns.ids[row]
        del columns.row_of[provider]
        columns.orphans.pop(provider, None)
        for _, column in _columns_of(columns, row):
            column.kill(row)
        columns.tree[row] = -1
        if row in columns.sharing:
            columns.sharing.discard(row)
            columns.forget()
    columns.dead += len(rows)
    columns.first[tree], columns.count[tree] = -1, 0
    columns.touch(tree)


def _forget_name(columns: Columns, name: str, tree: int) -> None:
    # Two roots can have swapped their names by the time that the first of them is read.
    if columns.tree_of_name.get(name) == tree:
        del columns.tree_of_name[name]


def _append(
    columns: Columns, root: Node, children: Mapping[str | None, list[Node]], tree: int | None
) -> None:
    """Lay a tree out at the end: level by level, so that parents come first."""
    if tree is None:
        tree = columns.trees
        columns.grow_trees(tree + 1)
        columns.trees += 1
        columns.changes[tree] = 0
    order = [root]
    for node in order:
        order.extend(children.get(node.id, ()))
    start = columns.size
    columns.grow_rows(start + len(order))
    columns.size += len(order)
    columns.first[tree], columns.count[tree] = start, len(order)
    for row, node in enumerate(order, start):
        columns.ids.append(node.id)
        columns.names.append(node.name)
        columns.row_of[node.id] = row
        columns.tree[row] = tree
        columns.parent[row] = columns.row_of[node.parent_id] if node is not root and node.parent_id else -1
        columns.set_names(row, node.traits, node.aggregates)
        for name, figures in node.inventories.items():
            columns.column(name).add(row, figures)
    if root.parent_id is not None:
        columns.orphans[root.id] = root.parent_id
    columns.tree_of_name[root.name] = tree
    columns.touch(tree)


def compact(columns: Columns) -> None:
    """Move live rows together, and number trees and sets of names anew."""
    trees = np.flatnonzero(columns.living_trees)
    rows = columns.rows_of(trees)
    place = np.full(columns.size, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    parent = columns.parent[rows]
    columns.parent = np.where(parent >= 0, place[parent], -1).astype(np.int32)
    count = columns.count[trees]
    columns.classes = {
        name: moved
        for name, moved in ((name, c.moved(place, len(rows))) for name, c in columns.classes.items())
        if moved.size
    }
    columns.tree = np.repeat(np.arange(len(trees), dtype=np.int32), count)
    columns.first = (np.cumsum(count) - count).astype(np.int32)
    columns.count = count
    columns.changes = columns.changes[trees]
    columns.ids = [columns.ids[row] for row in rows.tolist()]
    columns.names = [columns.names[row] for row in rows.tolist()]
    columns.row_of = {provider: row for row, provider in enumerate(columns.ids)}
    columns.tree_of_name = {columns.names[row]: tree for tree, row in enumerate(columns.first.tolist())}
    columns.sharing = set(place[sorted(columns.sharing)].tolist())
    columns.traits, columns.trait_set = _renumbered(columns.traits, columns.trait_set[rows])
    columns.aggregates, columns.aggregate_set = _renumbered(columns.aggregates, columns.aggregate_set[rows])
    columns.size, columns.dead, columns.trees = len(rows), 0, len(trees)
    columns.forget()


def _renumbered(sets: NameSets, numbers: Rows) -> tuple[NameSets, Rows]:
    made = NameSets()
    used, back = np.unique(numbers, return_inverse=True)
    new = np.array([made.number(sets.sets[number]) for number in used.tolist()], dtype=np.int32)
    return made, new[back]
