"""Talking to a QEMU: one short session a question, so that no connection outlives what it was made for."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient, QMPError

from moorage.agent.errors import GuestFailure

# The library tells every closed connection as an error with its trace; what matters is raised here.
_quiet = logging.getLogger("moorage.agent.qmp")
_quiet.setLevel(logging.CRITICAL)
_SECONDS = 10.0


@contextlib.asynccontextmanager
async def session(folder: Path) -> AsyncIterator[QMPClient]:
    """A session with the QEMU whose ``qmp.sock`` is in ``folder``. Raises GuestFailure when it does not answer.

    The socket is reached through the folder's descriptor: a socket's path may have only 107 bytes.
    """
    client = QMPClient()
    client.logger = _quiet
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        async with asyncio.timeout(_SECONDS):
            await client.connect(f"/proc/self/fd/{descriptor}/qmp.sock")
    except (QMPError, OSError, TimeoutError) as error:
        message = f"QEMU in {folder} does not answer over QMP: {error}"
        raise GuestFailure(message) from error
    finally:
        os.close(descriptor)
    try:
        yield client
    finally:
        with contextlib.suppress(QMPError, OSError, EOFError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                await client.disconnect()


async def ask(folder: Path, command: str, **arguments: Any) -> Any:
    """Execute one command; its return value. Raises GuestFailure."""
    async with session(folder) as client:
        try:
            async with asyncio.timeout(_SECONDS):
                return await client.execute(command, arguments or None)
        except (QMPError, OSError, EOFError, TimeoutError) as error:
            message = f"QEMU refused {command}: {error}"
            raise GuestFailure(message) from error
