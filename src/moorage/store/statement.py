"""Statements: SQLAlchemy Core expressions compiled once to text and positional parameters for asyncpg.

A module writes its statements as constants beside the functions that run them::

    SERVER = Statement(sa.select(servers).where(servers.c.id == sa.bindparam("id", type_=sa.Text)), row=Server)
    server = await SERVER.first(tx, id=server_id)

Rows become the given msgspec Struct by column name. Values are passed to asyncpg as they are; JSONB goes
through the connection's codec (see ``database``).
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
from typing_extensions import TypeVar

from moorage.core.errors import NotFound

R = TypeVar("R", default=Any)
_DIALECT = postgresql.asyncpg.dialect()  # type: ignore[no-untyped-call]


class Runner(Protocol):
    """What statements run on: a transaction (``database.Tx``)."""

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[Any]:
        """All rows."""
        ...

    async def execute(self, sql: str, args: Sequence[Any]) -> int:
        """The number of rows touched."""
        ...

    async def execute_many(self, sql: str, args: Iterable[Sequence[Any]]) -> None:
        """One execution for each row of arguments."""
        ...


class Statement(Generic[R]):
    """One compiled statement; see the module's text."""

    __slots__ = ("_fixed", "_make", "_names", "_row", "sql")

    def __init__(self, expression: ClauseElement, row: type[R] | None = None) -> None:
        compiled = _compile(expression)
        self.sql = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._fixed = {k: v for k, v in compiled.params.items() if v is not None}
        self._row = row
        self._make: Callable[[Any], R] | None = None

    def _args(self, params: Mapping[str, Any]) -> list[Any]:
        fixed = self._fixed
        try:
            return [params[n] if n in params else fixed[n] for n in self._names]
        except KeyError:
            return [params.get(n, fixed.get(n)) for n in self._names]

    def _build(self, records: list[Any]) -> list[R]:
        if self._row is None:
            return cast("list[R]", records)
        if self._make is None:
            self._make = maker(self._row, list(records[0].keys()))
        make = self._make
        return [make(r) for r in records]

    async def all(self, tx: Runner, /, **params: Any) -> list[R]:
        """Every row, in the statement's order."""
        records = await tx.fetch(self.sql, self._args(params))
        return self._build(records) if records else []

    async def first(self, tx: Runner, /, **params: Any) -> R | None:
        """The first row or None."""
        records = await tx.fetch(self.sql, self._args(params))
        return self._build(records[:1])[0] if records else None

    async def one(self, tx: Runner, /, **params: Any) -> R:
        """The first row; raises NotFound where there is none."""
        found = await self.first(tx, **params)
        if found is None:
            name = self._row.__name__ if self._row else "row"
            raise NotFound(f"no such {name.lower()}")
        return found

    async def scalar(self, tx: Runner, /, **params: Any) -> Any:
        """The first column of the first row, or None."""
        records = await tx.fetch(self.sql, self._args(params))
        return records[0][0] if records else None

    async def run(self, tx: Runner, /, **params: Any) -> int:
        """Execute; the number of rows touched."""
        return await tx.execute(self.sql, self._args(params))

    async def many(self, tx: Runner, rows: Iterable[Mapping[str, Any]], /) -> None:
        """Execute once for each mapping, in one round trip."""
        args = [self._args(r) for r in rows]
        if args:
            await tx.execute_many(self.sql, args)


def _compile(expression: ClauseElement) -> SQLCompiler:
    compiled = cast("SQLCompiler", expression.compile(dialect=_DIALECT))
    if "__[POSTCOMPILE_" in str(compiled):
        # Fixed lists in IN (…) are written out here, once; lists given at run time are array parameters. The
        # library insists on a value for every parameter when it does so: None will do.
        for bind in compiled.binds.values():
            bind.required = False
        compiled = cast(
            "SQLCompiler", expression.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        )
    return compiled


def maker(row: type[R], columns: Sequence[str]) -> Callable[[Any], R]:
    """A fast constructor of ``row`` from a record with these columns."""
    fields = row.__struct_fields__ if issubclass(row, msgspec.Struct) else tuple(columns)
    wanted = set(fields)
    keyword_only = any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(row).parameters.values())
    if list(columns) == list(fields) and not keyword_only:
        return lambda record: row(*record)
    if all(c in wanted for c in columns):
        return lambda record: row(**dict(record.items()))
    return lambda record: row(**{k: v for k, v in record.items() if k in wanted})


async def query(tx: Runner, select: ClauseElement, row: type[R]) -> list[R]:
    """Compile and run once: for lists with free filters only."""
    sql, args = _once(select)
    records = await tx.fetch(sql, args)
    if not records:
        return []
    make = maker(row, list(records[0].keys()))
    return [make(r) for r in records]


async def execute(tx: Runner, statement: ClauseElement) -> int:
    """Compile and run one write once; the number of rows touched."""
    sql, args = _once(statement)
    return await tx.execute(sql, args)


def _once(statement: ClauseElement) -> tuple[str, list[Any]]:
    compiled = _compile(statement)
    params = compiled.params
    return str(compiled), [params[n] for n in compiled.positiontup or ()]


def text_param(name: str) -> sa.BindParameter[str]:
    """A text parameter to be given at run time."""
    return sa.bindparam(name, type_=sa.Text)


def texts_param(name: str) -> sa.BindParameter[Any]:
    """A text[] parameter, for ``column == sa.any_(texts_param("ids"))``."""
    return sa.bindparam(name, type_=postgresql.ARRAY(sa.Text))
