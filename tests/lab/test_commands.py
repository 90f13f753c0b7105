"""``moorage lab`` as a command: what it says when it cannot do what was asked."""

import pytest
from typer.testing import CliRunner

from moorage.lab.commands import app
from moorage.lab.demo import _empty_qcow2


@pytest.fixture
def moorage_lab(short_path):
    def call(*words: str):
        return CliRunner().invoke(app, list(words), env={"MOORAGE_STATE": str(short_path)})

    return call


def test_status_without_a_lab_says_so(moorage_lab, short_path):
    done = moorage_lab("status")
    assert done.exit_code == 1
    assert f"no lab in {short_path / 'lab'}" in done.output


def test_down_without_a_lab_is_no_failure(moorage_lab, short_path):
    assert moorage_lab("down").exit_code == 0
    assert list(short_path.iterdir()) == []


@pytest.mark.usefixtures("lab_machine")
def test_up_names_the_wrong_field_in_one_line(moorage_lab, tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text("{name: small, racks: [{name: a, underlay: nowhere, hosts: [{name: h1}]}]}")
    done = moorage_lab("up", str(file))
    assert done.exit_code == 1
    assert done.output.startswith("moorage lab: racks[0].underlay: ")
    assert len(done.output.splitlines()) == 1


def test_a_probe_nobody_plugged_is_said(moorage_lab):
    done = moorage_lab("probe", "ping", "nosuch", "10.0.0.1")
    assert done.exit_code == 1
    assert "no probe is plugged for port nosuch" in done.output


def test_waiting_for_no_cloud_ends(moorage_lab):
    assert moorage_lab("wait", "--patience", "0").exit_code == 1


def test_the_simulated_image_is_a_qcow2_of_one_mebibyte():
    content = _empty_qcow2()
    assert content[:4] == b"QFI\xfb"
    assert int.from_bytes(content[24:32], "big") == 1 << 20
    assert len(content) == 4 * 65536
