"""The disk behind a directory, through partitions and layers, or the reason why there is none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.agent.host_session import sweep
from pagecage.agent.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.linux.block_device import (
    Disk,
    LoopDisk,
    Mount,
    detach_loop_disk,
    find_mount,
    layers_with_queue,
    on_disk_bytes,
    parse_mountinfo,
    read_latency_us,
    read_lower_device,
    read_queue_settings,
    resolve_disk,
    stack_names,
    write_queue_setting,
)
from pagecage.linux.systemd import Systemd
from pagecage.process import run
from pagecage.units import BLOCK_BYTES, MIB
from tests.builders.known import known
from tests.fake_host.trees import btrfs, disk, mountinfo, partition


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    return tmp_path / "sys"


def resolve(sys: Path, maj_min: str, kind: str = "ext4", source: str = "/dev/x") -> Disk:
    mounts = mountinfo(("8:99", "/", "ext4", "/dev/y"), (maj_min, "/data", kind, source))
    return resolve_disk(Path("/data/pagecage"), sys, mounts)


Device = tuple[str, ...]
SDA, SDA3, SDB = ("sda", "8:0"), ("sda/sda3", "8:3"), ("sdb", "8:16")
LVM = ("dm-0", "253:0", "sda3")
RAID = ("md0", "9:0", "sda", "sdb")


def lay_out(sys: Path, *devices: Device) -> None:
    """Make disks and partitions ("sda/sda3"): each a name, a number, and what it lies on."""
    for path, number, *below in devices:
        whole, _, part = path.partition("/")
        if part:
            partition(sys, whole, part, number)
        else:
            disk(sys, whole, number, tuple(below), "" if below else "pci0000:00/0000:00:1f.2")


def test_a_whole_disk(sys: Path) -> None:
    disk(sys, "vdb", "254:16")
    assert resolve(sys, "254:16") == Disk("vdb", "254:16", "/dev/vdb", "ext4", "/data", ("vdb",))


@pytest.mark.parametrize(
    ("devices", "stack"),
    [
        pytest.param((SDA, SDA3), ("sda3", "sda"), id="a partition"),
        pytest.param(
            (("nvme0n1", "259:0"), ("nvme0n1/nvme0n1p2", "259:2")),
            ("nvme0n1p2", "nvme0n1"),
            id="a partition of NVMe",
        ),
        pytest.param(
            (("mmcblk0", "179:0"), ("mmcblk0/mmcblk0p1", "179:1")),
            ("mmcblk0p1", "mmcblk0"),
            id="a partition of a card",
        ),
        pytest.param((SDA, SDA3, LVM), ("dm-0", "sda3", "sda"), id="LVM on a partition"),
        pytest.param(
            (SDA, SDA3, LVM, ("dm-1", "253:1", "dm-0")),
            ("dm-1", "dm-0", "sda3", "sda"),
            id="LVM on LUKS on a partition",
        ),
        pytest.param((SDA, SDB, RAID), ("md0",), id="a RAID of two takes the limit itself"),
        pytest.param(
            (SDA, SDB, RAID, ("dm-0", "253:0", "md0")),
            ("dm-0", "md0"),
            id="LVM on a RAID stops at the RAID",
        ),
        # systemd walks on there, so that a limit for the RAID would be set on the disk (v257)
        pytest.param(
            (SDA, ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("md0", "9:0", "sda1", "sda2")),
            ("md0", "sda1", "sda"),
            id="a RAID of two partitions of a disk takes the limit of that disk",
        ),
        # its metadata and data are whole devices to systemd, even if both lie on one disk
        pytest.param(
            (
                *(SDA, SDA3, LVM, ("dm-1", "253:1", "sda3")),
                *(("dm-2", "253:2", "dm-0", "dm-1"), ("dm-3", "253:3", "dm-2")),
            ),
            ("dm-3", "dm-2"),
            id="a thin pool of two volumes takes the limit itself",
        ),
    ],
)
def test_the_disk_below(sys: Path, devices: tuple[Device, ...], stack: tuple[str, ...]) -> None:
    lay_out(sys, *devices)
    found = resolve(sys, devices[-1][1])
    numbers = {name.rpartition("/")[2]: number for name, number, *_ in devices}
    expected = (stack[-1], numbers[stack[-1]], f"/dev/{stack[-1]}", stack)
    assert (found.name, found.maj_min, found.node, found.stack) == expected


@pytest.mark.parametrize(
    ("kind", "options", "holds"),
    [
        ("ext4", "rw", True),
        ("ext4", "rw,errors=remount-ro,data=journal", False),
        ("xfs", "rw,attr2", True),
        ("btrfs", "rw,compress=zstd:3", True),
        ("ext2/ext3", "rw", True),
        ("vfat", "rw", False),
        ("exfat", "rw", False),
        ("ntfs3", "rw", False),
    ],
)
def test_file_systems_whose_writeback_belongs_to_a_cgroup(
    kind: str, options: str, holds: bool
) -> None:
    text = mountinfo(("8:1", "/data", kind, "/dev/sda1")).replace(" rw\n", f" {options}\n")
    assert find_mount(Path("/data/x"), text).has_cgroup_writeback is holds


def test_btrfs_on_one_disk(sys: Path) -> None:
    lay_out(sys, SDA, SDA3)
    btrfs(sys, ("sda3",))
    found = resolve(sys, "0:45", "btrfs", "/dev/sda3")
    assert (found.name, found.filesystem) == ("sda", "btrfs")


def test_btrfs_on_luks_by_the_name_in_dev_mapper(sys: Path, tmp_path: Path) -> None:
    lay_out(sys, SDA, ("dm-0", "253:0", "sda"))
    btrfs(sys, ("dm-0",))
    (tmp_path / "mapper").mkdir()
    (tmp_path / "dm-0").touch()
    (tmp_path / "mapper/luks-1").symlink_to("../dm-0")
    assert resolve(sys, "0:45", "btrfs", f"{tmp_path}/mapper/luks-1").stack == ("dm-0", "sda")


def test_btrfs_on_two_disks_is_refused(sys: Path) -> None:
    lay_out(sys, SDA, SDB)
    btrfs(sys, ("sda", "sdb"))
    with pytest.raises(HostError, match=r"/data is btrfs on 2 disks"):
        resolve(sys, "0:45", "btrfs", "/dev/sdb")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("overlay", " (an overlay of other file systems)"),
        ("tmpfs", " (memory)"),
        ("zfs", " (a ZFS pool)"),
        ("nfs", " (another machine)"),
        ("nfs4", " (another machine)"),
        ("9p", " (another machine)"),
        ("virtiofs", " (another machine)"),
        ("fuse.sshfs", " (a user-space file system)"),
        ("fuseblk", " (a user-space file system)"),
        *((kind, "") for kind in ("devtmpfs", "ceph", "bcachefs", "proc")),
    ],
)
def test_where_no_limit_can_bind(sys: Path, kind: str, reason: str) -> None:
    with pytest.raises(HostError) as caught:
        resolve(sys, "0:50", kind, "none")
    assert f"/data/pagecage is on {kind}{reason}" in caught.value.message
    assert "ext4" in caught.value.hint


def test_a_device_that_sysfs_does_not_know(sys: Path) -> None:
    disk(sys, "vdb", "254:16")
    with pytest.raises(HostError, match="254:32 is not in sysfs"):
        resolve(sys, "254:32")


def test_the_deepest_mount_and_the_last_of_equals_count(sys: Path) -> None:
    lay_out(sys, ("vda", "254:0"), ("vdb", "254:16"), ("vdc", "254:32"))
    text = mountinfo(
        ("254:0", "/", "ext4", "/dev/vda"),
        ("254:16", "/data", "ext4", "/dev/vdb"),
        ("254:32", "/data", "xfs", "/dev/vdc"),
    )
    assert resolve_disk(Path("/data/x"), sys, text).name == "vdc"
    assert resolve_disk(Path("/database"), sys, text).name == "vda"


def test_a_link_is_followed(sys: Path, tmp_path: Path) -> None:
    lay_out(sys, ("vda", "254:0"), ("vdb", "254:16"))
    (tmp_path / "mounted").mkdir()
    (tmp_path / "link").symlink_to("mounted")
    mounted = ("254:16", f"{tmp_path}/mounted", "ext4", "/dev/vdb")
    text = mountinfo(("254:0", "/", "ext4", "/dev/vda"), mounted)
    assert resolve_disk(tmp_path / "link", sys, text).name == "vdb"


ESCAPED = {" ": r"\040", "\t": r"\011", "\n": r"\012", "\\": r"\134", "#": r"\043"}
names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12)


@given(names)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_a_mount_can_have(name: str) -> None:
    """The kernel escapes only blank, tab, newline, backslash and # (seq_path), not U+3000."""
    shown = "".join(ESCAPED.get(letter, letter) for letter in f"/mnt/{name}")
    fields = "rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
    [mount] = parse_mountinfo(f"36 35 98:0 / {shown} {fields}\n")
    assert mount == Mount("98:0", f"/mnt/{name}", "ext3", "/dev/root", "rw,errors=continue")


