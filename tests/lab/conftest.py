"""What the lab's tests need: root and the packages, else they are skipped and say what is missing."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.lab import image, up


@pytest.fixture(scope="session")
def lab_machine() -> None:
    missing = up.problems()
    if missing:
        pytest.skip(f"needs a machine that can run a lab: {'; '.join(missing)}")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets, however deep pytest's own folder is."""
    with tempfile.TemporaryDirectory(prefix="ml-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def guest_image(tmp_path_factory) -> image.GuestImage:
    """The image, kept between runs in the machine's cache folder."""
    if shutil.which("apt-get") is None or shutil.which("qemu-img") is None:
        pytest.skip("needs apt-get and qemu-img to build the guest image")
    return image.build_image(Path(tempfile.gettempdir()) / "moorage-test-cache")
