"""The simulated hosts that ``moorage up`` brings along behave as the options say."""

from pathlib import Path

import aiohttp

from moorage.core import config
from moorage.server.allinone import AllInOne
from moorage.server.options import options
from tests.cloud.test_boot import server
from tests.support.cloud import Client, reported
from tests.support.identity import Identity


async def test_their_guests_fail_as_often_as_they_are_told_to(
    database_url: str, identity: Identity, image_id: str, tmp_path: Path
) -> None:
    ports = ("compute_port", "placement_port", "network_port", "agent_port", "metrics.port")
    told = {
        "state": str(tmp_path / "s"),
        "database_url": database_url,
        "identity_url": identity.auth_url,
        "image_url": identity.image_url,
        "identity_password": identity.service_password,
        "hosts": "simulated",
        "simulated_hosts": 1,
        "simulated_fault_rate": 1.0,
        **dict.fromkeys(ports, 0),
    }
    conf = config.load(options(), environ={}, overrides=told)
    async with AllInOne(conf).running() as cloud, aiohttp.ClientSession() as session:
        await reported(cloud, 1)
        admin = Client(session, cloud, await identity.token("admin"))
        size = {"flavor": {"name": "f", "ram": 64, "vcpus": 1, "disk": 1}}
        flavor = (await admin.make("compute", "/flavors", size))["flavor"]["id"]
        body = server(image_id, flavor)
        body["server"]["networks"] = "none"
        made = await admin.make("compute", "/servers", body, version="2.37")
        found = await admin.wait_for(made["server"]["id"], "ACTIVE", "ERROR")
        assert found["status"] == "ERROR"
        assert "simulated fault of power_on" in str(found["fault"])
