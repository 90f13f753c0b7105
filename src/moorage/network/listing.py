"""Lists: filters, order and pages, from a query to SQL.

Every filter is a list of values of which one must match. Order always ends with the id, so that pages are stable, and a
page begins after its marker in exactly that order.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from moorage.core.errors import MoorageError
from moorage.network import errors
from moorage.store.database import Tx
from moorage.store.statement import query as run

R = TypeVar("R")
Condition = Callable[[list[str]], Any]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What part of a list is wanted. ``sort`` holds (column, descending)."""

    filters: dict[str, list[str]] = {}
    sort: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None
    marker: str | None = None
    page_reverse: bool = False


def equals(column: Any) -> Condition:
    """The column has one of the values; for a flag, "true" and "false" in any case and "1" and "0"."""

    def condition(values: list[str]) -> Any:
        if isinstance(column.type, sa.Boolean):
            return column.in_([_flag(column.name, v) for v in values])
        if isinstance(column.type, sa.Integer):
            return column.in_([_number(column.name, v) for v in values])
        text = [v for v in values if v not in ("None", "null")] if column.nullable else values
        found = column.in_(text)
        return found if len(text) == len(values) else sa.or_(found, column.is_(None))

    return condition


def tags(column: Any) -> dict[str, Condition]:
    """The four filters of tags: all of them, one of them, not all of them, none of them; given with commas."""

    def all_of(values: list[str]) -> Any:
        return column.contains(_split(values))

    def any_of(values: list[str]) -> Any:
        return column.has_any(sa.cast(_split(values), postgresql.ARRAY(sa.Text)))

    return {
        "tags": all_of,
        "tags-any": any_of,
        "not-tags": lambda values: sa.not_(all_of(values)),
        "not-tags-any": lambda values: sa.not_(any_of(values)),
    }


def _split(values: list[str]) -> list[str]:
    return [tag for value in values for tag in value.split(",")]


def whole(text: str) -> int | None:
    """The integer that a text spells in ASCII digits, of 64 bits; None for any other text."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _flag(name: str, value: str) -> bool:
    if value.lower() in ("true", "1", "yes", "on", "t"):
        return True
    if value.lower() in ("false", "0", "no", "off", "f"):
        return False
    raise errors.InvalidInput(f"'{value}' is not a boolean", field=name)


def _number(name: str, value: str) -> int:
    found = whole(value)
    if found is None:
        raise errors.InvalidInput(f"'{value[:64]}' is not an integer", field=name)
    return found


async def page(
    tx: Tx,
    select: Any,
    table: sa.Table,
    query: ListQuery,
    filters: Mapping[str, Condition],
    sortable: Sequence[str],
    row: type[R],
    lost: Callable[[str], MoorageError] | None = None,
) -> list[R]:
    """The rows of ``select`` (all that the caller sees) that the query asks for, in the order of the whole list.

    ``lost`` makes the error of a marker that the caller does not see; without, the list begins anew, as Neutron's do.
    Raises InvalidInput.
    """
    if query.marker is not None and not await _sees(tx, select, table, query):
        if lost is not None and query.limit is not None:
            raise lost(query.marker[:64])
        query = msgspec.structs.replace(query, marker=None)
    rows = await run(tx, apply(select, table, query, filters, sortable), row)
    return rows[::-1] if query.page_reverse else rows


async def _sees(tx: Tx, select: Any, table: sa.Table, query: ListQuery) -> bool:
    # Without a limit there are no pages, and a marker means nothing.
    if query.limit is None:
        return False
    one = sa.exists(select.where(table.c.id == query.marker).correlate(None))
    return bool(await run(tx, sa.select(sa.literal(1).label("one")).where(one), _One))


class _One(msgspec.Struct, frozen=True):
    one: int


def apply(
    select: Any, table: sa.Table, query: ListQuery, filters: Mapping[str, Condition], sortable: Sequence[str]
) -> Any:
    """``select`` with the query's conditions, order and limit. Raises InvalidInput for an unknown sort key.

    Filters that the resource doesn't know are left out: the API has refused them.
    """
    for name, values in query.filters.items():
        condition = filters.get(name)
        if condition is not None:
            select = select.where(condition(values))
    order = [(_sort_column(table, key, sortable), descending) for key, descending in query.sort]
    order.append((table.c.id, False))
    if query.page_reverse:
        order = [(column, not descending) for column, descending in order]
    if query.marker is not None:
        select = select.where(_after(table, order, query.marker))
    select = select.order_by(*(c.desc() if descending else c.asc() for c, descending in order))
    return select if query.limit is None else select.limit(query.limit)


def _sort_column(table: sa.Table, key: str, sortable: Sequence[str]) -> Any:
    if key not in sortable or key not in table.c:
        raise errors.InvalidInput(f"'{key}' is not an attribute to sort by", field="sort_key")
    column = table.c[key]
    return sa.func.coalesce(column, "") if column.nullable and isinstance(column.type, sa.Text) else column


def _after(table: sa.Table, order: list[tuple[Any, bool]], marker: str) -> Any:
    # (a > A) or (a = A and b > B) or ...; the marker's values are looked up in the same statement.
    other = table.alias("marker")
    clauses: list[Any] = []
    same: list[Any] = []
    for column, descending in order:
        value = (
            sa.select(sa.sql.visitors.replacement_traverse(column, {}, _onto(other)))
            .where(other.c.id == marker)
            .scalar_subquery()
        )
        clauses.append(sa.and_(*same, column < value if descending else column > value))
        same.append(column == value)
    return sa.or_(*clauses)


def _onto(other: Any) -> Callable[..., Any]:
    def replace(element: Any, **_: Any) -> Any:
        return other.c[element.name] if isinstance(element, sa.Column) else None

    return replace
