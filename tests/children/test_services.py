"""What needs no running service: addresses, private files, passwords, templates of names."""

import stat

import pytest

from moorage.children.bootstrap import Addresses, cloud_plan
from moorage.children.credentials import load_or_create
from moorage.children.errors import ServicesMissing
from moorage.children.services import database_url, find_venv, release, write_config


@pytest.mark.parametrize(
    ("server", "wanted"),
    [
        (
            "postgresql://postgres@/postgres?host=/run/pg",
            "postgresql+psycopg2://postgres@/keystone?host=/run/pg",
        ),
        ("postgresql://u:p%40@db:5433/any", "postgresql+psycopg2://u:p%40@db:5433/keystone"),
        ("postgresql:///any?host=/run/pg", "postgresql+psycopg2:///keystone?host=/run/pg"),
    ],
)
def test_another_database_of_the_same_server(server, wanted):
    assert database_url(server, "keystone", "psycopg2") == wanted


def test_configuration_is_private_and_a_dollar_stays_a_dollar(tmp_path):
    path = tmp_path / "folder" / "a.conf"
    write_config(path, {"database": {"connection": "pass$word"}})
    assert path.read_text() == "[database]\nconnection = pass$$word\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_passwords_are_made_once_and_never_shown(tmp_path):
    path = tmp_path / "credentials.json"
    first = load_or_create(path, ["admin"])
    second = load_or_create(path, ["admin", "demo"])
    assert second["admin"] == first["admin"] != second["demo"]
    assert first["admin"] not in repr(second)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_missing_services_are_said_with_what_to_do(tmp_path):
    with pytest.raises(ServicesMissing, match="make setup"):
        find_venv(tmp_path, {})
    with pytest.raises(ServicesMissing, match="keystone is not installed"):
        release(tmp_path, "keystone")


def test_the_bare_metal_api_is_in_the_catalogue_only_where_there_is_one():
    assert "baremetal" not in {each.type for each in cloud_plan(Addresses()).services}
    plan = cloud_plan(Addresses(baremetal="http://127.0.0.1:6385"))
    assert plan.services[-1].url == "http://127.0.0.1:6385"
