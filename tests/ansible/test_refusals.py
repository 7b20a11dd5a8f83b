"""Refusals before anything is changed, on a real root file system and real disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.process import run
from tests.ansible.hosts import FOR_ROOT, by_chroot, disk, played, refusal, root_file_system
from tests.tree import ROOT

pytestmark = [FOR_ROOT, pytest.mark.slow]
SURVEY = (ROOT / "ansible/roles/survey/files/survey.sh").read_text()
LABEL, PLACE = "pagecage-data", "/srv/pagecage"
LINUX_PARTITION = (
    bytes([0, 0, 2, 0, 0x83, 0, 0, 0])
    + (2048).to_bytes(4, "little")
    + (65536).to_bytes(4, "little")
)
SIGNED = {
    "a file system": (["mkfs.ext4", "-q"], "ext4"),
    "a labelled file system": (["mkfs.ext4", "-q", "-L", "somebodys"], "ext4 somebodys"),
    "swap": (["mkswap"], "swap"),
}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with root_file_system("bookworm") as root:
        yield root


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    with disk(tmp_path) as device:
        yield device


def tree(root: Path) -> list[str]:
    """Return all files except those that Ansible keeps while it runs."""
    chosen = ("-xdev", "-not", "-path", "*/root/.ansible*", "-printf", "%p %m %s %l\n")
    listed = run(["find", root, *chosen]).stdout
    return sorted(line for line in listed.splitlines() if not line.startswith(f"{root}/root "))


def surveyed(root: Path, device: str, data_dir: str = PLACE, *users: str) -> list[str]:
    """Return the survey's reasons for a refusal."""
    words = ["sh", "-s", LABEL, data_dir, device, *users]
    printed = run(["chroot", root, *words], input_text=SURVEY).stdout.splitlines()
    assert all(line.startswith("+ ") for line in printed)
    return [line.removeprefix("+ ") for line in printed]


def write(device: str, offset: int, content: bytes) -> None:
    with Path(device).open("r+b") as file:
        file.seek(offset)
        file.write(content)


def content_of(device: str) -> bytes:
    return Path(device).read_bytes()


@pytest.mark.parametrize("kind", SIGNED)
def test_a_disk_that_holds_something(root: Path, device: str, kind: str) -> None:
    argv, expected = SIGNED[kind]
    run([*argv, device])
    before = content_of(device)
    (printed,) = surveyed(root, device)
    assert printed.startswith(f"{device} is not blank: it holds {expected} (wipefs). Fix: ")
    assert f"blkdiscard -f -z {device}" in printed
    assert content_of(device) == before


def test_a_disk_with_a_partition_table(root: Path, device: str) -> None:
    write(device, 446, LINUX_PARTITION)
    write(device, 510, b"\x55\xaa")
    (printed,) = surveyed(root, device)
    assert printed.startswith(f"{device} is not blank: it holds dos (wipefs)")


@pytest.mark.parametrize(
    ("offset", "content"),
    [(4096 * 3, b"x"), (80 << 20, b"x" * (4 << 20)), ((160 << 20) - 1, b"x")],
    ids=["begin", "middle", "end"],
)
def test_a_disk_with_data_of_no_known_kind(
    root: Path, device: str, offset: int, content: bytes
) -> None:
    write(device, offset, content)
    (printed,) = surveyed(root, device)
    held = "data of a kind that wipefs does not know"
    assert printed.startswith(f"{device} is not blank: it holds {held}. ")


def test_a_disk_that_somebody_uses_whom_the_host_does_not_see(
    root: Path, device: str, tmp_path: Path
) -> None:
    run(["mkfs.ext4", "-q", "-L", LABEL, device])
    (tmp_path / "mounted").mkdir()
    run(["mount", device, tmp_path / "mounted"])
    try:
        printed = surveyed(root, device)[0]
        assert printed.startswith(f"{device} is in use (mke2fs -n says so). Fix: ")
    finally:
        run(["umount", tmp_path / "mounted"])


def test_a_disk_that_is_mounted_elsewhere_on_the_host(root: Path, device: str) -> None:
    run(["mkfs.ext4", "-q", "-L", LABEL, device])
    run(["mount", device, root / "mnt"])
    try:
        assert surveyed(root, device)[0].startswith(f"{device} is mounted at /mnt. Fix: ")
        assert surveyed(root, device, "/mnt") == []
        printed = surveyed(root, device.replace("loop", "no-loop"), "/mnt")[0]
        assert printed.startswith("there is no device")
    finally:
        run(["umount", root / "mnt"])


def test_blank_disks_and_ours_pass(root: Path, device: str) -> None:
    assert surveyed(root, device) == []
    run(["mkfs.ext4", "-q", "-L", LABEL, device])
    assert surveyed(root, device) == []
    assert surveyed(root, "none") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), "no device is named for data, and there is no default"),
        (("/dev/disk/by-id/none",), "there is no device /dev/disk/by-id/none"),
        (("/etc/fstab",), "/etc/fstab is not a block device"),
        (("none", ""), "no directory is named for data"),
        (("none", "/"), "the data directory cannot be /"),
        (("none", "srv"), "the data directory srv is not an absolute path"),
        (("none", "/etc/fstab"), "the data directory /etc/fstab is a file"),
        (("none", PLACE, "nobody", "alice"), "there is no user alice to delegate to"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    root: Path, words: tuple[str, ...], expected: str
) -> None:
    assert surveyed(root, *words)[0].startswith(f"{expected}. Fix: ")


def test_files_that_a_mount_would_hide(root: Path, device: str) -> None:
    expected = f"/etc holds files, which mounting {device} there would hide. Fix: "
    assert surveyed(root, device, "/etc")[0].startswith(expected)


def test_ansible_stops_there_and_nothing_was_changed(
    root: Path, device: str, tmp_path: Path
) -> None:
    before = tree(root)
    run(["mkswap", device])
    printed, hint = refusal(tmp_path, by_chroot(root, pagecage_data_device=device))
    assert printed == f"rootfs: {device} is not blank: it holds swap (wipefs)"
    assert hint.startswith("name another in pagecage_data_device")
    printed, hint = refusal(tmp_path, by_chroot(root))
    assert printed == "rootfs: no device is named for data, and there is no default"
    assert hint.startswith("set pagecage_data_device; choose one of `lsblk`")
    assert tree(root) == before


def test_ansible_goes_on_where_nothing_is_against_it(
    root: Path, device: str, tmp_path: Path
) -> None:
    """Only the survey runs: nothing is installed."""
    wishes = by_chroot(root, pagecage_data_device=device)
    assert played(tmp_path, wishes, "site.yml", "--tags", "always").stopped_by is None


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        pytest.param('ID=debian\nVERSION_ID="11"\n', "debian 11", marks=pytest.mark.long),
        pytest.param('ID=ubuntu\nVERSION_ID="20.04"\n', "ubuntu 20.04", marks=pytest.mark.long),
        ("ID=alpine\nVERSION_ID=3.22.0\n", "alpine 3.22.0"),
    ],
)
def test_a_distribution_that_is_not_supported(
    tmp_path: Path, root: Path, release: str, expected: str
) -> None:
    release_file = root / "usr/lib/os-release"
    ours = release_file.read_text()
    release_file.write_text(release)
    try:
        printed, hint = refusal(tmp_path, by_chroot(root, pagecage_data_device="none"))
    finally:
        release_file.write_text(ours)
    assert printed == f"rootfs: {expected} is not supported"
    assert "debian 12, ubuntu 22.04, fedora 40" in hint
