"""A volume attached to this machine by FUSE and loop(4): its data, its timing, and its faults."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pagecage.agent import mounted_volume
from pagecage.agent.limits.calibration import SimulatedVolume, sound_account
from pagecage.agent.limits.fidelity import volume_fidelity
from pagecage.agent.mounted_volume import (
    MountedVolume,
    mount_volume,
    release_volume,
    unmount_volume,
)
from pagecage.agent.volume_server import (
    FUSE_PROGRAM,
    SERVED_FILE,
    FuseLoop,
    VolumeServer,
    path_latency_us,
)
from pagecage.errors import HostDied, HostError
from pagecage.linux.page_cache import resident_bytes
from pagecage.model.cage import Cage, LatencyQuantiles, VolumeSimulation
from pagecage.process import PIPE, run, spawn
from pagecage.whole_files import write_whole
from tests.builders.known import known
from tests.builders.volumes import PROGRAMS, needs_fuse
from tests.builders.waiting import wait_until
from tests.volume.clients import fixed_latency, iops_limit, wait_for_queue

pytestmark = needs_fuse
MIB, PAGE = 2**20, 4096


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    """Return a spool with the server's program. Afterwards nothing of a volume may be left."""
    made = tmp_path / "spool"
    (made / "bin").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    shutil.copy(PROGRAMS / FUSE_PROGRAM, made / "bin")
    yield made
    left = left_of(made)
    unmount_volume(made)
    assert left == []


def left_of(spool: Path) -> list[str]:
    """Return what is left of the volumes of a spool: mounts, loop devices, processes.

    A loop device whose file was unmounted under it has the file `/`.
    """
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    loops = (read(path).decode() for path in Path("/sys/block").glob("loop*/loop/backing_file"))
    lines = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [
        *(line for line in mounts if str(spool) in line),
        *(line for line in loops if str(spool) in line or line.strip() == "/"),
        *(str(path) for path in lines if str(spool).encode() in read(path)),
    ]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def mount(spool: Path, data_bytes: int = 64 * MIB) -> MountedVolume:
    return mount_volume(data_bytes, spool.parent / "data", spool)


@pytest.fixture
def mounted(spool: Path) -> Iterator[MountedVolume]:
    made = mount(spool)
    yield made
    unmount_volume(spool)
    made.server.end()


def raw_file(spool: Path) -> Path:
    return spool.parent / "data/pagecage-volume.raw"


def read_direct(node: str, offsets: Iterator[int] | range) -> list[float]:
    """Return the seconds of each read of a page past the page cache."""
    took, device = [], os.open(node, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, PAGE) as page:
            for offset in offsets:
                began = time.monotonic()
                os.preadv(device, [page], offset)
                took.append(time.monotonic() - began)
    finally:
        os.close(device)
    return took


def test_bytes_are_on_the_file_and_not_in_the_page_cache(
    mounted: MountedVolume, spool: Path
) -> None:
    file, content = mounted.mount_point / "file", os.urandom(8 * MIB)
    file.write_bytes(content)
    run(["sync", "-f", file])
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert file.read_bytes() == content
    assert resident_bytes(file) == len(content)
    assert resident_bytes(raw_file(spool)) == 0
    account = sound_account(SimulatedVolume(mounted.server.command))
    assert account["total_write_bytes"] >= len(content)
    assert account["total_read_bytes"] >= len(content)
    assert account["pcvolume"]["flush_ops"] > 0


def test_data_last_until_the_next_mount(spool: Path) -> None:
    content = os.urandom(MIB)
    for number in range(2):
        made = mount(spool)
        file = made.mount_point / "file"
        if number == 0:
            file.write_bytes(content)
        found = file.read_bytes()
        unmount_volume(spool)
        made.server.end()
        assert found == content
        assert left_of(spool) == []


def test_a_discard_frees_space(mounted: MountedVolume, spool: Path) -> None:
    file = mounted.mount_point / "file"
    file.write_bytes(os.urandom(16 * MIB))
    run(["sync", "-f", file])
    full = raw_file(spool).stat().st_blocks
    file.unlink()
    run(["sync", "-f", mounted.mount_point])
    run(["fstrim", mounted.mount_point])
    assert full * 512 - raw_file(spool).stat().st_blocks * 512 > 15 * MIB
    assert mounted.server.command({"account": True})["pcvolume"]["trim_ops"] > 0


