"""Keystone and Glance together: one call starts both, fills Keystone, and writes clouds.yaml.

They start at the same time: Glance needs Keystone only when it is asked something. Files below the state folder:
``credentials.json`` and ``clouds.yaml`` (both 0600), ``keystone/``, ``glance/``, ``logs/``, ``run/``.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from moorage.children import bootstrap, clouds
from moorage.children.bootstrap import Addresses, Plan
from moorage.children.credentials import Credentials, load_or_create
from moorage.children.glance import Glance, GlanceSettings
from moorage.children.keystone import Keystone, KeystoneSettings
from moorage.core.log import get_logger

log = get_logger(__name__)


class UpstreamsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to run Keystone and Glance.

    ``addresses`` is the catalogue; its identity and image entries are set from the ports here. ``postgres_url`` names
    any database of the server, by an account that may create databases; the two named databases are made there.
    ``ca_file`` is the bundle that clients of the APIs are to believe. ``plan`` replaces the usual accounts and catalogue.
    """

    venv: Path
    state: Path
    postgres_url: str
    host: str = "127.0.0.1"
    identity_port: int = 5000
    image_port: int = 9292
    identity_database: str = "keystone"
    image_database: str = "glance"
    addresses: Addresses = Addresses()
    region: str = "RegionOne"
    password_hash_rounds: int = 10
    with_images: bool = True
    ca_file: str | None = None
    plan: Plan | None = None


class Upstreams:
    """The pair. ``start`` is idempotent over the state folder; a second start only serves."""

    def __init__(self, settings: UpstreamsSettings) -> None:
        self.settings = settings
        addresses = msgspec.structs.replace(
            settings.addresses,
            identity=f"http://{settings.host}:{settings.identity_port}/v3",
            image=f"http://{settings.host}:{settings.image_port}",
        )
        self.addresses = addresses
        self.plan = settings.plan or bootstrap.cloud_plan(addresses, settings.region)
        users = [user.name for user in self.plan.users]
        self.credentials: Credentials = load_or_create(settings.state / "credentials.json", users)
        self.project_ids: Mapping[str, str] = {}
        """Ids of the projects by name, once started."""
        self.keystone = Keystone(self._keystone_settings())
        self.glance = Glance(self._glance_settings()) if settings.with_images else None

    @property
    def auth_url(self) -> str:
        """Keystone's v3 endpoint."""
        return self.keystone.settings.auth_url

    @property
    def clouds_file(self) -> Path:
        """The clouds.yaml that ``start`` writes: ``moorage`` (user demo) and ``moorage-admin``."""
        return self.settings.state / "clouds.yaml"

    async def start(self) -> None:
        """Start both, fill Keystone, write clouds.yaml. Raises ``ChildFailed``, ``PortTaken``; nothing runs then."""
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_keystone())
                if self.glance is not None:
                    group.create_task(self._start_glance(self.glance))
        except BaseExceptionGroup as failures:
            await self.stop()
            raise failures.exceptions[0] from None
        except BaseException:
            await self.stop()
            raise
        self._write_clouds()
        log.info("upstreams.ready", identity=self.auth_url, seconds=round(time.monotonic() - began, 2))

    async def stop(self) -> None:
        """End both."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.keystone.stop)
            if self.glance is not None:
                stack.push_async_callback(self.glance.stop)

    async def _start_keystone(self) -> None:
        await self.keystone.prepare()
        renewed = self.keystone.renewed
        await self.keystone.start()
        if renewed:  # admin's password was set at the start, and Keystone is up within a second
            await asyncio.sleep(bootstrap.REVOCATION)
        self.project_ids = await bootstrap.apply(
            self.auth_url, self.plan, self.credentials, reset_passwords=renewed
        )

    async def _start_glance(self, glance: Glance) -> None:
        await glance.prepare()
        await glance.start()

    def _write_clouds(self) -> None:
        settings = self.settings
        entries = {}
        for cloud, name in (("moorage", "demo"), ("moorage-admin", "admin")):
            for user in self.plan.users:
                if user.name == name:
                    entries[cloud] = clouds.entry(
                        self.auth_url,
                        username=name,
                        password=self.credentials[name],
                        project=user.project,
                        region=settings.region,
                        ca_file=settings.ca_file,
                    )
        clouds.write(self.clouds_file, entries)

    def _keystone_settings(self) -> KeystoneSettings:
        settings = self.settings
        return KeystoneSettings(
            venv=settings.venv,
            state=settings.state,
            postgres_url=settings.postgres_url,
            database=settings.identity_database,
            host=settings.host,
            port=settings.identity_port,
            region=settings.region,
            admin_password=self.credentials["admin"],
            password_hash_rounds=settings.password_hash_rounds,
        )

    def _glance_settings(self) -> GlanceSettings:
        settings = self.settings
        return GlanceSettings(
            venv=settings.venv,
            state=settings.state,
            postgres_url=settings.postgres_url,
            database=settings.image_database,
            host=settings.host,
            port=settings.image_port,
            auth_url=f"http://{settings.host}:{settings.identity_port}/v3",
            password=self.credentials["glance"],
            region=settings.region,
        )
