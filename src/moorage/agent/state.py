"""The agent's state folder: its key, and the disks, consoles and config drives of guests. Nobody else may look into it."""

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path

from moorage.core.log import get_logger
from moorage.core.secrets import TooOpen, check_modes

log = get_logger(__name__)
_OURS = ("identity.json", "identity.proposed", "journal.sqlite", "guests", "images")
_OTHERS = 0o077


def prepare(root: Path) -> None:
    """Make the folder, or tighten one that an earlier release left open to others; guests that run keep their files.

    Raises TooOpen where others could read the key, which they may have by now; where the folder is open and is not an
    agent's; and where what is too open belongs to another account. OSError where the folder cannot be made.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    root = root.resolve()
    check_modes(root.glob("identity.*"), _OTHERS)
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & _OTHERS and any(root.iterdir()) and not any((root / name).exists() for name in _OURS):
        raise TooOpen(
            f"state_dir {root} has other things in it, and others may use it (mode {mode:04o}): name a folder of the "
            "agent's own"
        )
    tightened = [str(path) for path in _everything(root) if _tighten(path)]
    if tightened:
        log.warning("agent.tightened", paths=len(tightened), first=tightened[0])
    check_modes(_everything(root), _OTHERS)


def _everything(root: Path) -> Iterator[Path]:
    # Images are below the folder too; they need no more than that others cannot get there.
    yield root
    yield from root.glob("journal.sqlite*")
    yield root / "guests"
    yield from (root / "guests").rglob("*")


def _tighten(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
            return True
    return False
