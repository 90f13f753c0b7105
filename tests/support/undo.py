"""A database whose transactions come to nothing while a switch is on: a request is really answered and changes nothing.

with undoing():
    await app(scope, receive, send)   # every statement ran, and was rolled back at the end

Over HTTP, ``UndoCloud`` does so for requests that have the header ``UNDO``.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

from moorage.server.cloud import Cloud
from moorage.store.database import Database, Tx

UNDO = "x-undo"

_undo: ContextVar[bool] = ContextVar("undo", default=False)


class _Undone(Exception):
    pass


@contextlib.contextmanager
def undoing() -> Iterator[None]:
    """Transactions of this task are rolled back at their end; those of others are not."""
    token = _undo.set(True)
    try:
        yield
    finally:
        _undo.reset(token)


class UndoDatabase(Database):
    """A database that obeys ``undoing``."""

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        with contextlib.suppress(_Undone):
            async with super().transaction() as tx:
                yield tx
                if _undo.get():
                    raise _Undone


class UndoCloud(Cloud):
    """A cloud over an UndoDatabase whose clients may ask that a request come to nothing."""

    def front(self, app: Any) -> Any:
        inner = super().front(app)

        async def asked(scope: Any, receive: Any, send: Any) -> None:
            undone = any(name == UNDO.encode() for name, _ in scope.get("headers", ()))
            with undoing() if undone else contextlib.nullcontext():
                await inner(scope, receive, send)

        return asked
