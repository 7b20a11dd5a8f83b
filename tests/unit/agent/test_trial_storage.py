"""Disks for one trial: commands, leftovers after a kill, and the time of a read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagecage.agent import trial_storage
from pagecage.agent.trial_storage import make_null_blk, read_latency_us, remove_storage
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, layers_with_queue
from pagecage.process import Completed
from tests.builders.known import known
from tests.fake_host import trees


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the commands that are run; all of them succeed."""
    lines: list[list[str]] = []

    def run(argv: list[str], **_: object) -> Completed:
        lines.append([str(word) for word in argv])
        return Completed((), 0, "", "")

    monkeypatch.setattr(trial_storage, "run", run)
    return lines


def test_null_blk_is_set_up_in_memory_with_a_timer(
    tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    configfs, make = tmp_path / "nullb", Path.mkdir
    monkeypatch.setattr(trial_storage, "_first_node", lambda *names: names[0])

    def make_with_index(path: Path, **_: object) -> None:
        make(path)
        (path / "index").write_text("3\n")

    monkeypatch.setattr(Path, "mkdir", make_with_index)
    assert make_null_blk(10 * 2**20 + 1, 1500, configfs) == Path("/dev/nullb3")
    written = {path.name: path.read_text() for path in configfs.iterdir() if path.name != "index"}
    assert written == {
        "size": "11",
        "memory_backed": "1",
        "irqmode": "2",
        "completion_nsec": "1500000",
        "hw_queue_depth": "256",
        "max_sectors": "2560",
        "power": "1",
    }
    assert commands == [["modprobe", "null_blk", "nr_devices=0"]]


@pytest.mark.usefixtures("commands")
def test_a_kernel_without_configfs_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="null_blk cannot be set up: No such file or directory"):
        make_null_blk(2**20, 0, tmp_path / "nothing/nullb")


def test_a_delayed_device_delays_reads_alone(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_storage, "_first_node", lambda *names: names[0])
    monkeypatch.setattr(trial_storage, "read_text", lambda path: "2048\n")
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/sbin/dmsetup")
    assert trial_storage._delay(Path("/dev/nullb0"), 8) == trial_storage.MAPPER
    assert commands[-1][-1] == "0 2048 delay /dev/nullb0 0 8 /dev/nullb0 0 0"


def test_without_dmsetup_there_is_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(HostError, match="dmsetup is not installed"):
        trial_storage._delay(Path("/dev/nullb0"), 8)


def test_leftover_disks_are_removed_in_reverse_order(
    tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "mapper").touch()
    (tmp_path / "nullb").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "storage" and not commands)
    monkeypatch.setattr(trial_storage, "_remove_null_blk", lambda path: path.rmdir())
    removed = remove_storage(tmp_path, tmp_path / "nullb", tmp_path / "mapper")
    assert [line[0] for line in commands] == ["umount", "dmsetup"]
    assert removed == [str(tmp_path / "storage"), "mapper", "null_blk nullb"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mapper"]


def test_without_disks_nothing_is_removed(tmp_path: Path, commands: list[list[str]]) -> None:
    assert remove_storage(tmp_path, tmp_path / "nullb", tmp_path / "mapper") == []
    assert commands == []


def test_a_direct_read_takes_its_time(on_disk: Path) -> None:
    path = on_disk / "file"
    path.write_bytes(os.urandom(2**20))
    assert 0.5 < known(read_latency_us(path)) < 1e6


def test_a_file_that_cannot_be_read_directly_has_no_latency(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    assert read_latency_us(tmp_path / "small") is None
    assert read_latency_us(tmp_path / "none") is None


def test_read_ahead_is_set_on_every_layer_that_has_a_queue(tmp_path: Path) -> None:
    trees.disk(tmp_path, "vda", "254:0")
    trees.partition(tmp_path, "vda", "vda1", "254:1")
    trees.disk(tmp_path, "dm-0", "253:0", ("vda1",))
    disk = Disk("vda", "254:0", "/dev/vda", "ext4", "/", ("dm-0", "vda1", "vda"))
    assert [layer.name for layer in layers_with_queue(disk, tmp_path)] == ["dm-0", "vda"]
