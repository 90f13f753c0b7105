"""Addresses: the pure choice, and that the database never lets two ports have one."""

import asyncio
import random

import pytest

from moorage.network import cidr, errors, ipam
from moorage.network.ipam import Pool
from moorage.network.ports import PortSpec


def test_default_pools_leave_out_the_gateway():
    net = cidr.parse_cidr("10.0.0.0/29")
    assert cidr.default_pools(net, "10.0.0.1") == [{"start": "10.0.0.2", "end": "10.0.0.6"}]
    assert cidr.default_pools(net, "10.0.0.3") == [
        {"start": "10.0.0.1", "end": "10.0.0.2"},
        {"start": "10.0.0.4", "end": "10.0.0.6"},
    ]
    assert cidr.default_pools(net, None) == [{"start": "10.0.0.1", "end": "10.0.0.6"}]
    assert cidr.default_pools(cidr.parse_cidr("10.0.0.0/31"), None)[0]["start"] == "10.0.0.0"


@pytest.mark.parametrize(
    ("pools", "error"),
    [
        ([("10.0.0.9", "10.0.0.5")], errors.InvalidAllocationPool),
        ([("10.0.0.5", "fd00::9")], errors.InvalidAllocationPool),
        ([("10.0.0.5", "10.0.1.5")], errors.OutOfBoundsAllocationPool),
        ([("10.0.0.5", "10.0.0.9"), ("10.0.0.9", "10.0.0.20")], errors.OverlappingAllocationPools),
        ([("10.0.0.1", "10.0.0.9")], errors.GatewayConflictWithAllocationPools),
    ],
)
def test_wrong_pools_are_refused(pools, error):
    given = [{"start": a, "end": b} for a, b in pools]
    with pytest.raises(error):
        cidr.check_pools(cidr.parse_cidr("10.0.0.0/24"), given, "10.0.0.1")


def test_a_sample_has_different_addresses_of_all_ranges():
    pool = Pool("s", "n", 4, ((10, 12), (20, 21)))
    assert pool.size == 5
    assert [pool.nth(i) for i in range(5)] == [10, 11, 12, 20, 21]
    taken: set[str] = set()
    found = ipam.sample(pool, 3, taken, random.Random(1))
    assert len(set(found)) == len(found) <= 3
    assert taken == set(found)
    assert list(ipam.free(pool, {"0.0.0.11"}, 3)) == ["0.0.0.20", "0.0.0.21", "0.0.0.10", "0.0.0.12"]


def test_eui64():
    assert cidr.eui64(cidr.parse_cidr("fd00::/64"), "fa:16:3e:00:00:01") == "fd00::f816:3eff:fe00:1"


async def _create(world, network, count=1, **more):
    async with world.database.transaction() as tx:
        specs = [PortSpec(network_id=network, **more)] * count
        return await world.service.ports.create(tx, project_id="p1", seen_by="p1", specs=specs)


async def test_clients_at_once_get_every_address_once_and_then_none(world):
    network = await world.network(cidr="10.1.0.0/27", subnet={"gateway_ip": "10.1.0.1"})
    await _create(world, network)
    results = await asyncio.gather(*(_create(world, network) for _ in range(40)), return_exceptions=True)
    made = [r for r in results if not isinstance(r, BaseException)]
    failed = [r for r in results if isinstance(r, BaseException)]
    assert len(made) == 28
    assert all(isinstance(f, errors.IpAddressGenerationFailure) for f in failed)
    assert failed[0].status == 409
    addresses = {port.fixed_ips[0]["ip_address"] for [port] in made}
    assert len(addresses) == 28
    assert "10.1.0.1" not in addresses
    assert await world.count("ports") == 29


async def test_a_bulk_create_gets_different_addresses_or_nothing(world):
    network = await world.network(cidr="10.1.0.0/28")
    ports = await _create(world, network, 13)
    assert len({p.fixed_ips[0]["ip_address"] for p in ports}) == 13
    with pytest.raises(errors.IpAddressGenerationFailure):
        await _create(world, network)
    small = await world.network(cidr="10.2.0.0/29")
    with pytest.raises(errors.IpAddressGenerationFailure):
        await _create(world, small, 6)
    assert await world.count("ports") == 13


async def test_the_second_subnet_is_used_when_the_first_is_full(world):
    from moorage.network.subnets import SubnetSpec

    network = await world.network(cidr="10.1.0.0/30")
    async with world.database.transaction() as tx:
        shown = await world.service.networks.show(tx, network, project_id="p1")
        for text, version in (("10.2.0.0/29", 4), ("fd00:1::/64", 6)):
            spec = SubnetSpec(cidr=text, ip_version=version)
            await world.service.subnets.create(tx, project_id="p1", network=shown, spec=spec)
    ports = await _create(world, network, 3)
    by_family = [sorted(ip["ip_address"].partition(":")[0] for ip in p.fixed_ips) for p in ports]
    assert all(len(f) == 2 for f in by_family)
    assert sorted(f[0].rsplit(".", 2)[0] for f in by_family) == ["10.1", "10.2", "10.2"]


async def test_certain_addresses(world):
    network = await world.network()
    [port] = await _create(world, network, fixed_ips=[{"ip_address": "10.0.0.9"}, {"ip_address": "10.0.0.8"}])
    assert [ip["ip_address"] for ip in port.fixed_ips] == ["10.0.0.9", "10.0.0.8"]
    with pytest.raises(errors.IpAddressInUse):
        await _create(world, network, fixed_ips=[{"ip_address": "10.0.0.9"}])
    with pytest.raises(errors.InvalidIpForNetwork):
        await _create(world, network, fixed_ips=[{"ip_address": "10.7.0.9"}])
    with pytest.raises(errors.InvalidIpForSubnet):
        await _create(world, network, fixed_ips=[{"ip_address": "10.0.0.255"}])
    [bare] = await _create(world, network, fixed_ips=[])
    assert bare.fixed_ips == []


async def test_slaac_addresses_follow_the_mac(world):
    modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
    network = await world.network(cidr="fd00:3::/64", subnet=modes)
    [port] = await _create(world, network, mac_address="fa:16:3e:00:00:02")
    assert port.fixed_ips[0]["ip_address"] == "fd00:3::f816:3eff:fe00:2"
    with pytest.raises(errors.MacAddressInUse):
        await _create(world, network, mac_address="fa:16:3e:00:00:02", fixed_ips=[])


async def test_segmentation_ids_run_out(world):
    segment = {"network_type": "vlan", "physical_network": "physnet1"}
    for _ in range(3):
        await world.network(cidr="", segment=segment)
    with pytest.raises(errors.NoNetworkAvailable):
        await world.network(cidr="", segment=segment)
    with pytest.raises(errors.VlanIdInUse):
        await world.network(cidr="", segment={**segment, "segmentation_id": 101})
    await world.network(cidr="", segment={"network_type": "flat", "physical_network": "physnet1"})
    with pytest.raises(errors.FlatNetworkInUse):
        await world.network(cidr="", segment={"network_type": "flat", "physical_network": "physnet1"})
