"""``moorage agent`` as a program, with simulated guests."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any


@contextlib.asynccontextmanager
async def agent_of(
    url: str,
    host: str,
    folder: Path,
    ticket: str,
    environ: Mapping[str, str] = os.environ,
    words: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Path]:
    """A host's agent from the start to a SIGTERM; its log, a JSON object a line."""
    secret = folder.with_suffix(".ticket")
    secret.touch(mode=0o600)
    secret.write_text(ticket)
    given = {
        "control_url": url,
        "host": host,
        "state_dir": folder,
        "enroll_token_file": secret,
        "hypervisor": "simulated",
        "datapath": "simulated",
        **options,
    }
    told = folder.with_suffix(".log")
    with told.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "moorage.cli.main", "agent", "--log-json", *words),
            *(f"--set={name}={value}" for name, value in given.items()),
            stderr=log,
            env=environ,
        )
        try:
            yield told
        finally:
            process.terminate()
            await process.wait()
