"""The archive of a replay's files on its way to a host."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import PagecageError
from pagecage.runner.uploads import UploadedFile, upload

USER = 1234


@dataclass(frozen=True)
class KeepsTheArchive:
    """A host that only keeps what it is sent."""

    archive: Path
    name: str = "vm"

    def command(self, argv: Sequence[str]) -> list[str]:
        assert "tar -xf -" in argv[-1]
        return ["sh", "-c", f"cat >{self.archive}"]


def sent(tmp_path: Path, *files: UploadedFile) -> dict[str, tarfile.TarInfo]:
    host: Any = KeepsTheArchive(tmp_path / "sent.tar")
    upload(host, files, "/data/replay", lambda _: None)
    with tarfile.open(host.archive) as archive:
        return {entry.name: entry for entry in archive}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory of an ordinary user, even if root runs the test."""
    folder = tmp_path / "own"
    (folder / "below").mkdir(parents=True)
    (folder / "below/file").write_text("x")
    if os.getuid() == 0:
        for path in (folder, folder / "below", folder / "below/file"):
            os.chown(path, USER, USER)
    return folder


def test_copies_belong_to_the_hosts_user(tmp_path: Path, source: Path) -> None:
    entries = sent(tmp_path, UploadedFile("own", str(source), "own", 1))
    assert set(entries) == {"own", "own/below", "own/below/file"}
    assert {(entry.uid, entry.gid, entry.uname) for entry in entries.values()} == {(0, 0, "")}


def test_files_of_a_container_keep_their_owner(tmp_path: Path, source: Path) -> None:
    owner = source.stat().st_uid
    assert owner
    entries = sent(tmp_path, UploadedFile("own", str(source), "volume-1", 1, keeps_owner=True))
    assert {entry.uid for entry in entries.values()} == {owner}


def test_a_file_that_has_gone_is_one_sentence(tmp_path: Path) -> None:
    gone = UploadedFile("own", str(tmp_path / "gone"), "own", 1)
    with pytest.raises(PagecageError, match=r"gone, which the run copies, has gone") as refused:
        sent(tmp_path, gone)
    assert refused.value.hint == "start a new run"