def test_a_rate_is_held(mounted: MountedVolume) -> None:
    mounted.server.command({"configure": iops_limit(200)})
    began = time.monotonic()
    read_direct(mounted.disk.node, range(0, 101 * PAGE, PAGE))
    assert time.monotonic() - began >= 0.5


def test_requests_wait_side_by_side(mounted: MountedVolume) -> None:
    """Each of 64 reads takes half a second, and so do all of them."""
    mounted.server.command({"configure": {"read_latency": fixed_latency(500_000)}})
    node = mounted.disk.node
    pages = [range(n * MIB, n * MIB + PAGE, PAGE) for n in range(64)]
    reads = [threading.Thread(target=read_direct, args=(node, page)) for page in pages]
    began = time.monotonic()
    for thread in reads:
        thread.start()
    for thread in reads:
        thread.join()
    assert 0.49 < time.monotonic() - began < 5.0
    assert mounted.server.command({"account": True})["total_read_ops"] >= 64


def test_the_time_of_the_path_is_taken_off(mounted: MountedVolume) -> None:
    """A reply comes earlier by the path, and its latency in the account includes the path."""
    model = {"read_latency": fixed_latency(50_000), "path_us": 40_000}
    assert mounted.server.command({"configure": model})["in_force"]["path_us"] == 40_000
    took = read_direct(mounted.disk.node, range(0, 10 * PAGE, PAGE))
    assert 0.0099 < min(took) < 0.03
    account = mounted.server.command({"account": True})
    assert account["total_read_time"] / account["total_read_ops"] >= 50_000


def test_the_path_is_measured_and_recorded(mounted: MountedVolume) -> None:
    again_us = path_latency_us(Path(mounted.disk.node), mounted.server.command)
    assert mounted.path["kind"] == "fuse-loop"
    assert 0 < mounted.path["latency_us"] < 20_000
    assert 0 < again_us < 20_000
    assert mounted.server.command({"in_force": True})["in_force"]["read_latency"] == []
    simulation = VolumeSimulation(read_latency=(LatencyQuantiles(PAGE, ((0.5, 900.0),)),))
    cage = Cage("c", {"IOReadIOPSMax": 100}, simulation=simulation, enforced_by="volume")
    volume = SimulatedVolume(mounted.server.command, mounted.path)
    recorded = volume.enforce(cage, 1).to_json()
    assert recorded["path"] == mounted.path
    assert recorded["model"]["path_us"] == mounted.path["latency_us"]


def test_a_path_that_is_too_slow_is_told() -> None:
    simulation = VolumeSimulation(read_latency=(LatencyQuantiles(PAGE, ((0.5, 50.0),)),))
    cage = Cage("c", {}, simulation=simulation, enforced_by="volume")
    [slow] = volume_fidelity(cage, {"kind": "fuse-loop", "latency_us": 61.5})
    assert (slow.aspect, slow.state) == ("latency", "stricter")
    assert "takes 61.5 us, and the cage's lowest latency is 50 us" in slow.reason
    [fast] = volume_fidelity(cage, {"kind": "fuse-loop", "latency_us": 50.0})
    assert fast.state == "exact"


def test_a_killed_server_is_an_error_at_once_and_leaves_nothing(
    mounted: MountedVolume, spool: Path
) -> None:
    mounted.server.command({"event": {"kind": "pause"}})
    source = f"if={mounted.disk.node}"
    reading = spawn(["dd", source, "of=/dev/null", "bs=4096", "iflag=direct"], stderr=PIPE)
    wait_for_queue(mounted.server)
    os.kill(mounted.server.pid, signal.SIGKILL)
    assert reading.wait(30) != 0
    assert b"Input/output error" in known(reading.stderr).read()
    with pytest.raises(HostDied, match="the simulated volume ended"):
        sound_account(SimulatedVolume(mounted.server.command))
    removed = unmount_volume(spool)
    assert str(spool / "volume/mounted") in removed
    assert left_of(spool) == []


