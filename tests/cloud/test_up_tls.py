"""``moorage up`` by HTTPS, as its owner configures it: nothing of the public APIs is left in the clear."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.program import MoorageUp, processes_of
from tests.server.test_tls import Files
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]
APIS = ("compute", "placement", "network")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def cloud(files: Files) -> Iterator[MoorageUp]:
    state = Path(tempfile.mkdtemp(prefix="mt-"))
    made = MoorageUp(
        state,
        hosts="simulated",
        simulated_hosts=2,
        tls_certificate_file=files.certificate,
        tls_key_file=files.key,
        tls_ca_file=files.bundle,
    )
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(state)


def test_moorage_up_by_https_serves_a_user_from_catalogue_to_delete(cloud: MoorageUp, files: Files) -> None:
    cloud.start()
    entries = yaml.safe_load((cloud.state / "clouds.yaml").read_text())["clouds"]
    assert {entry["cacert"] for entry in entries.values()} == {str(files.bundle)}

    user, admin = cloud.connect(), cloud.connect("moorage-admin")
    # Keystone and Glance are children that speak HTTP on this machine.
    catalogue = {
        service["type"]: service["endpoints"][0]["url"]
        for service in user.session.auth.get_access(user.session).service_catalog.catalog
    }
    assert {name: url.partition(":")[0] for name, url in catalogue.items()} == {
        "compute": "https",
        "placement": "https",
        "network": "https",
        "identity": "http",
        "image": "http",
    }

    flavor = admin.create_flavor("tiny", ram=64, vcpus=1, disk=1)
    image = admin.create_image(
        "tiny", data=b"\0" * 512, disk_format="raw", container_format="bare", visibility="public", wait=True
    )
    until(
        lambda: len([h for h in admin.compute.hypervisors() if h.state == "up"]) == 2,
        "the simulated hosts are up",
    )
    net = user.network.create_network(name="net")
    user.network.create_subnet(network_id=net.id, cidr="10.9.0.0/24", ip_version=4)
    made = user.compute.create_server(
        name="one", image_id=image.id, flavor_id=flavor.id, networks=[{"uuid": net.id}]
    )
    server = user.compute.wait_for_server(made, wait=PATIENCE)
    assert server.status == "ACTIVE"
    until(lambda: cloud.command("audit").returncode == 0, "the audit is clean")
    user.compute.delete_server(server)
    user.compute.wait_for_delete(server, wait=PATIENCE)
    assert list(user.network.ports(network_id=net.id)) == []

    trusting = files.trusting()
    patient: dict[str, Any] = {"trust_env": False, "timeout": PATIENCE}
    for api in APIS:
        url = cloud.url(api, "https") + "/healthcheck"
        # A process under load may say for a moment that it is not ready.
        until(lambda at=url: httpx.get(at, verify=trusting, **patient).text == "OK", f"{api} is ready")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(url, **patient)
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            httpx.get(cloud.url(api) + "/healthcheck", **patient)

    assert cloud.stop() == 0
    assert processes_of(cloud.state) == {}
