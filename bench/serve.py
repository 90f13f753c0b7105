"""The cloud under measurement: a process of its own, told by its standard input what to say and when to stop.

    python -m bench.serve STATE_FOLDER HOSTS

It prints one JSON line when it is up, one for each line it reads, and ends at the end of its input.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import uvloop
from oslo_config import cfg

from moorage.core import config, log
from moorage.core.memory import settle
from moorage.server.allinone import AllInOne
from moorage.server.options import options
from moorage.store import database

_statements = 0


class _CountingTx(database.Tx):
    """A transaction whose statements are counted for all transactions together."""

    __slots__ = ()

    async def fetch(self, sql: str, args: Sequence[Any] = ()) -> list[Any]:
        _count()
        return await super().fetch(sql, args)

    async def execute(self, sql: str, args: Sequence[Any] = ()) -> int:
        _count()
        return await super().execute(sql, args)

    async def execute_many(self, sql: str, args: Iterable[Sequence[Any]]) -> None:
        _count()
        await super().execute_many(sql, args)


def _count() -> None:
    global _statements  # noqa: PLW0603  a measuring process has one cloud
    _statements += 1


def configuration(state: Path, hosts: int) -> cfg.ConfigOpts:
    """Free ports, simulated hosts, no quotas; everything else is as it ships."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(7)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        ports = [listener.getsockname()[1] for listener in listeners]
    names = (
        "compute_port",
        "placement_port",
        "network_port",
        "agent_port",
        "identity_port",
        "image_port",
        "metrics.port",
    )
    limits = {f"quota.{name}": -1 for name in ("instances", "cores", "ram")}
    return config.load(
        options(),
        overrides={
            "state": str(state),
            "hosts": "simulated",
            "simulated_hosts": hosts,
            "log_level": "WARNING",
            "network.quota_port": -1,
            **limits,
            **dict(zip(names, ports, strict=True)),
        },
    )


async def serve(state: Path, hosts: int) -> None:
    """Run until the input ends."""
    conf = configuration(state, hosts)
    log.configure(level="WARNING")
    async with AllInOne(conf, lambda line: print(f"  {line}", file=sys.stderr, flush=True)).running():
        settle()
        say({"up": True, "pid": os.getpid(), "state": str(state)})
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while await reader.readline():
            say({"statements": _statements})


def say(value: dict[str, Any]) -> None:
    """One line for the parent."""
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    database.Tx = _CountingTx  # type: ignore[misc]
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
