"""Files and folders that are whole or absent, and what killed makers leave."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pagecage.process import PIPE, spawn
from pagecage.whole_files import (
    append_line,
    point_link,
    remove_abandoned,
    scratch_folder,
    whole_file,
    whole_folder,
    write_whole,
)
from tests.tree import ROOT

Synced = list[str]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    """Return the paths that are synced."""
    paths: Synced = []
    real = os.fsync

    def note(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return paths


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_and_its_folder_are_synced(tmp_path: Path, synced: Synced) -> None:
    write_whole(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
    assert synced == [f".a.{os.getpid()}.part", tmp_path.name]
    assert names(tmp_path) == ["a"]


def fill_half(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise OSError("full")


def test_a_failure_leaves_the_earlier_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "before")
    with pytest.raises(OSError, match="full"):
        fill_half(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == ["a"]


def test_a_folder_appears_with_all_of_its_files(tmp_path: Path, synced: Synced) -> None:
    with whole_folder(tmp_path / "run") as part:
        (part / "plan").write_text("plan")
        assert not (tmp_path / "run").exists()
    assert (tmp_path / "run/plan").read_text() == "plan"
    assert synced == ["plan", part.name, tmp_path.name]


def test_a_folder_that_fails_is_absent(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), whole_folder(tmp_path / "run"):
        raise OSError("full")
    assert names(tmp_path) == []


def test_a_link_is_replaced(tmp_path: Path) -> None:
    for target in ("one", "two"):
        point_link(tmp_path / "latest", target)
        assert (tmp_path / "latest").readlink() == Path(target)
    assert names(tmp_path) == ["latest"]


def test_a_line_that_was_cut_off_is_removed_first(tmp_path: Path, synced: Synced) -> None:
    path = tmp_path / "lines"
    append_line(path, b"one")
    path.write_bytes(path.read_bytes() + b"tw")
    append_line(path, b"three")
    assert path.read_bytes() == b"one\nthree\n"
    assert synced == ["lines", tmp_path.name, "lines"]


_MAKER = """import os, sys
from pathlib import Path
from pagecage.whole_files import scratch_folder, whole_file
with {maker} as made:
    print("made", flush=True)
    sys.stdin.read()
"""


def abandon(folder: Path, maker: str, end: Callable[[int], None]) -> None:
    """Have another process begin to make something, and end it."""
    text = _MAKER.format(maker=maker.format(folder=folder))
    process = spawn([sys.executable, "-c", text], stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"made\n"
    assert remove_abandoned(folder) == [], "its maker is at work"
    end(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    "maker", ["whole_file(Path('{folder}/a'))", "scratch_folder(Path('{folder}'), 'b')"]
)
def test_what_a_killed_maker_left_is_removed(tmp_path: Path, maker: str) -> None:
    abandon(tmp_path, maker, lambda pid: os.kill(pid, signal.SIGKILL))
    assert len(names(tmp_path)) == 1
    write_whole(tmp_path / "other", "text")
    assert names(tmp_path) == ["other"]


def test_a_link_of_a_process_that_ended_is_removed(tmp_path: Path) -> None:
    ended = spawn(["true"])
    ended.wait()
    (tmp_path / f".latest.{ended.pid}.part").symlink_to("run")
    (tmp_path / ".latest.1.part").symlink_to("run")
    point_link(tmp_path / "latest", "run")
    assert sorted(names(tmp_path)) == [".latest.1.part", "latest"]


def test_a_scratch_folder_may_be_renamed_away(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "site") as scratch:
        (scratch / "page").touch()
        scratch.rename(tmp_path / "site")
    assert names(tmp_path) == ["site"]
