"""Our Placement API under measurement, a process of its own.

    python -m bench.placement.serve DATABASE_URL PORT

It prints one JSON line when it listens, with the seconds that the index took, and runs until SIGTERM.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping

import uvicorn
import uvloop

from moorage.api import RequestContext
from moorage.core import log
from moorage.core.memory import settle
from moorage.placement.http.routes import build_api
from moorage.placement.service import PlacementService
from moorage.store.database import Database
from moorage.store.signals import Signals


async def anybody(_headers: Mapping[str, str], request_id: str) -> RequestContext:
    """Everybody is the administrator, as with the test tokens of OpenStack's."""
    return RequestContext(
        request_id=request_id, user_id="admin", project_id="admin", roles=frozenset(("admin",))
    )


async def serve(url: str, port: int) -> None:
    """Serve until SIGTERM."""
    async with _opened(Database(url)) as database:
        signals = Signals(database)
        await signals.start()
        service = PlacementService(database, signals)
        began = time.perf_counter()
        await service.start()
        settle()
        print(
            json.dumps({"index": time.perf_counter() - began, "providers": len(service.index.columns)}),
            flush=True,
        )
        follower = asyncio.create_task(service.follower.run())
        api = build_api(service, authenticate=anybody)
        config = uvicorn.Config(api, "127.0.0.1", port, log_level="warning", lifespan="off", access_log=False)
        await uvicorn.Server(config).serve()
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        await signals.stop()


class _opened:  # noqa: N801  reads as a verb
    def __init__(self, database: Database) -> None:
        self._database = database

    async def __aenter__(self) -> Database:
        await self._database.open()
        return self._database

    async def __aexit__(self, *_: object) -> None:
        await self._database.close()


if __name__ == "__main__":
    log.configure(level="WARNING")
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
