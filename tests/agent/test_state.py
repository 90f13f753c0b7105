"""What an agent keeps on its host is read by its own account alone."""

import asyncio
import base64
import hashlib
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from moorage.wire.messages import BootImage, ConfigDrive, DestroyGuest
from support.agent_program import agent_of
from support.agent_server import PATIENCE
from tests.agent.test_agent import spawn
from tests.agent.test_command import moorage_agent

USER_DATA = "hunter-user-data"
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None or shutil.which("qemu-img") is None,
    reason="QEMU is not installed (apt install qemu-system-x86 qemu-utils)",
)


def modes(root: Path) -> dict[str, int]:
    """The mode of everything there, by path."""
    return {str(p.relative_to(root)): p.stat().st_mode & 0o777 for p in (root, *root.rglob("*"))}


def request(state: Path):
    """A guest with a config drive, and its image in the cache as if it had been downloaded."""
    content = bytes(1 << 20)
    digest = hashlib.sha256(content).hexdigest()
    state.mkdir()
    (state / "images").mkdir()
    (state / "images" / f"sha256-{digest}").write_bytes(content)
    image = BootImage(
        id="i", url="http://127.0.0.1:1/i", hash_algo="sha256", hash_value=digest, size=len(content)
    )
    drive = ConfigDrive(
        meta_data={}, network_data={}, user_data=base64.b64encode(USER_DATA.encode()).decode()
    )
    return msgspec.structs.replace(spawn("g1", ports=0), image=image, config_drive=drive)


@needs_qemu
@pytest.mark.lab
async def test_nobody_else_reads_a_guest_and_what_an_earlier_release_left_open_is_closed_while_it_runs(
    server, tmp_path
):
    state = tmp_path / "state"
    guest = request(state)
    folder = state / "guests" / "g1"
    options = {"hypervisor": "qemu", "heartbeat": 1}
    mask = os.umask(0)
    try:
        async with agent_of(server.url, "h1", state, await server.ticket(), **options):
            result = await server.result(await server.send_when_known("h1", guest, operation="boot"))
            assert result.outcome == "succeeded", result.error
            pid = (folder / "qemu.pid").read_text()
            found = modes(state)
            assert {found[p] for p in (".", "guests", "guests/g1")} == {0o700}
            assert found["guests/g1/config.iso"] == 0o600
            assert USER_DATA.encode() in (folder / "config.iso").read_bytes()
            # QEMU has a umask of its own, and its group may read what it writes: the folder is closed to all.
            assert not [p for p, mode in found.items() if mode & 0o007 and not p.startswith("images")]
        for path in (state, state / "guests", folder):
            path.chmod(0o755)
        for name in ("config.iso", "console.log", "disk.qcow2"):
            (folder / name).chmod(0o644)
        async with agent_of(server.url, "h1", state, "used", **options) as log:
            async with asyncio.timeout(PATIENCE):
                while "guest.found" not in log.read_text():
                    await asyncio.sleep(0.05)
            assert not [p for p, mode in modes(folder).items() if mode & 0o077]
            assert {mode for p, mode in modes(state).items() if p in (".", "guests")} == {0o700}
            assert (folder / "qemu.pid").read_text() == pid
            told = [json.loads(line) for line in log.read_text().splitlines()]
            assert [each["status"] for each in told if each["event"] == "guest.found"] == ["running"]
            assert "agent.tightened" in [each["event"] for each in told]
            ended = await server.send("h1", DestroyGuest(server_id="g1"), operation="end")
            assert (await server.result(ended)).outcome == "succeeded"
        assert not folder.exists()
    finally:
        os.umask(mask)


async def ends(*words: str) -> str:
    """What an agent says that does not begin."""
    agent = await moorage_agent("--set=hypervisor=simulated", "--set=datapath=simulated", *words)
    _, told = await agent.communicate()
    assert agent.returncode == 1
    return told.decode()


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
@pytest.mark.parametrize("where", ["--config-file", "--set=enroll_token_file"])
async def test_a_ticket_that_everybody_may_read_is_refused(tmp_path, where, mode):
    file = tmp_path / "secret"
    file.write_text(
        "[agent]\nenroll_token = hunter-ticket\n" if where == "--config-file" else "hunter-ticket"
    )
    file.chmod(mode)
    told = await ends(f"{where}={file}", f"--set=state_dir={tmp_path / 'state'}")
    assert (
        told
        == f"moorage agent: too open for what is in it: {file} has mode {mode:04o}: chmod g-w,o-rwx {file}\n"
    )
    file.chmod(0o640)
    told = await ends(f"{where}={file}", f"--set=state_dir={tmp_path / 'state'}")
    assert "too open" not in told
    assert "hunter-ticket" not in told


async def test_a_key_that_others_may_read_is_refused(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "identity.json").write_text("{}")
    (state / "identity.json").chmod(0o640)
    told = await ends(f"--set=state_dir={state}")
    assert f"chmod go-rwx {state}/identity.json" in told


async def test_a_folder_of_others_is_refused_and_left_as_it_is(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "somebody's").touch()
    state.chmod(0o755)
    told = await ends(f"--set=state_dir={state}")
    assert told.startswith(f"moorage agent: state_dir {state} has other things in it")
    assert state.stat().st_mode & 0o777 == 0o755
