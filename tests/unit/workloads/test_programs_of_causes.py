"""The programs that take away the suspected cause of a figure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pagecage.process import run
from tests.tree import ROOT

PROGRAMS = ROOT / "experiments/programs"
PAGES = 64
CALLED = """#!/bin/sh
echo "$0" "$@" >>"$(dirname "$0")/calls"
"""


def touch_pages(file: Path, *words: str, told: str = "go\n") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAMS / "touch-pages", file, *words],
        input=told,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(PAGES)) * os.sysconf("SC_PAGE_SIZE"))
    return path


def test_each_page_is_touched_once_at_most(file: Path) -> None:
    done = touch_pages(file, "around", str(PAGES))
    assert done.returncode == 0, done.stderr
    ready, end = map(json.loads, done.stdout.splitlines())
    assert (ready["type"], ready["protocol"]) == ("ready", 1)
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    assert end["distinct_bytes"] == end["bytes"] == PAGES * page_bytes
    # Of each page, the first byte.
    content = file.read_bytes()
    assert int(end["checksum"]) == sum(content[::page_bytes])


def test_one_page_is_mapped_per_fault(file: Path) -> None:
    done = touch_pages(file, "one", str(PAGES))
    if done.returncode == 77:
        pytest.skip(done.stderr)
    faults = json.loads(done.stdout.splitlines()[-1])["response"]
    assert faults["touch_minor_faults"] + faults["touch_major_faults"] >= PAGES


def test_nothing_is_touched_without_go(file: Path) -> None:
    done = touch_pages(file, "around", "1", told="")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)


def test_a_burst_is_made_twice_with_a_pause_between(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(PROGRAMS / "burst-again", tmp_path / "programs")
    pcburst = tmp_path / "bin/pcburst"
    pcburst.write_text(CALLED)
    pcburst.chmod(0o755)
    words: list[str | Path] = [tmp_path / "programs/burst-again", "0", "--bytes", "4096"]
    assert run(words, timeout_seconds=60).ok
    calls = (tmp_path / "bin/calls").read_text().splitlines()
    assert [line.split()[1:] for line in calls] == [
        ["--bytes", "4096", "--no-handshake"],
        ["--bytes", "4096"],
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "ext4-journal-discard"])
def test_a_file_system_is_seen_by_its_program_alone_and_leaves_nothing(
    tmp_path: Path, kind: str
) -> None:
    for folder in ("programs", "bin", "data"):
        (tmp_path / folder).mkdir()
    shutil.copy(PROGRAMS / "on-file-system", tmp_path / "programs")
    program = tmp_path / "bin/pcappend"
    program.write_text('#!/bin/sh\nfindmnt -no FSTYPE,OPTIONS --target "$2"; echo "$3"\n')
    program.chmod(0o755)
    words: list[str | Path] = [
        tmp_path / "programs/on-file-system",
        kind,
        tmp_path / "data",
        "pcappend",
        "--keep",
    ]
    done = run(words, check=False, timeout_seconds=60)
    if not done.ok and "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert done.ok, done.stderr
    seen, argument = done.stdout.splitlines()
    assert seen.startswith(kind.partition("-")[0])
    assert ("discard" in seen.split()[1].split(",")) == kind.endswith("discard")
    assert argument == "--keep"
    assert list((tmp_path / "data").iterdir()) == []


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    done = run([PROGRAMS / "on-file-system", "ntfs", tmp_path, "pcappend"], check=False)
    assert (done.status in (2, 77), bool(done.stderr)) == (True, True)