@pytest.mark.slow
def test_a_long_pause_does_not_hold_the_end_up(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that wait for the end of a pause were decided, and another model does not end it."""
    monkeypatch.setattr(mounted_volume, "_UNMOUNT_SECONDS", 1.0)
    made = mount(spool)
    (made.mount_point / "file").write_bytes(os.urandom(MIB))
    made.server.command({"event": {"kind": "pause", "until_seconds": 600}})
    syncing = spawn(["sync", "-f", made.mount_point])
    wait_for_queue(made.server)
    release_volume(made, spool)
    syncing.wait(30)
    assert not made.server.alive()
    assert left_of(spool) == []


AGENT = """
import sys, time
from pathlib import Path
from pagecage.agent import mounted_volume
spool, data, stop = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def held(*_, **__):
    print("held", flush=True)
    time.sleep(600)

if stop != "mounted":
    setattr(mounted_volume, stop, held)
mounted_volume.mount_volume(1 << 20, data, spool)
held()
"""


@pytest.mark.parametrize("stop", ["path_latency_us", "_mount", "mounted"])
def test_what_a_killed_agent_left_is_undone(spool: Path, stop: str) -> None:
    """It is killed with the volume attached, measured, or in use."""
    words = [sys.executable, "-c", AGENT, str(spool), f"{spool.parent}/data", stop]
    agent = spawn(words, stdout=PIPE)
    assert known(agent.stdout).readline() == b"held\n"
    agent.kill()
    agent.wait()
    assert left_of(spool)
    removed = unmount_volume(spool)
    assert str(spool / "volume" / SERVED_FILE) in removed
    wait_until(lambda: left_of(spool) == [])
    assert unmount_volume(spool) == []
    made = mount(spool)
    unmount_volume(spool)
    made.server.end()


@pytest.fixture
def small_disk(spool: Path) -> Iterator[Path]:
    """Make the data directory a file system of 1.4 GiB, of which a volume takes 1 GiB."""
    image, data = spool.parent / "image", spool.parent / "data"
    with image.open("wb") as file:
        file.truncate(1434 * MIB)
    run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", image])
    run(["mount", "-o", "loop", image, data])
    yield data
    unmount_volume(spool)
    run(["umount", data])


def fill(data: Path) -> None:
    with (data / "others").open("wb") as file, suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), file.tell(), 4 * MIB)
            file.seek(4 * MIB, os.SEEK_CUR)


def test_a_volume_that_does_not_fit_is_refused(small_disk: Path, spool: Path) -> None:
    fill(small_disk)
    with pytest.raises(HostError, match=r"1 GiB of the simulated volume do not fit in .*/data"):
        mount(spool)
    assert left_of(spool) == []
    assert not raw_file(spool).exists()


def test_a_full_disk_below_is_the_reason(small_disk: Path, spool: Path) -> None:
    """Discards gave the volume's space back, and another program took it."""
    made = mount(spool)
    run(["fstrim", made.mount_point])
    fill(small_disk)
    file = made.mount_point / "file"
    with pytest.raises(OSError, match=r"No space|rror"):
        write_whole(file, os.urandom(64 * MIB))
    with pytest.raises(HostError, match="below the simulated volume failed: No space left"):
        sound_account(SimulatedVolume(made.server.command))
    unmount_volume(spool)
    made.server.end()
    assert left_of(spool) == []


def test_a_served_file_is_not_served_twice(mounted: MountedVolume, spool: Path) -> None:
    other = spool / "other"
    other.mkdir()
    with pytest.raises(HostError, match="another process serves this file"):
        FuseLoop().serve(spool / "bin", raw_file(spool), other)
    assert mounted.server.alive()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "file=PATH is missing"),
        (("file=disk",), "at=FILE is missing"),
        (("file=disk", "at=at", "size=5"), "there is no parameter size"),
        (("file=disk", "file=disk"), "file is given twice"),
        (("file=missing", "at=at"), "missing: No such file or directory"),
        (("file=empty", "at=at"), "empty: the file is empty, so the volume has no size"),
        (("file=disk", "at=missing"), "missing: cannot be mounted: No such file or directory"),
        (("file=disk", "at=at", "control=/nowhere/socket"), "/nowhere/socket: No such file"),
        (("file=disk", "at=at", "model=wrong"), "wrong: unknown field `limit`"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "disk").write_bytes(bytes(MIB))
    (tmp_path / "wrong").write_text('{"limit": []}')
    for name in ("empty", "at"):
        (tmp_path / name).touch()
    program = PROGRAMS / FUSE_PROGRAM
    done = run([program, *words], check=False, cwd=tmp_path, timeout_seconds=30)
    assert done.status == 1
    assert reason in done.stderr
    assert done.stderr.startswith("pcvolume-fuse: ")
    assert left_of(tmp_path) == []


def test_a_server_that_cannot_start_gives_its_reason(tmp_path: Path) -> None:
    program, absent = PROGRAMS / FUSE_PROGRAM, tmp_path / "absent"
    with pytest.raises(HostError, match=r"pcvolume-fuse did not start: .*absent: No such file"):
        VolumeServer.start_fuse(program, absent, tmp_path, tmp_path / "log")
