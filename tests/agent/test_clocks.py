"""The clocks of hosts and of the control plane are hours apart, and nothing changes."""

import asyncio
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from moorage.agent import identity
from moorage.agent.fleet import Fleet, hosts
from moorage.agentlink import model
from moorage.agentlink.authority import Authority
from moorage.core.clock import utcnow
from moorage.server.listeners import Listeners
from moorage.wire.messages import DestroyGuest, StopGuest
from support.agent_program import agent_of
from support.agent_server import PATIENCE, AgentServer
from support.authority import AUTHORITY
from tests.agent.test_agent import spawn


@pytest.mark.parametrize("hours", [-20, -3, 3, 20])
async def test_a_control_plane_whose_clock_differs_by_hours_is_served_all_the_same(
    server, monkeypatch, tmp_path, hours
):
    def theirs():
        return utcnow() + timedelta(hours=hours)

    # Its certificates and its deadlines are by its own clock; the agents have this machine's.
    trusted = x509.load_pem_x509_certificates(AUTHORITY.bundle.encode())
    authority = Authority(AUTHORITY._key, trusted, clock=theirs)
    monkeypatch.setattr(model, "utcnow", theirs)
    server.link.enrolment._signer = authority
    await server.silence()
    server._listeners = Listeners()
    monkeypatch.setattr("support.agent_server.AUTHORITY", authority)
    await server.serve()
    async with Fleet(server.url, hosts(1), ticket=await server.ticket(), state_dir=tmp_path):
        for payload, left in [
            (spawn(), timedelta(minutes=5)),
            (StopGuest(server_id="g1"), -timedelta(minutes=1)),
        ]:
            async with server.database.transaction() as tx:
                sent = await server.link.enqueue(
                    tx,
                    host="sim-0001",
                    operation=f"op {left}",
                    step="s",
                    fence=1,
                    payload=payload,
                    deadline=theirs() + left,
                )
            result = await server.result(sent)
            expected = ("succeeded", None) if left > timedelta() else ("refused", "agent.deadline")
            assert (result.outcome, result.error and result.error.code) == expected


FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


class Clock:
    """A clock of its own for a process: seconds that it is off by, set while it runs too."""

    def __init__(self, file: Path, off: int) -> None:
        self._file = file
        self.set(off)

    def set(self, off: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{off:+d}\n")
        new.rename(self._file)

    def environ(self) -> dict[str, str]:
        # The steady clock stays as it is, as it does where an operator or a time server sets a machine's clock.
        steady = dict.fromkeys(
            ("FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC", "FAKETIME_NO_CACHE"), "1"
        )
        told = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self._file)}
        return {**os.environ, **steady, **told}


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (apt install faketime)")
@pytest.mark.parametrize(
    ("off", "later"),
    [(3600, 3600), (-3600, -3600), (0, 7200), (0, -7200)],
    ids=["an hour ahead", "an hour behind", "jumping forward", "jumping back"],
)
async def test_a_host_whose_clock_is_off_or_jumps_lives_as_any_other(
    server: AgentServer, tmp_path: Path, off: int, later: int
) -> None:
    clock = Clock(tmp_path / "clock", off)
    folder = tmp_path / "h1"

    async def until(question: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not question():
                await asyncio.sleep(0.05)

    async def done(operation: str, payload: object, left: timedelta) -> tuple[str, str | None]:
        async with server.database.transaction() as tx:
            sent = await server.link.enqueue(
                tx,
                host="h1",
                operation=operation,
                step="s",
                fence=1,
                payload=payload,
                deadline=utcnow() + left,
            )
        result = await server.result(sent)
        return result.outcome, result.error and result.error.code

    ticket, soon, over = await server.ticket("h1"), timedelta(minutes=30), -timedelta(minutes=30)
    async with agent_of(server.url, "h1", folder, ticket, clock.environ(), heartbeat=1) as told:
        await server.until(lambda: server.reports)
        assert await done("boot", spawn(), soon) == ("succeeded", None)
        clock.set(later)
        assert await done("stop", StopGuest(server_id="g1"), soon) == ("succeeded", None)
        assert await done("stop too late", StopGuest(server_id="g1"), over) == ("refused", "agent.deadline")
        # The answer to a heartbeat says that it is time, by the control plane's clock.
        before = identity.load(folder)
        async with server.database.transaction() as tx:
            await tx.execute("UPDATE host_certificates SET expires_at = now() + interval '9 days'")
        server.link.certificates._known.clear()
        # The file comes first: told to stop before it has said so, the agent would say nothing.
        await until(lambda: identity.load(folder) != before and "agent.renewed" in told.read_text())
        assert await done("delete", DestroyGuest(server_id="g1"), soon) == ("succeeded", None)
    said = [json.loads(line) for line in told.read_text().splitlines() if line.startswith("{")]
    assert {"agent.enrolled", "agent.renewed"} <= {line["event"] for line in said}
    # Its clock was off indeed.
    off_by = datetime.fromisoformat(said[-1]["timestamp"]) - datetime.now(UTC)
    assert abs(off_by - timedelta(seconds=later)) < timedelta(minutes=20)
