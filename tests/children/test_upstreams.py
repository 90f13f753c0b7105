"""Real Keystone and Glance on a real PostgreSQL, used as people use them."""

import asyncio
import hashlib
import stat
import warnings

import aiohttp
import msgspec
import openstack
import pytest
import yaml

from moorage.children.bootstrap import Addresses
from moorage.children.identity import IdentityClient
from moorage.children.process import group_alive
from moorage.children.upstreams import Upstreams
from tests.support.identity import Identity, identity


@pytest.fixture(scope="module")
async def upstream(postgres, tmp_path_factory):
    async with identity(postgres.url(), tmp_path_factory.mktemp("upstream"), images=True) as found:
        yield found


async def catalogue(found: Identity, user: str) -> dict:
    """The token of a user as Keystone tells it to the service user."""
    headers = {"X-Auth-Token": await found.token("moorage"), "X-Subject-Token": await found.token(user)}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{found.auth_url}/auth/tokens", headers=headers) as answer,
    ):
        assert answer.status == 200
        return (await answer.json())["token"]


def addresses(token: dict, region: str = "RegionOne") -> dict[tuple[str, str], str]:
    return {
        (service["type"], endpoint["interface"]): endpoint["url"]
        for service in token["catalog"]
        for endpoint in service["endpoints"]
        if endpoint["region_id"] == region
    }


@pytest.mark.parametrize(
    ("user", "project", "roles"),
    [
        ("admin", "admin", {"admin"}),
        ("demo", "demo", {"member"}),
        ("demo-reader", "demo", {"reader"}),
        ("other", "other", {"member"}),
        ("moorage", "service", {"service", "admin"}),
    ],
)
async def test_the_service_user_validates_tokens(upstream, user, project, roles):
    token = await catalogue(upstream, user)
    assert token["project"]["name"] == project
    assert token["project"]["id"] == upstream.users[user].project_id
    assert {role["name"] for role in token["roles"]} >= roles


async def test_the_catalogue_has_every_api_at_every_interface(upstream):
    found = addresses(await catalogue(upstream, "demo"))
    for interface in ("public", "internal", "admin"):
        assert found["compute", interface] == "http://127.0.0.1:8774/v2.1"
        assert found["placement", interface] == "http://127.0.0.1:8778"
        assert found["network", interface] == "http://127.0.0.1:9696"
        assert found["identity", interface] == upstream.auth_url
        assert found["image", interface] == upstream.image_url


async def test_a_cloud_under_test_has_a_region_of_its_own(upstream):
    await upstream.publish(Addresses(compute="http://127.0.0.1:1/v2.1"), region="RegionTwo")
    await upstream.publish(Addresses(compute="http://127.0.0.1:2/v2.1"), region="RegionTwo")
    token = await catalogue(upstream, "demo")
    assert addresses(token, "RegionTwo")["compute", "public"] == "http://127.0.0.1:2/v2.1"
    assert addresses(token)["compute", "public"] == "http://127.0.0.1:8774/v2.1"


async def test_an_image_goes_up_and_comes_down(upstream):
    content = bytes(range(256)) * 4096

    def use() -> tuple[bytes, str, int]:
        with openstack.connect(**upstream.cloud("demo"), load_yaml_config=False) as cloud:
            image = cloud.image.create_image(
                name="tiny", data=content, disk_format="raw", container_format="bare", wait=True
            )
            image = cloud.image.get_image(image.id)
            back = cloud.image.download_image(image).content
            return back, image.hash_value, image.size

    back, digest, size = await asyncio.to_thread(quietly, use)
    assert back == content
    assert size == len(content)
    assert digest == hashlib.sha512(content).hexdigest()


async def test_another_project_does_not_see_an_image_and_a_reader_makes_none(upstream):
    def use() -> tuple[list[str], str]:
        with openstack.connect(**upstream.cloud("demo"), load_yaml_config=False) as cloud:
            cloud.image.create_image(name="mine", data=b"x", disk_format="raw", container_format="bare")
        with openstack.connect(**upstream.cloud("other"), load_yaml_config=False) as cloud:
            seen = [image.name for image in cloud.image.images()]
        with (
            openstack.connect(**upstream.cloud("demo-reader"), load_yaml_config=False) as cloud,
            pytest.raises(openstack.exceptions.HttpException) as refused,
        ):
            cloud.image.create_image(name="no", data=b"x", disk_format="raw", container_format="bare")
        return seen, str(refused.value)

    seen, refused = await asyncio.to_thread(quietly, use)
    assert "mine" not in seen
    assert "403" in refused or "Forbidden" in refused


async def test_a_restart_keeps_everything_and_a_lost_state_folder_gets_new_passwords(upstream, tmp_path):
    """The last test here: it takes the module's Keystone down and up, twice."""
    running = upstream.upstreams
    before = running.project_ids
    pids = [running.keystone.child.pid, running.glance.child.pid]
    await running.stop()
    assert not any(group_alive(pid) for pid in pids)
    assert list((running.settings.state / "run").iterdir()) == []

    moved = msgspec.structs.replace(
        running.settings, addresses=Addresses(compute="http://127.0.0.1:3/v2.1"), plan=None, with_images=False
    )
    second = Upstreams(moved)
    await second.start()
    try:
        assert not second.keystone.renewed
        assert second.project_ids == before
        written = yaml.safe_load(second.clouds_file.read_text())["clouds"]
        assert set(written) == {"moorage", "moorage-admin"}
        assert stat.S_IMODE(second.clouds_file.stat().st_mode) == 0o600

        def compute() -> str:
            with openstack.connect(**written["moorage"], load_yaml_config=False) as cloud:
                return cloud.session.get_endpoint(service_type="compute", region_name="RegionOne")

        assert await asyncio.to_thread(quietly, compute) == "http://127.0.0.1:3/v2.1"
    finally:
        await second.stop()

    third = Upstreams(msgspec.structs.replace(moved, state=tmp_path))
    assert third.credentials["demo"] != second.credentials["demo"]
    await third.start()
    try:
        assert third.keystone.renewed
        assert third.project_ids == before
        login = {"username": "demo", "password": third.credentials["demo"], "project": "demo"}
        async with IdentityClient(third.auth_url, **login) as client:
            assert await client.call("GET", "/auth/projects")
    finally:
        await third.stop()


def quietly(function):
    """Run openstacksdk, whose libraries warn of things that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()
