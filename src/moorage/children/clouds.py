"""clouds.yaml: how the `openstack` command and openstacksdk find and enter the cloud."""

from pathlib import Path
from typing import Any

import yaml

from moorage.children.services import write_private


def entry(
    auth_url: str, *, username: str, password: str, project: str, region: str, ca_file: str | None = None
) -> dict[str, Any]:
    """One cloud of a clouds.yaml, for a user of the default domain. ``ca_file``: whom clients believe."""
    trusted = {"cacert": ca_file} if ca_file is not None else {}
    return {
        **trusted,
        "auth": {
            "auth_url": auth_url,
            "username": username,
            "password": password,
            "project_name": project,
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        },
        "region_name": region,
        "identity_api_version": 3,
    }


def write(path: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Write ``path`` (mode 0600) with these clouds."""
    write_private(path, yaml.safe_dump({"clouds": entries}, sort_keys=True))
