"""Where a cloud's state folder is unless MOORAGE_STATE or the option ``state`` names another."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_state(environ: Mapping[str, str] = os.environ) -> Path:
    """/var/lib/moorage for root; for others ``moorage`` in their own place for state (XDG): ~/.local/state."""
    if os.geteuid() == 0:
        return Path("/var/lib/moorage")
    own = environ.get("XDG_STATE_HOME", "")
    # By the XDG specification a relative path is to be ignored.
    return (Path(own) if own.startswith("/") else Path("~/.local/state").expanduser()) / "moorage"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """What the environment names, else the default."""
    return Path(environ.get("MOORAGE_STATE") or default_state(environ))
