"""Whether this process should be given requests: what load balancers ask, and what administrators see of it.

Each check says in a sentence what is wrong. Strangers see the sum of them only. A report is kept for a moment, so that
asking costs nothing however often it is done.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import sqlalchemy as sa

from moorage.api.auth import ServiceToken
from moorage.core.errors import MoorageError, Unavailable
from moorage.core.log import get_logger
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.signals import Signals
from moorage.store.statement import Statement

log = get_logger(__name__)
Check = Callable[[], Awaitable[None]]
"""Raises MoorageError where something is wrong; its message is the reason."""

_REVISION: Statement[str] = Statement(
    sa.select(sa.column("version_num")).select_from(sa.table("alembic_version"))
)


class CheckResult(msgspec.Struct, frozen=True):
    """One check: its name, whether it passed, and why not."""

    name: str
    ok: bool
    reason: str | None = None


class Report(msgspec.Struct, frozen=True):
    """All checks."""

    ready: bool
    checks: tuple[CheckResult, ...]


class Health:
    """Runs the checks side by side, each for at most ``within`` seconds, and keeps a report for ``keep`` seconds."""

    def __init__(self, checks: Mapping[str, Check], *, keep: float = 2.0, within: float = 3.0) -> None:
        self._checks = checks
        self._keep = keep
        self._within = within
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._report = Report(ready=False, checks=())

    async def report(self) -> Report:
        """The newest report; many that ask at once wait for one."""
        async with self._lock:
            if time.monotonic() >= self._until:
                await self._renew()
        return self._report

    async def _renew(self) -> None:
        findings = await asyncio.gather(*(self._run(name, check) for name, check in self._checks.items()))
        report = Report(ready=all(found.ok for found in findings), checks=tuple(findings))
        if report.ready != self._report.ready:
            wrong = {found.name: found.reason for found in findings if not found.ok}
            say = log.info if report.ready else log.warning
            say("health.changed", ready=report.ready, wrong=wrong)
        self._report, self._until = report, time.monotonic() + self._keep

    async def _run(self, name: str, check: Check) -> CheckResult:
        try:
            async with asyncio.timeout(self._within):
                await check()
        except TimeoutError:
            return CheckResult(name, ok=False, reason=f"no answer within {self._within:g} s")
        except MoorageError as error:
            return CheckResult(name, ok=False, reason=error.message)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the reason
            return CheckResult(name, ok=False, reason=f"{type(error).__name__}: {error}")
        return CheckResult(name, ok=True)


def checks_of(
    database: Database,
    signals: Signals,
    keystone: ServiceToken,
    *,
    index_age: Callable[[], float],
    oldest_index: float,
) -> Mapping[str, Check]:
    """The checks of a control plane. ``oldest_index``: seconds that the placement index may lag behind."""

    async def database_answers() -> None:
        async with database.read() as tx:
            await tx.fetch("SELECT 1")

    async def schema_is_current() -> None:
        # A newer release may have upgraded already: this one runs against its schema too (the online rule).
        async with database.read() as tx:
            found = await _REVISION.scalar(tx)
        if found in migrations.outdated():
            raise Unavailable(f"the schema is at revision {found}: run `moorage db upgrade`")

    async def index_is_fresh() -> None:
        age = index_age()
        if age > oldest_index:
            raise Unavailable(f"the placement index is {age:.0f} s old, it may be {oldest_index:g}")

    async def signals_arrive() -> None:
        if not signals.connected:
            raise Unavailable("the connection that signals come by is lost; it is being made again")

    async def keystone_answers() -> None:
        status, _, _ = await keystone.request("GET", "")
        if status >= 500:
            raise Unavailable(f"Keystone answers {status}")

    return {
        "database": database_answers,
        "schema": schema_is_current,
        "index": index_is_fresh,
        "signals": signals_arrive,
        "keystone": keystone_answers,
    }
