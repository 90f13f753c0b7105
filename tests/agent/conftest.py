"""What the agent's tests share: the control plane's agent API alone."""

from collections.abc import AsyncIterator

import pytest

from support.agent_server import AgentServer


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[AgentServer]:
    async with AgentServer(database_url) as made:
        yield made
