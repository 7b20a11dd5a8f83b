"""Datasets: kept if complete, made if not, refused if too large."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.data_files import (
    GENERATOR_VERSION,
    free_bytes,
    is_whole,
    leave_room,
    make_dataset,
    make_room,
    require_room,
    sidecar_of,
)
from pagecage.errors import HostError, PagecageError
from pagecage.model.trial import Dataset, TrialData
from tests.builders.programs import install
from tests.fake_host.machine import DATASET, make_trial
from tests.fake_host.machine import make_dataset as write_dataset
from tests.tree import ROOT

PCGEN = """#!/bin/sh
set -eu
while [ $# -gt 0 ]; do
    case "$1" in
    --out) out=$2 ;;
    --size-bytes) size=$2 ;;
    --seed) seed=$2 ;;
    --fill) fill=$2 ;;
    esac
    shift
done
echo made >>"$out.calls"
%s
"""
WHOLE = """head -c "$size" /dev/urandom >"$out"
printf '{"generator_version": 2, "size_bytes": %s, "seed": %s, "fill": "%s"}' \\
  "$size" "$seed" "$fill" >"$out.json"
"""


@pytest.fixture
def pcgen(tmp_path: Path) -> Path:
    return write_pcgen(tmp_path, WHOLE)


def write_pcgen(folder: Path, body: str) -> Path:
    return install(folder / "pcgen", PCGEN.replace("%s\n", body, 1))


def calls(path: Path) -> int:
    noted = path.with_name(path.name + ".calls")
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def test_it_is_made_once_and_kept(on_disk: Path, pcgen: Path) -> None:
    path = make_dataset(DATASET, on_disk / "data", pcgen)
    assert path.stat().st_size == DATASET.size_bytes
    assert make_dataset(DATASET, on_disk / "data", pcgen) == path
    assert calls(path) == 1


def change_sidecar(path: Path, **changes: object) -> None:
    sidecar = json.loads(sidecar_of(path).read_text())
    sidecar_of(path).write_text(json.dumps({**sidecar, **changes}))


def make_a_hole(path: Path) -> None:
    path.unlink()
    with path.open("wb") as file:
        file.truncate(DATASET.size_bytes)


BROKEN: dict[str, Callable[[Path], object]] = {
    "too short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a hole": make_a_hole,
    "an older generator": lambda path: change_sidecar(path, generator_version=1),
    "another seed": lambda path: change_sidecar(path, seed=2),
    "half a sidecar": lambda path: sidecar_of(path).write_text("{"),
    "a list as sidecar": lambda path: sidecar_of(path).write_text("[]"),
    "no sidecar": lambda path: sidecar_of(path).unlink(),
}


@pytest.mark.parametrize("how", BROKEN)
def test_an_incomplete_dataset_is_made_again(on_disk: Path, pcgen: Path, how: str) -> None:
    path = write_dataset(on_disk)
    assert is_whole(path, DATASET)
    BROKEN[how](path)
    assert not is_whole(path, DATASET)
    assert make_dataset(DATASET, on_disk, pcgen) == path
    assert is_whole(path, DATASET)
    assert calls(path) == 1


def test_a_dataset_that_does_not_fit_is_not_begun(on_disk: Path, tmp_path: Path) -> None:
    """The fake pcgen only notes its call, so that a failing check cannot fill a disk."""
    maker = write_pcgen(tmp_path, "exit 1\n")
    with pytest.raises(HostError, match="a dataset of 1048576 TiB does not fit") as caught:
        make_dataset(Dataset(2**60), on_disk, maker)
    assert "smaller SIZE" in caught.value.hint
    assert not list(on_disk.iterdir())


def test_some_space_is_left_free(on_disk: Path) -> None:
    require_room(on_disk, 0)
    real = os.statvfs(on_disk)
    with pytest.raises(HostError):
        require_room(on_disk, real.f_bavail * real.f_frsize - 1024)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ('echo "No space left on device" >&2; exit 1\n', "No space left on device"),
        ('head -c 10 /dev/urandom >"$out"; echo "{}" >"$out.json"\n', "incomplete"),
    ],
)
def test_a_pcgen_that_fails_is_an_error(
    on_disk: Path, tmp_path: Path, script: str, says: str
) -> None:
    with pytest.raises(PagecageError, match=says):
        make_dataset(DATASET, on_disk, write_pcgen(tmp_path, script))


def test_the_version_is_pcgens_own() -> None:
    """pcgen's constant determines a dataset's bytes, and the agent must use the same."""
    constant = f"pub const GENERATOR_VERSION: u64 = {GENERATOR_VERSION};"
    assert constant in (ROOT / "workloads/pcgen/src/lib.rs").read_text()


def test_what_other_plans_left_goes_when_this_plan_does_not_fit(tmp_path: Path) -> None:
    """A disk of pagecage's own was full of the datasets of an earlier run."""
    for name in ("random-1-1.bin", "random-2-1.bin", "old/1/data/file", "prepared/1/data/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 4096)
    trial = replace(make_trial("good.py"), dataset=Dataset(1), files=1, data=TrialData(("true",)))
    free = free_bytes(tmp_path)
    leave_room(tmp_path, (trial,), free // 2)
    assert len(list(tmp_path.iterdir())) == 4, "there was room"
    leave_room(tmp_path, (trial,), 2 * free)
    assert {path.name for path in tmp_path.iterdir()} == {"random-1-1.bin", "prepared"}
    assert (tmp_path / "prepared/1/data/file").exists()
    leave_room(tmp_path, (replace(trial, data=None),), 2 * free)
    assert {path.name for path in tmp_path.iterdir()} == {"random-1-1.bin"}


def test_the_oldest_goes_first_and_no_more_than_needed(tmp_path: Path) -> None:
    (tmp_path / "old/folder").mkdir(parents=True)
    (tmp_path / "middle").write_text("data")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "new").mkdir()
    for seconds, name in enumerate(("old", "middle", "link", "new")):
        os.utime(tmp_path / name, (0, seconds), follow_symlinks=False)
    told: list[str] = []
    make_room(tmp_path.iterdir(), lambda: len(told) == 3, lambda path: told.append(path.name))
    assert told == ["old", "middle", "link"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
