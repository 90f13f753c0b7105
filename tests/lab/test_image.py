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


@pytest.mark.parametrize("there", [{}, {"vmlinuz": "rest"}, {"vmlinuz": "first", image.IMAGE_NAME: "first"}])
def test_who_makes_it_second_takes_the_first_and_what_is_left_of_one_is_replaced(tmp_path, there):
    home, made = tmp_path / "guest-1", tmp_path / "out"
    for folder, files in ((home, there), (made, {"vmlinuz": "second", image.IMAGE_NAME: "second"})):
        for name, content in files.items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(content)
    image._keep(made, image.GuestImage(home / image.IMAGE_NAME, home / "vmlinuz", home / "guest.img"))
    kept = "first" if image.IMAGE_NAME in there else "second"
    assert {file.name: file.read_text() for file in home.iterdir()} == dict.fromkeys(
        ("vmlinuz", image.IMAGE_NAME), kept
    )


@needs_cpio
def test_every_module_is_there_with_what_it_needs(guest_image, tmp_path):
    # Device nodes are not ours to make as an ordinary user, and are not asked about.
    content = gzip.decompress(guest_image.initrd.read_bytes())
    subprocess.run(
        ["cpio", "-idm", "--quiet", "lib/*", "etc/*", "bin/*"], input=content, cwd=tmp_path, check=True
    )
    (table,) = tmp_path.glob("lib/modules/*/modules.dep")
    needs = {
        line.partition(":")[0]: line.partition(":")[2].split() for line in table.read_text().splitlines()
    }
    # What virtio itself needs is a module in Debian 12's kernel and built in since Debian 13's.
    assert {"net_failover.ko", "failover.ko"} <= set(needs["virtio_net.ko"])
    assert needs["net_failover.ko"] == ["failover.ko"]
    assert needs["virtio_net.ko"].index("net_failover.ko") < needs["virtio_net.ko"].index("failover.ko")
    for name in needs.keys() | {needed for some in needs.values() for needed in some}:
        assert (table.parent / name).is_file()
    listed = {path.name: path.read_text().split() for path in (tmp_path / "etc").glob("modules*")}
    assert {f"{name}.ko" for names in listed.values() for name in names} <= set(needs)
    assert (tmp_path / "bin/udhcpc").readlink().name == "busybox"
