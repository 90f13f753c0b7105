"""``moorage agent``: the program on hosts as an operator starts it."""

import asyncio
import sys


async def moorage_agent(*words):
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage.cli.main", "agent", *words, stdout=pipe, stderr=pipe
    )


async def test_moorage_agent_enrols_reports_and_ends_when_told(server, tmp_path):
    options = {
        "control_url": server.url,
        "host": "h1",
        "state_dir": tmp_path / "state",
        "enroll_token": await server.ticket("h1"),
        "hypervisor": "simulated",
        "datapath": "simulated",
    }
    agent = await moorage_agent(*(f"--set={name}={value}" for name, value in options.items()))
    try:
        await server.until(lambda: server.reports)
    finally:
        agent.terminate()
        told = await agent.communicate()
    assert agent.returncode == 0, told
    assert server.reports[0][0] == "h1"


async def test_its_help_is_the_agents_own():
    agent = await moorage_agent("--help")
    out, _ = await agent.communicate()
    assert agent.returncode == 0
    assert out.startswith(b"usage: moorage agent")
    assert b"--set OPTION=VALUE" in out