def test_optional_fields_may_be_many_or_none() -> None:
    text = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
    text += "2 0 8:2 / /b rw shared:1 master:2 unbindable - xfs /dev/sda2 rw\n"
    assert [mount.maj_min for mount in parse_mountinfo(text)] == ["8:1", "8:2"]


def test_this_machines_mounts_can_be_read() -> None:
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    assert any(m.mount_point == "/proc" and m.filesystem == "proc" for m in mounts)


def test_queue_settings_are_read_and_missing_ones_left_out(sys: Path) -> None:
    queue = disk(sys, "vdb", "254:16") / "queue"
    (queue / "write_cache").unlink()
    settings = read_queue_settings(resolve(sys, "254:16"), sys)
    assert settings["read_ahead_kb"] == "256"
    assert settings["scheduler"] == "[none] mq-deadline"
    assert "write_cache" not in settings


def test_a_queue_setting_is_written_and_read_back(sys: Path) -> None:
    disk(sys, "vdb", "254:16")
    found = resolve(sys, "254:16")
    write_queue_setting(found, "read_ahead_kb", "128", sys)
    assert read_queue_settings(found, sys)["read_ahead_kb"] == "128"


def test_a_queue_setting_that_is_refused(sys: Path) -> None:
    disk(sys, "vdb", "254:16")
    (sys / "block/vdb/queue/nomerges").mkdir()
    found = resolve(sys, "254:16")
    with pytest.raises(HostError, match="cannot be set to 1: Is a directory"):
        write_queue_setting(found, "nomerges", "1", sys)


