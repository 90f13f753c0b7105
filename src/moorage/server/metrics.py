"""What Prometheus sees of a cloud: GET /metrics on a port of its own.

Requests are counted as they are answered (``api/metrics.py``). What is in the database is read when somebody asks, by
one statement, and kept for a few seconds, so that several who ask cost no more than one. It is the same in every
process of a cloud; the rest is this process's own.

    moorage_requests_total, moorage_request_duration_seconds   by api, method, endpoint (and status)
    moorage_operations, moorage_operations_oldest_seconds      open operations by kind and state
    moorage_operations_waiting                                 the same by kind and what they wait for
    moorage_operation_duration_seconds                         those that ended here, by kind and outcome
    moorage_step_duration_seconds                              by kind, step and direction (run, undo): work here
    moorage_step_answer_seconds                                the same and outcome: how long hosts took
    moorage_commands_outstanding, moorage_commands_oldest_seconds   commands without a result, by kind
    moorage_hosts                                              by state: up, down, disabled
    moorage_placement_index_age_seconds
    moorage_database_up, moorage_database_connections          of this process's pool, by state
    moorage_keeper_last_pass_*                                 by keeper: when, how long, failures in a row
    moorage_http_connections                                   by port
    process_*                                                  CPU, memory, open files
"""

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from moorage.agentlink.tables import commands, hosts
from moorage.api.endpoint import Endpoint
from moorage.api.metrics import RequestMetrics
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.keepers import Keeper
from moorage.operations.metrics import OperationMetrics
from moorage.operations.tables import operations
from moorage.operations.waits import WAITS_FOR
from moorage.store.database import Database
from moorage.store.statement import Statement

log = get_logger(__name__)


Values = Mapping[Any, float | None]
"""By the values of the labels; None is left out."""


class _Row(msgspec.Struct, frozen=True):
    what: str
    kind: str
    state: str
    waits_for: str
    number: int
    longest: float | None


_EMPTY: Any = sa.literal_column("''")


def _age(column: Any) -> Any:
    return sa.func.extract("epoch", sa.func.now() - column).cast(sa.Double)


def _rows(what: str, kind: Any, state: Any, waits_for: Any = _EMPTY, longest: Any = None) -> Any:
    return sa.select(
        sa.literal_column(f"'{what}'").label("what"),
        sa.cast(kind, sa.Text).label("kind"),
        sa.cast(state, sa.Text).label("state"),
        sa.cast(waits_for, sa.Text).label("waits_for"),
        sa.func.count().label("number"),
        (sa.null().cast(sa.Double) if longest is None else longest).label("longest"),
    ).group_by(sa.text("2"), sa.text("3"), sa.text("4"))


# Three counts in one round trip; each reads by a partial index, or a small table. Of what has ended no row is read.
_COUNTS = Statement(
    sa.union_all(
        _rows(
            "operations",
            operations.c.kind,
            operations.c.state,
            WAITS_FOR,
            longest=sa.func.max(_age(operations.c.created_at)),
        ).where(sa.text("state IN ('ready', 'running', 'waiting', 'stuck')")),
        _rows("outstanding", commands.c.kind, _EMPTY, longest=sa.func.max(_age(commands.c.created_at))).where(
            commands.c.finished_at.is_(None)
        ),
        _rows(
            "hosts",
            _EMPTY,
            sa.case(
                (hosts.c.disabled, "disabled"),
                (hosts.c.last_seen > sa.func.now() - sa.bindparam("down", type_=sa.Interval), "up"),
                else_="down",
            ),
        ),
    ),
    row=_Row,
)


