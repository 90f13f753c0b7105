"""The config drive: a small ISO 9660 disk named config-2 with what a guest reads at its first boot."""

import base64
import binascii
import io
from pathlib import Path

import msgspec
from pycdlib import PyCdlib

from moorage.agent.errors import Refused
from moorage.core.files import write_secret
from moorage.wire.messages import ConfigDrive

_FOLDER = ("openstack", "latest")


def documents(drive: ConfigDrive) -> dict[str, bytes]:
    """File names below openstack/latest and their contents. Raises Refused for user data that is not base64."""
    found = {
        "meta_data.json": msgspec.json.encode(drive.meta_data),
        "network_data.json": msgspec.json.encode(drive.network_data),
    }
    if drive.user_data is not None:
        try:
            found["user_data"] = base64.b64decode(drive.user_data, validate=True)
        except binascii.Error as error:
            message = f"user_data is not base64: {error}"
            raise Refused(message) from error
    return found


def write(drive: ConfigDrive, path: Path) -> None:
    """Make the disk; it replaces an earlier one in one step. Blocking: a few milliseconds."""
    iso = PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="config-2")
    try:
        iso.add_directory("/OPENSTAC", rr_name=_FOLDER[0], joliet_path=f"/{_FOLDER[0]}")
        iso.add_directory("/OPENSTAC/LATEST", rr_name=_FOLDER[1], joliet_path="/" + "/".join(_FOLDER))
        for number, (name, content) in enumerate(documents(drive).items()):
            iso.add_fp(
                io.BytesIO(content),
                len(content),
                f"/OPENSTAC/LATEST/FILE{number}.;1",
                rr_name=name,
                joliet_path="/" + "/".join((*_FOLDER, name)),
            )
        made = io.BytesIO()
        iso.write_fp(made)
        # User data may be a secret, and often is.
        write_secret(path, made.getvalue())
    finally:
        iso.close()
