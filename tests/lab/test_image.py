"""The guest image's parts that need no virtual machine."""

import gzip
import shutil
import stat
import struct
import subprocess

import pytest

from moorage.lab import image, initramfs

needs_cpio = pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio, as the independent reader")


@needs_cpio
def test_the_archive_is_read_by_cpio(tmp_path):
    entries = iter(
        [
            initramfs.Entry("etc", stat.S_IFDIR | 0o755),
            initramfs.Entry("etc/odd", stat.S_IFREG | 0o644, b"abc"),
            initramfs.Entry("etc/even", stat.S_IFREG | 0o755, b"abcd"),
        ]
    )
    subprocess.run(["cpio", "-idm", "--quiet"], input=initramfs.archive(entries), cwd=tmp_path, check=True)
    assert (tmp_path / "etc/odd").read_bytes() == b"abc"
    assert (tmp_path / "etc/even").read_bytes() == b"abcd"
    assert (tmp_path / "etc/even").stat().st_mode & 0o777 == 0o755


def test_the_boot_record_has_one_active_partition():
    record = image._boot_record(b"\x90" * 500)
    assert len(record) == 512
    assert record[510:] == b"\x55\xaa"
    assert record[446] == 0x80
    assert struct.unpack_from("<I", record, 454)[0] == 2048


def test_an_image_is_made_once(guest_image):
    said: list[str] = []
    again = image.build_image(guest_image.disk.parents[1], said.append)
    assert again == guest_image
    assert len(said) == 1
    assert "made earlier" in said[0]


@needs_cpio
def test_modules_come_after_what_they_need(guest_image):
    listing = subprocess.run(
        ["cpio", "-it", "--quiet"],
        input=gzip.decompress(guest_image.initrd.read_bytes()),
        capture_output=True,
        check=True,
    ).stdout.decode()
    names = [line for line in listing.split() if line.endswith(".ko")]
    assert names.index("modules/virtio.ko") < names.index("modules/virtio_net.ko")
    assert names.index("modules/cdrom.ko") < names.index("modules/sr_mod.ko")
    assert "init" in listing.split()
