"""A client of the control API with the credentials of clouds.yaml."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from keystoneauth1 import exceptions, session
from keystoneauth1.identity import v3

from moorage.core.errors import MoorageError
from moorage.core.places import state_folder

CloudName = Annotated[str, typer.Option("--cloud", envvar="OS_CLOUD_ADMIN", help="Entry in clouds.yaml.")]
ADMIN = "moorage-admin"


class ControlFailed(MoorageError):
    """The control API refused, or cannot be reached."""

    code = "cli.control_failed"


class Control:
    """Requests to /moorage/v1 as an entry of clouds.yaml."""

    def __init__(self, cloud: str) -> None:
        entry = _entry(cloud)
        auth = v3.Password(
            **{k: v for k, v in entry["auth"].items() if k != "auth_url"}, auth_url=entry["auth"]["auth_url"]
        )
        self._session = session.Session(auth=auth, verify=_verify(entry))
        self._region = entry.get("region_name")

    def get(self, path: str, query: dict[str, Any] | None = None) -> Any:
        """The decoded answer; raises ControlFailed."""
        return self._request("GET", path, params=query)

    def post(self, path: str) -> Any:
        """The decoded answer or None; raises ControlFailed."""
        return self._request("POST", path)

    def _request(self, method: str, path: str, **kw: Any) -> Any:
        try:
            compute = self._session.get_endpoint(service_type="compute", region_name=self._region)
            if compute is None:
                raise ControlFailed("the catalogue has no compute endpoint")
            base = compute.split("/v2")[0]
            answer = self._session.request(f"{base}/moorage/v1{path}", method, raise_exc=False, **kw)
        except exceptions.ClientException as error:
            raise ControlFailed(f"the cloud does not answer: {error}") from error
        if answer.status_code >= 400:
            raise ControlFailed(_reason(answer.text, answer.status_code))
        return answer.json() if answer.content else None


def _reason(text: str, status: int) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the control API answered {status}"


def _verify(entry: dict[str, Any]) -> bool | str:
    """Whose certificates are believed: as openstacksdk reads a clouds.yaml."""
    if not entry.get("verify", True):
        return False
    bundle = entry.get("cacert") or os.environ.get("OS_CACERT")
    return str(bundle) if bundle else True


def _entry(cloud: str) -> dict[str, Any]:
    candidates = [
        os.environ.get("OS_CLIENT_CONFIG_FILE"),
        "clouds.yaml",
        "~/.config/openstack/clouds.yaml",
        str(state_folder() / "clouds.yaml"),
    ]
    for candidate in filter(None, candidates):
        path = Path(candidate).expanduser()
        if path.is_file():
            found = yaml.safe_load(path.read_text())["clouds"].get(cloud)
            if found is not None:
                return dict(found)
    raise ControlFailed(f"no clouds.yaml has an entry {cloud!r}: set OS_CLIENT_CONFIG_FILE and OS_CLOUD")
