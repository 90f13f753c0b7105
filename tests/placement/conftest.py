"""The Placement API over ASGI, with a real PostgreSQL behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from moorage.placement.http.routes import build_api
from moorage.placement.service import PlacementService
from moorage.store.database import Database
from tests.support.placement import Client
from tests.support.tokens import check


@pytest.fixture
async def http(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    app = build_api(PlacementService(database), authenticate=check)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
        yield client


@pytest.fixture
def admin(http: httpx.AsyncClient) -> Client:
    return Client(http, "admins:admin")


@pytest.fixture
def member(http: httpx.AsyncClient) -> Client:
    return Client(http, "p1:member+reader")
