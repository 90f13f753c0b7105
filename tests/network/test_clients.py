"""The clients people have: openstacksdk, and the ``openstack`` command, over real HTTP."""

import asyncio
import json
import sys
from pathlib import Path

import openstack
import pytest
import uvicorn
from keystoneauth1 import session, token_endpoint

from moorage.api import RequestContext
from moorage.network.http import network_api


async def check(_headers, request_id):
    return RequestContext(
        request_id=request_id, project_id="p1", user_id="u", roles=frozenset({"admin", "member", "reader"})
    )


@pytest.fixture
async def url(world):
    app = network_api(world.service, world.database, authenticate=check)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(120):
        while not server.started:
            await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await task


def use_sdk(url):
    auth = token_endpoint.Token(url, "t")
    cloud = openstack.connection.Connection(session=session.Session(auth=auth), region_name="r")
    network = cloud.network.create_network(name="net", description="d")
    subnet = cloud.network.create_subnet(
        network_id=network.id, cidr="10.5.0.0/24", ip_version=4, dns_nameservers=["9.9.9.9"], name="sub"
    )
    assert subnet.allocation_pools == [{"start": "10.5.0.2", "end": "10.5.0.254"}]
    assert cloud.network.find_network("net", ignore_missing=False).subnet_ids == [subnet.id]
    group = cloud.network.create_security_group(name="web")
    rule = cloud.network.create_security_group_rule(
        security_group_id=group.id, direction="ingress", protocol="tcp", port_range_min=80, port_range_max=80
    )
    port = cloud.network.create_port(
        network_id=network.id, security_groups=[group.id], fixed_ips=[{"ip_address": "10.5.0.9"}]
    )
    assert port.status == "DOWN"
    assert [p.id for p in cloud.network.ports(network_id=network.id)] == [port.id]
    port = cloud.network.update_port(port, name="renamed")
    assert port.name == "renamed"
    cloud.network.set_tags(network, ["a"])
    assert cloud.network.get_network(network.id).tags == ["a"]
    assert cloud.network.get_quota("p1").networks == 100
    bulk = cloud.network.create_ports([{"network_id": network.id}, {"network_id": network.id}])
    assert len(list(bulk)) == 2
    assert {e.alias for e in cloud.network.extensions()} > {"security-group"}
    assert list(cloud.network.agents()) == []
    for found in cloud.network.ports():
        cloud.network.delete_port(found)
    cloud.network.delete_security_group_rule(rule)
    cloud.network.delete_security_group(group)
    cloud.network.delete_subnet(subnet)
    cloud.network.delete_network(network)
    assert list(cloud.network.networks()) == []


# The SDK's own classes call methods that it has deprecated.
@pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning")
async def test_sdk(url):
    await asyncio.to_thread(use_sdk, url)


async def command(url, *args):
    program = Path(sys.executable).with_name("openstack")
    login = ("--os-auth-type", "admin_token", "--os-token", "t", "--os-endpoint", url)
    child = await asyncio.create_subprocess_exec(
        str(program),
        *login,
        *args,
        "-f",
        "json",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.slow
async def test_the_openstack_command(url):
    network = await command(url, "network", "create", "cli")
    assert (network["name"], network["provider:network_type"]) == ("cli", "geneve")
    subnet = await command(
        url,
        "subnet",
        "create",
        "--network",
        "cli",
        "--subnet-range",
        "10.6.0.0/24",
        "--dns-nameserver",
        "9.9.9.9",
        "s",
    )
    assert subnet["gateway_ip"] == "10.6.0.1"
    port = await command(url, "port", "create", "--network", "cli", "--fixed-ip", "ip-address=10.6.0.7", "p")
    assert port["fixed_ips"] == [{"subnet_id": subnet["id"], "ip_address": "10.6.0.7"}]
    assert [p["Name"] for p in await command(url, "port", "list", "--network", "cli")] == ["p"]
