"""Secrets in what is shown, and in files."""

from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.core import config
from moorage.core.secrets import TooOpen, check_modes, masked
from moorage.server.options import OptionsWrong, checked, options
from moorage.server.state import SECRETS, StateFolder


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("hunter2", "***"),
        ("postgresql://moorage:hunter2@db:5432/moorage", "postgresql://moorage:***@db:5432/moorage"),
        ("postgresql://moorage@db/moorage", "postgresql://moorage@db/moorage"),
        ("postgresql://u:hunter2@a:1,b:2/m?x=y", "postgresql://u:***@a:1,b:2/m?x=y"),
        ("postgresql:///m?host=/run&password=hunter2", "postgresql:///m?host=/run&password=***"),
        ("postgresql://u@/m?sslpassword=hunter2", "postgresql://u@/m?sslpassword=***"),
        ("postgresql://u:hun/ter2@db/m", "postgresql://***"),
        ("postgresql://u:hun#ter2@db/m", "postgresql://***"),
        ("postgresql://u:hun?ter2@db/m", "postgresql://***"),
        ("postgresql://u:hun@ter2@db/m", "postgresql://u:***@db/m"),
    ],
)
def test_a_secret_is_masked_and_of_a_url_its_password_alone(value: str, shown: str) -> None:
    assert masked(value) == shown


def test_options_are_shown_with_their_source_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "moorage.conf"
    file.write_text("[DEFAULT]\ncompute_port = 1\nidentity_password = hunter2\n[metrics]\ntoken = hunter3\n")
    environ = {"MOORAGE_DATABASE_URL": "postgresql://u:hunter4@db/m", "MOORAGE_LIMITS_URL": "4096"}
    conf = config.load(options(), files=[str(file)], environ=environ)
    found = {(s.group, s.name): (s.value, s.source) for s in config.shown(options(), conf, environ=environ)}
    assert found["DEFAULT", "compute_port"] == ("1", str(file))
    assert found["DEFAULT", "identity_password"] == ("***", str(file))
    assert found["metrics", "token"] == ("***", str(file))
    assert found["DEFAULT", "database_url"] == ("postgresql://u:***@db/m", "MOORAGE_DATABASE_URL")
    assert found["limits", "url"] == ("4096", "MOORAGE_LIMITS_URL")
    assert found["DEFAULT", "network_port"] == ("9696", "default")
    assert set(found) == {(group, opt.dest) for group, opts in options() for opt in opts}
    assert not any("hunter" in value for value, _ in found.values())


def test_every_option_that_sounds_like_a_secret_is_one() -> None:
    words = ("password", "token", "secret", "database_url")
    for group, opts in options():
        for opt in opts:
            if isinstance(opt, cfg.StrOpt) and any(word in opt.dest for word in words):
                assert opt.secret, f"[{group}] {opt.dest}"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o602])
def test_a_configuration_file_with_a_secret_must_not_be_open_to_everybody(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "moorage.conf"
    file.write_text("[DEFAULT]\nidentity_password = hunter2\n")
    file.chmod(mode)
    conf = config.load(options(), files=[str(file)], environ={})
    with pytest.raises(TooOpen, match=f"{file} has mode {mode:04o}: chmod g-w,o-rwx {file}"):
        checked(conf)
    file.chmod(0o640)
    checked(conf)
    file.write_text("[DEFAULT]\ncompute_port = 1\n")
    file.chmod(0o644)
    checked(config.load(options(), files=[str(file)], environ={}))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hun/ter2@db/m",
        "postgresql://u:hun#ter2@db/m",
        "postgresql://u:hun?ter2@db/m",
        "postgresql://u:hun@ter2@db/m",
        "mysql://u:hunter2@db/m",
        "postgresql://u:p@db:hunter2/m",
    ],
)
def test_a_database_url_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    conf = config.load(options(), environ={}, overrides={"database_url": url})
    with pytest.raises(OptionsWrong, match="database_url") as caught:
        checked(conf)
    assert "ter2" not in str(caught.value)


def test_a_trusted_proxy_that_is_no_address_is_refused() -> None:
    for good in ("192.0.2.1", "2001:db8::/64"):
        checked(config.load(options(), environ={}, overrides={"trusted_proxies": [good]}))
    with pytest.raises(OptionsWrong, match="trusted_proxies: proxy is no address"):
        checked(config.load(options(), environ={}, overrides={"trusted_proxies": ["proxy"]}))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://postgres@/test?host=/tmp/moorage-pg",
        "postgresql:///test",
        "postgresql://u:p%40@db:5432/m",
        "postgresql://u:p@a:1,b:2,[::1]:3/m?target_session_attrs=read-write",
        "postgres://db",
    ],
)
def test_usual_database_urls_are_taken(url: str) -> None:
    checked(config.load(options(), environ={}, overrides={"database_url": url}))


@pytest.mark.parametrize("pattern", SECRETS)
def test_a_state_folder_whose_secrets_others_may_read_is_refused(tmp_path: Path, pattern: str) -> None:
    state = StateFolder(tmp_path / "state")
    state.prepare()
    path = state.root / pattern.replace("*", "x")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text("hunter2")
    path.chmod(0o640)
    with pytest.raises(TooOpen, match=f"{path} has mode 0640: chmod go-rwx {path}") as caught:
        state.prepare()
    assert "hunter2" not in str(caught.value)
    path.chmod(0o600)
    state.prepare()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.prepare()
    (state.root / "keystone").mkdir()
    (state.root / "keystone").chmod(0o775)
    with pytest.raises(TooOpen, match="mode 0775: chmod go-w "):
        state.prepare()


def test_what_is_not_there_and_links_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    check_modes([tmp_path / "link", tmp_path / "none"], 0o077)
