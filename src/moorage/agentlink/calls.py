"""Questions to a host that a request waits for: a command like any other, whose result is handed to the asker.

The result may be recorded by another process than the asker's, so it goes through a row and a signal.
"""

import asyncio
from typing import Any

import sqlalchemy as sa

from moorage.agentlink.service import AgentLink
from moorage.agentlink.tables import call_results
from moorage.core.errors import Conflict, Unavailable
from moorage.core.ids import new_id
from moorage.store.database import Database, Tx
from moorage.store.schema import Json
from moorage.store.signals import Signals
from moorage.store.statement import Statement, text_param
from moorage.wire.messages import GuestPayload, Result

CHANNEL = "call_results"
_PREFIX = "call:"
_STEP = "call"

_PUT = Statement(
    sa.insert(call_results)
    .values(id=text_param("id"), result=sa.bindparam("result", type_=Json))
    .returning(sa.func.pg_notify(CHANNEL, "").cast(sa.Text))
)
_TAKE = Statement(
    sa.delete(call_results).where(call_results.c.id == text_param("key")).returning(call_results.c.result)
)


class Calls:
    """Asks hosts and waits. ``on_result`` is to be given every result of an AgentLink."""

    def __init__(self, database: Database, signals: Signals, link: AgentLink) -> None:
        self._database = database
        self._signals = signals
        self._link = link

    async def call(self, host: str, payload: GuestPayload, *, timeout: float) -> dict[str, Any]:
        """The data of the host's answer; raises Conflict where it refuses, Unavailable after ``timeout`` s."""
        operation = _PREFIX + new_id()
        subscription = self._signals.subscribe(CHANNEL)
        try:
            async with self._database.transaction() as tx:
                await self._link.enqueue(
                    tx, host=host, operation=operation, step=_STEP, fence=0, payload=payload
                )
            try:
                async with asyncio.timeout(timeout):
                    result = await self._wait(operation, subscription)
            except TimeoutError as error:
                raise Unavailable(f"host {host} does not answer; try again") from error
        finally:
            self._signals.unsubscribe(CHANNEL, subscription)
        if result["outcome"] != "succeeded":
            raise Conflict((result.get("error") or {}).get("message") or f"host {host} cannot do it")
        data: dict[str, Any] = result["data"]
        return data

    async def _wait(self, operation: str, subscription: Any) -> dict[str, Any]:
        while True:
            await subscription.wait(1.0)
            async with self._database.transaction() as tx:
                found: dict[str, Any] | None = await _TAKE.scalar(tx, key=operation)
            if found is not None:
                return found

    async def on_result(self, tx: Tx, result: Result) -> bool:
        """Keep the answer to a call; False for results that are none."""
        if not result.operation.startswith(_PREFIX):
            return False
        error = {"code": result.error.code, "message": result.error.message} if result.error else None
        kept = {"outcome": result.outcome, "data": result.data, "error": error}
        await _PUT.run(tx, id=result.operation, result=kept)
        tx.on_commit(lambda: self._signals.wake(CHANNEL))
        return True