def test_a_differing_queue_setting_is_an_error(sys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """read_ahead_kb is stored in pages: 130 becomes 128."""
    disk(sys, "vdb", "254:16")
    found = resolve(sys, "254:16")
    monkeypatch.setattr(Path, "write_text", lambda *_: 0)
    with pytest.raises(HostError, match="was set to 130 but reads 256"):
        write_queue_setting(found, "read_ahead_kb", "130", sys)
    write_queue_setting(found, "scheduler", "none", sys)


DISKSTATS = """   8       0 sda 20 0 160 5 0 0 0 0 0 5 5 0 0 0 0 0 0
   8       3 sda3 19 0 150 5 0 0 0 0 0 5 5 0 0 0 0 0 0
 253       0 dm-0 10 0 80 5 0 0 0 0 0 5 5 0 0 0 0 0 0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/diskstats").write_text(DISKSTATS)
    return tmp_path / "proc"


def test_the_lower_device_of_lvm_is_the_whole_disk(sys: Path, proc: Path) -> None:
    lay_out(sys, SDA, SDA3, LVM)
    found = resolve(sys, "253:0")
    assert stack_names(found, sys) == ("dm-0", "sda3", "sda")
    counters = known(read_lower_device(found, sys, proc))
    assert (counters["reads"], counters["sectors_read"]) == (20, 160)


def test_the_lower_device_of_a_loop_device_is_the_disk_of_its_file(
    sys: Path, proc: Path, tmp_path: Path
) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    lay_out(sys, ("sda", number), ("loop0", "7:0"))
    (sys / "block/loop0/loop").mkdir()
    (sys / "block/loop0/loop/backing_file").write_text(f"{tmp_path}\n")
    (proc / "diskstats").write_text(DISKSTATS.replace("8       0", number.replace(":", " ")))
    found = resolve(sys, "7:0")
    assert stack_names(found, sys) == ("loop0", "sda")
    assert (read_lower_device(found, sys, proc) or {})["reads"] == 20
    (sys / "block/loop0/loop/backing_file").write_text("/a/file/that/is/gone\n")
    assert stack_names(found, sys) == ("loop0",)
    assert read_lower_device(found, sys, proc) is None


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        pytest.param((SDA, SDA3), {"sda3", "sda"}, id="a partition is no layer"),
        pytest.param(
            (SDA, SDA3, SDB, ("md0", "9:0", "sda3", "sdb")),
            {"md0", "sda3", "sda", "sdb"},
            id="of a RAID every member is named and none is the lower device",
        ),
        pytest.param(
            (("vdb", "254:16"), ("dm-0", "253:0", "vdb")),
            {"dm-0", "vdb"},
            id="a disk that diskstats lacks has no counters",
        ),
    ],
)
def test_without_a_lower_device(
    sys: Path, proc: Path, devices: tuple[Device, ...], names: set[str]
) -> None:
    lay_out(sys, *devices)
    found = resolve(sys, devices[-1][1])
    assert set(stack_names(found, sys)) == names
    assert read_lower_device(found, sys, proc) is None


def test_in_a_chroot_the_device_number_tells_the_disk(tmp_path: Path) -> None:
    """A chroot's mountinfo has no line for its root."""
    within = "30 29 0:5 / /proc rw - proc proc rw\n"

    def found(mountinfo: str | None) -> str | None:
        try:
            return resolve_disk(tmp_path, mountinfo=mountinfo).maj_min
        except HostError:  # the temporary directory is in memory here
            return None

    assert found(within) == found(None)


def test_a_missing_directory_in_a_chroot_is_on_no_known_mount(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is on no known mount"):
        resolve_disk(tmp_path / "none", mountinfo="")


PIECES = 300  # more extents than one call takes


@pytest.fixture
def file(on_disk: Path) -> Path:
    return on_disk / "file"


def write(path: Path, *places: int, size: int | None = None) -> None:
    with path.open("wb") as file:
        for place in places:
            os.pwrite(file.fileno(), os.urandom(BLOCK_BYTES), place * BLOCK_BYTES)
        if size is not None:
            file.truncate(size)
        os.fsync(file.fileno())


def test_a_written_file_is_all_on_the_disk(file: Path) -> None:
    write(file, 0, 1, 2, size=2 * BLOCK_BYTES + 1)
    assert on_disk_bytes(file) == 3 * BLOCK_BYTES


def test_a_hole_is_nowhere_and_extents_of_several_calls_are_added(file: Path) -> None:
    write(file, *range(0, 2 * PIECES, 2), size=4 * PIECES * BLOCK_BYTES)
    assert on_disk_bytes(file) == PIECES * BLOCK_BYTES


def test_preallocated_extents_need_no_request(file: Path) -> None:
    """This holds even after a read through the page cache, when SEEK_DATA would report data."""
    write(file, 0, size=BLOCK_BYTES)
    with file.open("r+b") as opened:
        os.posix_fallocate(opened.fileno(), 0, 16 * BLOCK_BYTES)
        os.fsync(opened.fileno())
    assert len(file.read_bytes()) == 16 * BLOCK_BYTES
    assert on_disk_bytes(file) == BLOCK_BYTES


def test_an_empty_file_and_one_in_memory_have_nothing_there(file: Path) -> None:
    file.touch()
    assert on_disk_bytes(file) == 0
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as other:
        other.write(b"x" * BLOCK_BYTES)
        other.flush()
        assert on_disk_bytes(Path(other.name)) == 0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    """Return a spool whose loop disk is detached at the end."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("only root attaches loop devices, and the kernel needs their driver")
    folder = tmp_path / "spool"
    yield folder
    detach_loop_disk(folder)


def disk_in(folder: Path, size_bytes: int = 32 * MIB) -> LoopDisk:
    return LoopDisk(folder / "data/disk.img", size_bytes)


def attached(file: Path) -> str:
    return run(["losetup", "--associated", file], check=False).stdout


def queue(name: str, setting: str) -> str:
    return Path("/sys/block", name, "queue", setting).read_text().strip()


def test_it_has_settings_of_its_own(tmp_path: Path, spool: Path) -> None:
    below = resolve_disk(tmp_path)
    before = queue(below.name, "read_ahead_kb")
    mine = resolve_disk(disk_in(tmp_path).attach(spool))
    assert mine.maj_min != below.maj_min
    assert mine.filesystem == "ext4"
    assert Path("/sys/block", mine.name, "loop/dio").read_text().strip() == "1"
    journal = QueueSettingsJournal(spool)
    journal.set(mine, "read_ahead_kb", "64")
    assert queue(mine.name, "read_ahead_kb") == "64"
    assert queue(below.name, "read_ahead_kb") == before
    journal.restore()


def test_its_file_is_kept_while_it_is_large_enough(tmp_path: Path, spool: Path) -> None:
    disk = disk_in(tmp_path)
    (disk.attach(spool) / "1.bin").write_bytes(b"kept")
    detach_loop_disk(spool)
    assert attached(disk.file) == ""
    assert (disk.attach(spool) / "1.bin").read_bytes() == b"kept"
    detach_loop_disk(spool)
    larger = disk_in(tmp_path, 48 * MIB).attach(spool)
    assert [path.name for path in larger.iterdir()] == ["lost+found"]
    assert disk.file.stat().st_blocks * 512 >= 48 * MIB, "no holes, which would be read from memory"


def test_a_file_that_is_no_file_system_is_made_again(tmp_path: Path, spool: Path) -> None:
    disk = disk_in(tmp_path)
    disk.file.parent.mkdir()
    disk.file.write_bytes(b"\0" * 32 * MIB)
    assert disk.attach(spool).is_mount()


def test_the_next_start_detaches_what_a_killed_agent_left(tmp_path: Path, spool: Path) -> None:
    disk = disk_in(tmp_path)
    mount_point = disk.attach(spool)
    node = resolve_disk(mount_point).node
    assert sweep(Systemd(False, 0), spool) == [node]
    assert not mount_point.is_mount()
    assert attached(disk.file) == ""
    assert sweep(Systemd(False, 0), spool) == []


def test_without_room_nothing_is_left(tmp_path: Path, spool: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small])
    try:
        with pytest.raises(HostError, match="cannot become a disk"):
            LoopDisk(small / "disk.img", 32 * MIB).attach(spool)
        assert list(small.iterdir()) == []
        assert not (spool / "disk").is_mount()
    finally:
        run(["umount", small])


def test_a_direct_read_takes_its_time(on_disk: Path) -> None:
    path = on_disk / "file"
    path.write_bytes(os.urandom(2**20))
    assert 0.5 < known(read_latency_us(path)) < 1e6


def test_a_file_that_cannot_be_read_directly_has_no_latency(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    assert read_latency_us(tmp_path / "small") is None
    assert read_latency_us(tmp_path / "none") is None


def test_read_ahead_is_set_on_every_layer_that_has_a_queue(tmp_path: Path) -> None:
    disk(tmp_path, "vda", "254:0")
    partition(tmp_path, "vda", "vda1", "254:1")
    disk(tmp_path, "dm-0", "253:0", ("vda1",))
    stacked = Disk("vda", "254:0", "/dev/vda", "ext4", "/", ("dm-0", "vda1", "vda"))
    assert [layer.name for layer in layers_with_queue(stacked, tmp_path)] == ["dm-0", "vda"]
