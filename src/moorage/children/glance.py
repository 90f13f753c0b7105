"""Glance as a child process: images in files below the state folder, tokens checked with Keystone."""

from pathlib import Path

from moorage.children import services
from moorage.children.services import ServiceSettings
from moorage.children.upstream import Upstream


class GlanceSettings(ServiceSettings, frozen=True, kw_only=True):
    """How to run Glance. ``auth_url`` is Keystone's v3 endpoint, ``username`` a user of the project ``service``."""

    database: str = "glance"
    port: int = 9292
    auth_url: str
    username: str = "glance"
    password: str
    region: str = "RegionOne"


class Glance(Upstream):
    """One Glance. It starts without Keystone, and needs it to answer requests."""

    package = "glance"
    sync_command = "db sync"
    ready_path = "/healthcheck"

    def __init__(self, settings: GlanceSettings) -> None:
        super().__init__(settings)
        self.settings = settings

    def write_config(self) -> Path:
        settings = self.settings
        stores = {name: self.folder / name for name in ("images", "staging", "tasks")}
        for folder in stores.values():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / "glance-api.conf"
        services.write_config(
            path,
            {
                "DEFAULT": {
                    "use_stderr": True,
                    "enabled_backends": "images:file",
                    # Only what a client sends itself: fetching addresses that users name is not this cloud's to do.
                    "enabled_import_methods": "[glance-direct]",
                    "worker_self_reference_url": settings.url,
                    "public_endpoint": settings.url,
                },
                "database": {
                    "connection": services.database_url(settings.postgres_url, settings.database, "psycopg2"),
                    "max_pool_size": settings.threads,
                },
                "glance_store": {"default_backend": "images"},
                "images": {"filesystem_store_datadir": stores["images"]},
                "os_glance_staging_store": {"filesystem_store_datadir": stores["staging"]},
                "os_glance_tasks_store": {"filesystem_store_datadir": stores["tasks"]},
                "keystone_authtoken": self._authtoken(),
                "paste_deploy": {
                    "flavor": "keystone",
                    "config_file": settings.venv / "etc" / "glance" / "glance-api-paste.ini",
                },
            },
        )
        return path

    def _authtoken(self) -> dict[str, object]:
        settings = self.settings
        return {
            "auth_type": "password",
            "auth_url": settings.auth_url,
            "www_authenticate_uri": settings.auth_url,
            "username": settings.username,
            "password": settings.password,
            "user_domain_id": "default",
            "project_name": "service",
            "project_domain_id": "default",
            "region_name": settings.region,
            "service_token_roles": "service",
            "service_token_roles_required": True,
        }
