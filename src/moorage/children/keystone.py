"""Keystone as a child process: configuration, keys, schema and its own bootstrap."""

import grp
import hashlib
import os
import pwd
import shlex
from collections.abc import Mapping
from pathlib import Path

from moorage.children import services
from moorage.children.services import ServiceSettings
from moorage.children.upstream import Upstream


class KeystoneSettings(ServiceSettings, frozen=True, kw_only=True):
    """How to run Keystone. ``password_hash_rounds`` is bcrypt's cost, ``token_seconds`` how long a token lasts."""

    database: str = "keystone"
    port: int = 5000
    region: str = "RegionOne"
    admin_password: str
    password_hash_rounds: int = 10
    token_seconds: int = 14_400

    @property
    def auth_url(self) -> str:
        """The v3 endpoint."""
        return f"{self.url}/v3"


class Keystone(Upstream):
    """One Keystone; after the first ``start`` it has the user and project admin, and the standard roles."""

    package = "keystone"
    sync_command = "db_sync"
    ready_path = "/v3"

    def __init__(self, settings: KeystoneSettings) -> None:
        super().__init__(settings)
        self.settings = settings

    @property
    def mark(self) -> str:
        # Another admin password (a lost state folder) makes the bootstrap run again, which sets it.
        digest = hashlib.sha256(self.settings.admin_password.encode()).hexdigest()
        return f"{self.release} {digest[:16]}"

    def key_steps(self) -> tuple[str, ...]:
        owner = ("--keystone-user", pwd.getpwuid(os.geteuid()).pw_name)
        group = ("--keystone-group", grp.getgrgid(os.getegid()).gr_name)
        return tuple(
            f"manage {shlex.join((f'{kind}_setup', *owner, *group))}"
            for kind in ("fernet", "credential")
            if not any(self._keys(kind).glob("[0-9]*"))
        )

    def first_steps(self) -> tuple[str, ...]:
        url = self.settings.auth_url
        words = ["bootstrap", "--bootstrap-region-id", self.settings.region]
        for interface in ("admin", "internal", "public"):
            words += [f"--bootstrap-{interface}-url", url]
        return (f"manage {shlex.join(words)}",)

    def step_env(self) -> Mapping[str, str]:
        return {"OS_BOOTSTRAP_PASSWORD": self.settings.admin_password}

    def write_config(self) -> Path:
        settings = self.settings
        for kind in ("fernet", "credential"):
            self._keys(kind).mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / "keystone.conf"
        services.write_config(
            path,
            {
                "DEFAULT": {"use_stderr": True, "public_endpoint": settings.url},
                "database": {
                    "connection": services.database_url(settings.postgres_url, settings.database, "psycopg2"),
                    "max_pool_size": settings.threads,
                },
                "token": {"provider": "fernet", "expiration": settings.token_seconds},
                "fernet_tokens": {"key_repository": self._keys("fernet")},
                "credential": {"key_repository": self._keys("credential")},
                # bcrypt reads 72 bytes; to say so keeps Keystone from warning at each password.
                "identity": {
                    "password_hash_rounds": settings.password_hash_rounds,
                    "max_password_length": 72,
                },
                # One process, so a cache in its memory is never behind another's writes.
                "cache": {"enabled": True, "backend": "oslo_cache.dict"},
            },
        )
        return path

    def _keys(self, kind: str) -> Path:
        return self.folder / f"{kind}-keys"
