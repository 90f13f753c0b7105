"""The clocks of hosts and of the control plane are hours apart, and nothing changes."""

from datetime import timedelta

import pytest
from cryptography import x509

from moorage.agent.fleet import Fleet, hosts
from moorage.agentlink import model
from moorage.agentlink.authority import Authority
from moorage.core.clock import utcnow
from moorage.server.listeners import Listeners
from moorage.wire.messages import StopGuest
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
