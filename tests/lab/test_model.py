"""The lab's file: what is read, and how mistakes are named."""

from pathlib import Path

import pytest

from moorage.lab import model
from moorage.lab.errors import LabFileError
from moorage.lab.names import names_of

GOOD = """
name: small
hosts: {memory_mb: 512}
physical_networks: [{name: physnet1}]
racks:
  - name: a
    underlay: 10.1.0.0/24
    physical_networks: [physnet1]
    hosts: [{name: h1}, {name: h2, vcpus: 8}]
"""


def load(tmp_path: Path, text: str) -> model.Lab:
    file = tmp_path / "lab.yaml"
    file.write_text(text)
    return model.load(file)


def test_the_default_lab_is_two_racks_of_two_hosts():
    lab = model.load(model.default_file())
    assert [(rack.name, host.name) for rack, host in lab.places()] == [
        ("rack1", "r1h1"),
        ("rack1", "r1h2"),
        ("rack2", "r2h1"),
        ("rack2", "r2h2"),
    ]
    assert [rack.name for rack in lab.racks_of("physnet1")] == ["rack1", "rack2"]


def test_a_host_takes_what_it_does_not_say_from_the_lab(tmp_path):
    (_, first), (_, second) = load(tmp_path, GOOD).places()
    assert (first.vcpus, first.memory_mb) == (4, 512)
    assert (second.vcpus, second.memory_mb) == (8, 512)


def test_hosts_have_addresses_of_their_rack(tmp_path):
    rack = load(tmp_path, GOOD).racks[0]
    assert str(rack.gateway) == "10.1.0.1/24"
    assert [str(rack.address(name)) for name in ("h1", "h2")] == ["10.1.0.10/24", "10.1.0.11/24"]


@pytest.mark.parametrize(
    ("wrong", "right", "field"),
    [
        ("name: small", "name: Small Lab", "name"),
        ("vcpus: 8", "vcpus: many", "racks[0].hosts[1].vcpus"),
        ("vcpus: 8", "vcpus: 0", "racks.a.hosts.h2.vcpus"),
        ("vcpus: 8", "cpus: 8", "racks[0].hosts[1]"),
        ("10.1.0.0/24", "10.1.0.1/24", "racks[0].underlay"),
        ("10.1.0.0/24", "10.1.0.0/29", "racks[0].underlay"),
        ("[physnet1]", "[physnet2]", "racks[0].physical_networks[0]"),
        ("name: h2", "name: h1", "racks[].hosts"),
        ("name: h1", "name: spine", "racks[0].hosts[0].name"),
        ("name: h1", "name: a-very-long-name", "racks[0].hosts[0].name"),
        ("[{name: physnet1}]", "[{name: physnet1, gateway: here}]", "physical_networks[0].gateway"),
        (GOOD, "a: [", "file"),
        (GOOD, "{name: empty, racks: []}", "racks"),
    ],
)
def test_a_mistake_is_named_by_its_field(tmp_path, wrong, right, field):
    with pytest.raises(LabFileError) as caught:
        load(tmp_path, GOOD.replace(wrong, right, 1))
    assert caught.value.field == field


def test_racks_do_not_share_addresses(tmp_path):
    second = GOOD + "  - {name: b, underlay: 10.1.0.128/25, hosts: [{name: h3}]}\n"
    with pytest.raises(LabFileError, match="overlaps that of a"):
        load(tmp_path, second)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(LabFileError, match="cannot read"):
        model.load(tmp_path / "none.yaml")


def test_two_labs_never_share_a_name(tmp_path):
    one, two = names_of(tmp_path / "one"), names_of(tmp_path / "two")
    assert one.namespace("h1") != two.namespace("h1")
    assert one == names_of(tmp_path / "one")
