"""Small files that must be whole and private."""

import os
from pathlib import Path


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read (0600). A crash leaves the old one or the new one, never half."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.rename(path)
