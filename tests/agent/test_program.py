"""The agent as a program in a network namespace, with real QEMU, Open vSwitch and OVN."""

import asyncio
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from moorage.agent.main import run
from moorage.wire.messages import BootImage, DestroyGuest, SpawnGuest, Vif
from support.agent_server import PATIENCE, AgentServer

PROGRAMS = ("qemu-system-x86_64", "qemu-img", "ovs-vswitchd", "ovn-controller", "ovn-northd", "ip")
SCHEMAS = Path("/usr/share/openvswitch/vswitch.ovsschema"), Path("/usr/share/ovn")
missing = [
    p for p in PROGRAMS if shutil.which(p, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
]
needs_host = pytest.mark.skipif(
    os.geteuid() != 0 or bool(missing),
    reason=f"needs root and installed: {', '.join(missing) or 'nothing more'}",
)
pytestmark = pytest.mark.lab
PORT = "5f0f3b1e-1111-4222-8333-444455556666"


def sh(*arguments, check=True, **environ):
    done = subprocess.run(
        [str(a) for a in arguments],
        check=check,
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=120,
    )
    return done.stdout.strip()


class Host:
    """A namespace with its own Open vSwitch and ovn-controller, and an OVN central, all below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"mrg-agent-{os.getpid()}"
        self.pidfiles: list[Path] = []

    def daemon(self, program, *arguments, inside=True):
        name = f"{program}-{len(self.pidfiles)}"
        pidfile = self.folder / f"{name}.pid"
        prefix = ["ip", "netns", "exec", self.name] if inside else []
        control = [] if program == "ovn-controller" else [f"--unixctl={self.folder / name}.ctl"]
        sh(
            *prefix,
            program,
            *arguments,
            f"--pidfile={pidfile}",
            *control,
            f"--log-file={self.folder / name}.log",
            "--detach",
            "--no-chdir",
            "-vconsole:off",
            OVS_RUNDIR=str(self.folder),
            OVN_RUNDIR=str(self.folder),
        )
        self.pidfiles.append(pidfile)

    def vsctl(self, *arguments):
        return sh("ovs-vsctl", f"--db=unix:{self.folder}/conf.sock", *arguments)

    def start(self):
        sh("ip", "netns", "add", self.name)
        sh("ip", "-n", self.name, "link", "set", "dev", "lo", "up")
        for db, schema in [
            ("nb", SCHEMAS[1] / "ovn-nb.ovsschema"),
            ("sb", SCHEMAS[1] / "ovn-sb.ovsschema"),
            ("conf", SCHEMAS[0]),
        ]:
            sh("ovsdb-tool", "create", self.folder / f"{db}.db", schema)
            self.daemon("ovsdb-server", self.folder / f"{db}.db", f"--remote=punix:{self.folder}/{db}.sock")
        nb, sb = f"unix:{self.folder}/nb.sock", f"unix:{self.folder}/sb.sock"
        self.daemon("ovn-northd", f"--ovnnb-db={nb}", f"--ovnsb-db={sb}")
        self.vsctl("--no-wait", "init")
        self.daemon("ovs-vswitchd", f"unix:{self.folder}/conf.sock", "--disable-system")
        self.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
        ids = {
            "system-id": "chassis-1",
            "ovn-remote": sb,
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": "127.0.0.1",
            "ovn-bridge-datapath-type": "netdev",
            "ovn-bridge-mappings": "physnet1:br-ext,physnet0:br-int",
        }
        self.vsctl("set", "open", ".", *(f"external-ids:{k}={v}" for k, v in ids.items()))
        self.daemon("ovn-controller", f"unix:{self.folder}/conf.sock")
        sh("ovn-nbctl", f"--db={nb}", "ls-add", "net1", "--", "lsp-add", "net1", PORT)

    def stop(self):
        for pidfile in reversed(self.pidfiles):
            if pidfile.exists():
                os.kill(int(pidfile.read_text()), signal.SIGKILL)
        sh("ip", "netns", "del", self.name, check=False)


@pytest.fixture
def host() -> Iterator[Host]:
    with TemporaryDirectory(prefix="mrg-", dir="/tmp") as folder:
        made = Host(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()


def spawn(image):
    return SpawnGuest(
        server_id="8a2f1a50-5d0f-4a37-9e0e-0f1f2a3b4c5d",
        name="one",
        hostname="one",
        project_id="p",
        user_id="u",
        vcpus=1,
        memory_mb=32,
        disk_gb=1,
        image=image,
        vifs=(
            Vif(
                port_id=PORT,
                mac="fa:16:3e:00:00:01",
                network_id="n",
                iface=f"tap{PORT[:11]}",
                vif_type="ovs",
                mtu=1400,
            ),
        ),
    )


class Program:
    """``python -m moorage.agent.main`` in the namespace of a host."""

    def __init__(
        self, host: Host, server: AgentServer, state: Path, token: str, plug_timeout: int = 120
    ) -> None:
        options = {
            "control_url": server.url,
            "host": "h1",
            "state_dir": state,
            "enroll_token": token,
            "ovsdb": f"unix:{host.folder}/conf.sock",
            "netns": host.name,
            "heartbeat": 1,
            "plug_timeout": plug_timeout,
        }
        sets = [f"--set={k}={v}" for k, v in options.items()]
        self.log = (state.parent / "agent.log").open("ab")
        self.process = subprocess.Popen([sys.executable, "-m", "moorage.agent.main", *sets], stderr=self.log)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.log.close()


@needs_host
async def test_a_real_guest_on_a_real_port_outlives_kill_9_of_its_agent(host, server, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    content = bytes(1 << 20)
    # The namespace has no way to the test's own network: the image is put into the cache as if downloaded.
    digest = hashlib.sha256(content).hexdigest()
    cache = tmp_path / "state" / "images"
    cache.mkdir(parents=True)
    (cache / f"sha256-{digest}").write_bytes(content)
    image = BootImage(
        id="i", url="http://127.0.0.1:1/i", hash_algo="sha256", hash_value=digest, size=len(content)
    )
    request = spawn(image)
    tap = request.vifs[0].iface
    agent = Program(host, server, tmp_path / "state", await server.ticket())
    try:
        await server.until(lambda: server.reports)
        report = server.reports[0][1]
        assert report.physical_networks == ("physnet0", "physnet1")
        assert (report.chassis, report.datapath, report.hypervisor_type) == ("chassis-1", "ovn", "QEMU")
        result = await server.result(await server.send("h1", request, operation="boot"))
        assert result.outcome == "succeeded", result.error
        ids = host.vsctl("get", "Interface", tap, "external_ids")
        assert f'iface-id="{PORT}"' in ids
        assert 'ovn-installed="true"' in ids
        assert "mtu 1400" in sh("ip", "-n", host.name, "link", "show", tap)

        agent.end(signal.SIGKILL)
        # The guest's port is there; of one that will never come, it need not wait for long.
        agent = Program(host, server, tmp_path / "state", "used", plug_timeout=3)
        again = await server.result(await server.send("h1", request, operation="boot", fence=2))
        assert again.outcome == "succeeded", again.error
        async with asyncio.timeout(PATIENCE):
            while True:
                async with server.database.read() as tx:
                    guests = (await server.link.registry.host(tx, "h1")).guests
                if guests == [{"server_id": request.server_id, "power_state": "running"}]:
                    break
                await asyncio.sleep(0.1)
        strange = Vif(
            port_id="not-in-ovn", mac="fa:16:3e:00:00:02", network_id="n", iface="tapx", vif_type="ovs"
        )
        wrong = msgspec.structs.replace(request, server_id="other", vifs=(strange,))
        refused = await server.result(await server.send("h1", wrong, operation="boot2"))
        assert (refused.outcome, refused.error.code) == ("failed", "agent.plug_timeout")
    finally:
        for server_id in (request.server_id, "other"):
            ended = await server.result(
                await server.send("h1", DestroyGuest(server_id=server_id), operation=f"end-{server_id}")
            )
            assert ended.outcome == "succeeded", ended.error
        agent.end()
    assert agent.process.returncode == 0
    assert host.vsctl("list-ports", "br-int") == ""
    assert "tap" not in sh("ip", "-n", host.name, "link")
    assert list((tmp_path / "state" / "guests").iterdir()) == []


@pytest.fixture
def own_logs():
    """The program sends the process's logs to its own stream, and sets its umask; afterwards they are as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    mask = os.umask(0o022)
    yield
    os.umask(mask)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_option_that_is_not_there_is_named(own_logs, capsys):
    with pytest.raises(SystemExit):
        run(["--set", "colour=blue"])
    assert "colour" in capsys.readouterr().err


def test_a_host_without_token_ends_with_a_sentence(own_logs, tmp_path, capsys):
    sets = [f"--set=state_dir={tmp_path}", "--set=hypervisor=simulated", "--set=datapath=simulated"]
    assert run(sets) == 1
    assert "enroll_token" in capsys.readouterr().err
