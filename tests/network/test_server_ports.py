"""The two phases of a server's networking: prepare, bind, unbind, release."""

import asyncio

import pytest

from moorage.network import errors
from moorage.network.model import RequestedNic
from moorage.network.ports import PortSpec


async def prepare(world, server="s1", *nics, project="p1", groups=()):
    async with world.database.transaction() as tx:
        return await world.service.prepare_ports(
            tx, server_id=server, project_id=project, requested=nics, security_groups=groups
        )


async def make_port(world, network, project="p1", **more):
    async with world.database.transaction() as tx:
        [port] = await world.service.ports.create(
            tx, project_id=project, seen_by=project, specs=[PortSpec(network_id=network, **more)]
        )
    return port


async def ports_of(world, server="s1"):
    async with world.database.read() as tx:
        return await world.service.ports_of(tx, server)


async def test_a_port_is_made_with_everything_and_released_without_a_trace(world):
    network = await world.network()
    [port] = await prepare(world, "s1", RequestedNic(network_id=network, tag="eth"))
    assert port.created
    assert port.mac.startswith("fa:16:3e:")
    assert port.fixed_ips[0]["ip_address"].startswith("10.0.0.")
    assert port.segments[0]["network_type"] == "geneve"
    [shown] = await ports_of(world)
    assert (shown.device_id, shown.device_owner, shown.device_tag) == ("s1", "compute:nova", "eth")
    assert shown.fixed_ips == port.fixed_ips
    assert len(shown.security_groups) == 1
    async with world.database.transaction() as tx:
        await world.service.release_ports(tx, server_id="s1")
        await world.service.release_ports(tx, server_id="s1")
    for table in ("ports", "port_fixed_ips", "port_security_groups", "bindings"):
        assert await world.count(table) == 0


async def test_prepare_again_finds_the_same_ports(world):
    network = await world.network()
    nics = (RequestedNic(network_id=network), RequestedNic(network_id=network, fixed_ip="10.0.0.77"))
    first = await prepare(world, "s1", *nics)
    again = await prepare(world, "s1", *nics)
    assert first == again
    assert first[1].fixed_ips[0]["ip_address"] == "10.0.0.77"
    assert await world.count("ports") == 2


async def test_statements_of_one_nic(world):
    network = await world.network()
    await prepare(world, "s0", RequestedNic(network_id=network))
    world.service.changes.followed = False
    async with world.database.transaction() as tx:
        await world.service.prepare_ports(
            tx, server_id="s1", project_id="p1", requested=[RequestedNic(network_id=network)]
        )
        assert tx.statements == 3
    async with world.database.transaction() as tx:
        await world.service.bind_ports(tx, server_id="s1", host="h1")
        assert tx.statements == 2
    async with world.database.transaction() as tx:
        await world.service.unbind_ports(tx, server_id="s1")
        await world.service.release_ports(tx, server_id="s1")
        assert tx.statements == 2


async def test_a_users_port_is_reserved_once_and_given_back_as_it_was(world):
    network = await world.network()
    port = await make_port(world, network, profile={"mine": 1}, name="theirs")
    [prepared] = await prepare(world, "s1", RequestedNic(port_id=port.id))
    assert not prepared.created
    assert prepared.fixed_ips == port.fixed_ips
    with pytest.raises(errors.PortInUse):
        await prepare(world, "s2", RequestedNic(port_id=port.id))
    await prepare(world, "s1", RequestedNic(port_id=port.id))
    async with world.database.transaction() as tx:
        await world.service.bind_ports(tx, server_id="s1", host="h1")
    async with world.database.transaction() as tx:
        await world.service.release_ports(tx, server_id="s1")
        back = await world.service.ports.show(tx, port.id, project_id="p1")
    assert (back.device_id, back.device_owner, back.host, back.status) == ("", "", "", "DOWN")
    assert (back.fixed_ips, back.profile, back.name) == (port.fixed_ips, {"mine": 1}, "theirs")


async def test_another_projects_port_and_network_are_not_found(world):
    network = await world.network("p2")
    port = await make_port(world, network, "p2")
    with pytest.raises(errors.PortNotFound):
        await prepare(world, "s1", RequestedNic(port_id=port.id))
    with pytest.raises(errors.NetworkNotFound):
        await prepare(world, "s1", RequestedNic(network_id=network))
    external = await world.network("p2", external=True)
    with pytest.raises(errors.ExternalNetworkAttachForbidden):
        await prepare(world, "s1", RequestedNic(network_id=external))
    shared = await world.network("p2", shared=True)
    assert await prepare(world, "s1", RequestedNic(network_id=shared))