class CloudMetrics:
    """The registry of one cloud. ``keep``: seconds that what was read from the database is shown.

    ``index_age`` gives seconds; ``keepers`` and ``connections`` (by port) are asked at each scrape.
    """

    def __init__(
        self,
        database: Database,
        *,
        service_down_time: float,
        index_age: Callable[[], float],
        keepers: Callable[[], Iterable[Keeper]],
        connections: Callable[[], Mapping[int, int]],
        keep: float = 5.0,
    ) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry)
        self.operations = OperationMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        self._database = database
        self._down = timedelta(seconds=service_down_time)
        self._index_age = index_age
        self._keepers = keepers
        self._connections = connections
        self._keep = keep
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._rows: list[_Row] = []
        self._up = False
        self.registry.register(_Cloud(self._collect))

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """The text and its media type, in the newest form that ``accept`` names."""
        async with self._lock:
            if time.monotonic() >= self._until:
                await self._read()
                self._until = time.monotonic() + self._keep
        encode, media = choose_encoder(accept)
        return encode(self.registry), media

    async def _read(self) -> None:
        try:
            async with self._database.read() as tx:
                self._rows = await _COUNTS.all(tx, down=self._down)
            self._up = True
        except MoorageError as error:
            log.warning("metrics.unread", error=error.message)
            self._rows, self._up = [], False

    def _collect(self) -> Iterator[Metric]:
        yield from self._from_database()
        yield from self._from_process()

    def _from_database(self) -> Iterator[Metric]:
        yield _gauge("moorage_database_up", "Whether the database answered.", {(): float(self._up)})
        by: dict[str, list[_Row]] = {}
        for row in self._rows:
            by.setdefault(row.what, []).append(row)
        opened, waiting = by.get("operations", []), by.get("outstanding", [])
        states, queues, oldest = Counter[Any](), Counter[Any](), dict[Any, float]()
        for row in opened:
            state = (row.kind, row.state)
            states[state] += row.number
            queues[row.kind, row.waits_for] += row.number
            oldest[state] = max(oldest.get(state, 0.0), row.longest or 0.0)
        labels = ("kind", "state")
        yield _gauge("moorage_operations", "Open operations.", states, labels)
        yield _gauge("moorage_operations_oldest_seconds", "Age of the oldest open operation.", oldest, labels)
        yield _gauge(
            "moorage_operations_waiting",
            "Open operations by what they wait for: their turn, a conductor, room at a host, a host, an event, a retry, an operator.",
            queues,
            ("kind", "waits_for"),
        )
        yield _gauge(
            "moorage_commands_outstanding",
            "Commands to hosts without a result.",
            {(r.kind,): r.number for r in waiting},
            ("kind",),
        )
        yield _gauge(
            "moorage_commands_oldest_seconds",
            "Age of the oldest command without a result.",
            {(r.kind,): r.longest for r in waiting},
            ("kind",),
        )
        if self._up:
            hosts_by = {"up": 0, "down": 0, "disabled": 0} | {r.state: r.number for r in by.get("hosts", [])}
            yield _gauge("moorage_hosts", "Hosts.", {(k,): v for k, v in hosts_by.items()}, ("state",))

    def _from_process(self) -> Iterator[Metric]:
        yield _gauge(
            "moorage_placement_index_age_seconds",
            "Time since the placement index equalled what was committed.",
            {(): self._index_age()},
        )
        used, opened = self._database.connections
        pool = {("used",): used, ("idle",): opened - used, ("unopened",): self._database.size - opened}
        yield _gauge("moorage_database_connections", "Connections of the pool.", pool, ("state",))
        yield _gauge(
            "moorage_http_connections",
            "Open connections.",
            {(str(port),): count for port, count in self._connections().items()},
            ("port",),
        )
        last = {(keeper.name,): keeper.last for keeper in self._keepers() if keeper.last is not None}
        for name, help_, values in (
            ("timestamp_seconds", "began", {k: p.started_at.timestamp() for k, p in last.items()}),
            ("duration_seconds", "took", {k: p.seconds for k, p in last.items()}),
            ("failures", "failed, how often in a row", {k: p.failures for k, p in last.items()}),
        ):
            yield _gauge(
                f"moorage_keeper_last_pass_{name}", f"The keeper's last pass {help_}.", values, ("keeper",)
            )


class _Cloud(Collector):
    """Gauges that are made when they are asked for."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return []


def _gauge(name: str, help_: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    found = GaugeMetricFamily(name, help_, labels=labels)
    for key, value in values.items():
        if value is not None:
            found.add_metric(key, value)
    return found


PATH = "/metrics"


class MetricsApp:
    """GET /metrics; with ``token``, for those who bring it as a bearer token."""

    def __init__(self, metrics: CloudMetrics, token: str | None) -> None:
        self._metrics = metrics
        self._token = token

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        if scope["path"] != PATH:
            await _send(send, 404, b"see /metrics\n")
        elif scope["method"] != "GET":
            await _send(send, 405, b"GET alone\n", ("allow", "GET"))
        elif not self._may(headers):
            await _send(send, 401, b"a bearer token is needed\n", ("www-authenticate", "Bearer"))
        else:
            text, media = await self.show(headers.get("accept", ""))
            await _send(send, 200, text, media=media)

    async def show(self, accept: str) -> tuple[bytes, str]:
        """What Prometheus reads. Where [metrics] token is set, for who brings it as a bearer token; else open to all."""
        return await self._metrics.exposition(accept)

    def _may(self, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        wanted = f"Bearer {self._token}"
        return self._token is None or hmac.compare_digest(given.encode(), wanted.encode())


async def _send(
    send: Send, status: int, text: bytes, *extra: tuple[str, str], media: str = "text/plain; charset=utf-8"
) -> None:
    headers = [("content-type", media), ("content-length", str(len(text))), *extra]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": text})


ENDPOINTS = (Endpoint("GET", PATH, MetricsApp.show, response=str, produces="text/plain"),)
"""For the documents."""
