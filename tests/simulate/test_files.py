"""Files: each form of cloud and stream is read, and what is wrong in one is named with its place."""

import json
from pathlib import Path

import pytest

from moorage.simulate import stream, topology
from moorage.simulate.errors import BadFile
from moorage.simulate.model import Arrival, Part

PATTERNS = """
hosts:
  - name: "r{rack}h{number}"
    racks: 2
    per_rack: 3
    zones: [az1, az2]
    inventory: {DISK_GB: 2000, VCPU: {total: 64, allocation_ratio: 4.0}}
    traits: [HW_CPU_X86_AVX2]
    children:
      - {name: "numa{i}", count: 2, inventory: {MEMORY_MB: 131072}}
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_description(tmp_path: Path) -> None:
    world = topology.load(written(tmp_path, "c.yaml", PATTERNS))
    assert [(h.name, h.zone) for h in world.hosts] == [
        ("r0h0", "az1"), ("r0h1", "az1"), ("r0h2", "az1"), ("r1h0", "az2"), ("r1h1", "az2"), ("r1h2", "az2"),
    ]  # fmt: skip
    assert len(world.providers) == 18
    assert world.providers[0].inventories["VCPU"].capacity == 256
    assert world.providers[1].parent_provider_uuid == world.providers[0].uuid
    assert world.providers[0].aggregates == world.providers[3].aggregates != world.providers[9].aggregates


def test_a_table_of_hosts(tmp_path: Path) -> None:
    rows = "name,zone,rack,VCPU,MEMORY_MB,CUSTOM_GPU\na,z,r1,8,4096,\nb,,r1,8,4096,2\n"
    world = topology.load(written(tmp_path, "h.csv", rows))
    assert [(h.name, h.zone, h.rack) for h in world.hosts] == [("a", "z", "r1"), ("b", "nova", "r1")]
    assert set(world.providers[0].inventories) == {"VCPU", "MEMORY_MB"}
    assert world.providers[1].inventories["CUSTOM_GPU"].total == 2


def test_the_servers_of_the_trace(tmp_path: Path) -> None:
    servers = written(tmp_path, "s.csv", "CPU1,RAM1,CPU2,RAM2\n16,32,32,64\n0,0,8,16\n")
    racks = written(tmp_path, "r.csv", "host_id,rack_id\nhost-0,7\nhost-1,8\n")
    world = topology.load(servers, racks=racks)
    assert [(h.name, h.rack) for h in world.hosts] == [("host-0", "7"), ("host-1", "8")]
    stocks = {p.name: {rc: s.total for rc, s in p.inventories.items()} for p in world.providers}
    assert stocks["host-0:numa2"] == {"VCPU": 32, "MEMORY_MB": 65536}
    assert stocks["host-1:numa1"] == {}


def test_a_dump_comes_back_as_it_was(tmp_path: Path) -> None:
    import msgspec

    world = topology.load(written(tmp_path, "c.yaml", PATTERNS))
    again = topology.load(written(tmp_path, "c.json", msgspec.json.encode(world).decode()))
    assert again == world


def test_rows_of_requests(tmp_path: Path) -> None:
    rows = (
        "id,at,lifetime,VCPU,MEMORY_MB,DISK_GB,numa,zone,required,group,policy\n"
        "late,9.5,60,2,2048,10,,az1,HW_CPU_X86_AVX2 CUSTOM_FAST,,\n"
        "early,1,,4,2048,,2,,,g,anti-affinity\n"
    )
    early, late = stream.load(written(tmp_path, "r.csv", rows))
    half = Part(resources={"VCPU": 2, "MEMORY_MB": 1024})
    assert early == Arrival(
        id="early", at=1, parts=[half, half], isolate=True, group="g", policy="anti-affinity"
    )
    assert late == Arrival(
        id="late",
        at=9.5,
        lifetime=60,
        resources={"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10},
        zone="az1",
        required=["HW_CPU_X86_AVX2", "CUSTOM_FAST"],
    )


def test_a_list_of_requests(tmp_path: Path) -> None:
    asked = [
        {
            "id": "late",
            "at": 9.5,
            "lifetime": 60,
            "resources": {"DISK_GB": 10},
            "zone": "az1",
            "required": ["CUSTOM_FAST"],
        },
        {
            "id": "early",
            "at": 1,
            "parts": [{"resources": {"VCPU": 2}}, {"resources": {"VCPU": 1, "MEMORY_MB": 64}}],
            "isolate": True,
            "group": "g",
            "policy": "affinity",
        },
    ]
    found = stream.load(written(tmp_path, "r.json", json.dumps(asked)))
    assert found == [
        Arrival(
            id="early",
            at=1,
            parts=[Part(resources={"VCPU": 2}), Part(resources={"VCPU": 1, "MEMORY_MB": 64})],
            isolate=True,
            group="g",
            policy="affinity",
        ),
        Arrival(
            id="late", at=9.5, lifetime=60, resources={"DISK_GB": 10}, zone="az1", required=["CUSTOM_FAST"]
        ),
    ]


def test_the_requests_of_the_trace(tmp_path: Path) -> None:
    rows = "flavor_vcpus,flavor_ram,numa,strategy,group,domain\n8,16,1,fault_domain,0,1\n32,64,2,,,\n"
    first, second = stream.load(written(tmp_path, "t.csv", rows))
    assert (first.policy, first.group, first.domain) == ("fault-domain", "fault_domain:0", "1")
    assert first.parts == [Part(resources={"VCPU": 8, "MEMORY_MB": 16384})]
    assert (len(second.parts), second.isolate, second.group) == (2, True, None)


def test_made_up_times_keep_the_order_and_follow_the_seed() -> None:
    stream_of = [Arrival(id=str(n), resources={"VCPU": 1}) for n in range(500)]
    runs = [stream.timed(stream_of, seed=seed, per_hour=100, hours=2) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert [a.id for a in runs[0]] == [a.id for a in stream_of]
    assert 4 < runs[0][-1].at / 3600 < 6
    assert 1.5 < sum(a.lifetime or 0 for a in runs[0]) / 500 / 3600 < 2.5


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("c.yaml", "hosts: [{name: a, racks: x}]", "racks"),
        ("c.yaml", "hosts: [{name: a, per_rack: 2}]", "two hosts are called a"),
        ("c.yaml", "hosts: [", "c.yaml"),
        ("c.json", '{"hosts": []}', "providers"),
        ("h.csv", "host,VCPU\na,1\n", "no column `name`"),
        ("h.csv", "name,VCPU\na,many\n", "line 2: column VCPU"),
    ],
)
def test_a_wrong_cloud_is_named(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(BadFile, match=told):
        topology.load(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("r.json", json.dumps([{"id": "a", "resources": {"VCPU": 0}}]), "arrival 1: resources"),
        ("r.json", json.dumps([{"id": "a"}]), "nothing is asked for"),
        ("r.json", json.dumps([{"id": "a", "resources": {"VCPU": 1}, "group": "g"}]), "belong together"),
        ("r.json", json.dumps([{"id": "a", "resources": {"VCPU": 1}, "flavour": "x"}]), "flavour"),
        ("r.csv", "id,VCPU\na,1\na,1\n", "a is there twice"),
        ("r.csv", "id,VCPU\na,one\n", "line 2"),
        ("r.csv", "id,VCPU,numa\na,3,2\n", "line 2: numa: 3 VCPU"),
        ("r.csv", "id,VCPU,group,policy\na,1,g,near\n", "policy"),
    ],
)
def test_a_wrong_stream_is_named(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(BadFile, match=told):
        stream.load(written(tmp_path, name, text))