async def test_a_failure_in_the_middle_leaves_nothing(world):
    network = await world.network()
    full = await world.network(cidr="10.9.0.0/30", subnet={"gateway_ip": None})
    await make_port(world, full)
    await make_port(world, full)
    before = await world.count("port_fixed_ips")
    with pytest.raises(errors.IpAddressGenerationFailure):
        await prepare(world, "s1", RequestedNic(network_id=network), RequestedNic(network_id=full))
    assert await ports_of(world) == []
    assert await world.count("port_fixed_ips") == before


async def test_two_servers_at_once_share_a_users_port_never(world):
    network = await world.network()
    port = await make_port(world, network)
    results = await asyncio.gather(
        *(prepare(world, f"s{i}", RequestedNic(port_id=port.id)) for i in range(4)), return_exceptions=True
    )
    assert sum(not isinstance(r, Exception) for r in results) == 1
    assert all(isinstance(r, errors.PortInUse) for r in results if isinstance(r, Exception))


async def test_bind_plug_unbind_are_repeatable(world):
    network = await world.network()
    await prepare(world, "s1", RequestedNic(network_id=network))
    for _ in range(2):
        async with world.database.transaction() as tx:
            [vif] = await world.service.bind_ports(tx, server_id="s1", host="h1", zone="az1")
    assert (vif.vif_type, vif.mtu, vif.iface) == ("simulated", 1442, f"tap{vif.port_id[:11]}")
    assert (vif.fixed_ips[0].cidr, vif.fixed_ips[0].gateway) == ("10.0.0.0/24", "10.0.0.1")
    async with world.database.transaction() as tx:
        assert not await world.service.port_up(tx, vif.port_id, "h2")
        assert await world.service.port_up(tx, vif.port_id, "h1")
        assert not await world.service.port_up(tx, vif.port_id, "h1")
    assert world.plugged == ["s1"]
    async with world.database.transaction() as tx:
        await world.service.bind_ports(tx, server_id="s1", host="h1")
    [port] = await ports_of(world)
    assert (port.status, port.host, port.device_owner) == ("ACTIVE", "h1", "compute:az1")
    for _ in range(2):
        async with world.database.transaction() as tx:
            await world.service.unbind_ports(tx, server_id="s1")
    [port] = await ports_of(world)
    assert (port.status, port.host, port.vif_type) == ("DOWN", "", "unbound")
    assert await world.count("bindings") == 0
    async with world.database.transaction() as tx:
        assert not await world.service.port_up(tx, vif.port_id, "h1")


async def test_the_same_port_goes_to_the_next_host(world):
    network = await world.network()
    [port] = await prepare(world, "s1", RequestedNic(network_id=network))
    async with world.database.transaction() as tx:
        await world.service.bind_ports(tx, server_id="s1", host="h1")
        [vif] = await world.service.bind_ports(tx, server_id="s1", host="o1")
    assert (vif.port_id, vif.mac, vif.vif_type) == (port.port_id, port.mac, "ovs")
    async with world.database.transaction() as tx:
        assert not await world.service.port_up(tx, vif.port_id, "h1")
        assert await world.service.port_up(tx, vif.port_id, "chassis-o1")
        assert await world.service.port_down(tx, vif.port_id, "o1")


async def test_a_host_that_does_not_reach_the_network_refuses_with_figures(world):
    network = await world.network(segment={"network_type": "vlan", "physical_network": "physnet1"})
    [port] = await prepare(world, "s1", RequestedNic(network_id=network))
    assert port.physical_network == "physnet1"
    with pytest.raises(errors.HostNotConnectedToAnySegment) as caught:
        async with world.database.transaction() as tx:
            await world.service.bind_ports(tx, server_id="s1", host="h2")
    assert caught.value.details["needed"] == "physnet1"
    with pytest.raises(errors.PortBindingFailed):
        async with world.database.transaction() as tx:
            await world.service.bind_ports(tx, server_id="s1", host="nobody")
    assert await world.count("bindings") == 0


async def test_security_groups_by_name_and_the_port_quota(world):
    network = await world.network()
    async with world.database.transaction() as tx:
        web = await world.service.security_groups.create(tx, project_id="p1", name="web")
    await prepare(world, "s1", RequestedNic(network_id=network), groups=("web", "default"))
    [port] = await ports_of(world)
    assert web.id in port.security_groups
    assert len(port.security_groups) == 2
    with pytest.raises(errors.SecurityGroupNotFound):
        await prepare(world, "s2", RequestedNic(network_id=network), groups=("none",))
    async with world.database.transaction() as tx:
        await world.service.quotas.update(tx, "p1", {"port": 2})
    with pytest.raises(errors.OverQuota) as caught:
        await prepare(world, "s3", RequestedNic(network_id=network), RequestedNic(network_id=network))
    assert (caught.value.details["needed"], caught.value.details["available"]) == (2, 1)
