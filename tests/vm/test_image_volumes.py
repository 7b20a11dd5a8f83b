"""Volumes of a container: each trial finds them as they were, with their owners."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pagecage.process import run
from tests.builders.command_line import pagecage_in
from tests.builders.image_archive import config_of, layer, write_archive

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(900)]
_CLAIM = r"""
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
/* Fails if a program has claimed /state before, or if it does not belong to user 1000. */
int main(void) {
  struct stat seen;
  int log = open("/state/log", O_WRONLY | O_APPEND);
  if (log < 0 || fstat(log, &seen) || seen.st_uid != 1000 || seen.st_size != 7) return 2;
  if (write(log, "claimed\n", 8) != 8) return 3;
  return open("/state/claimed", O_WRONLY | O_CREAT | O_EXCL, 0600) < 0 ? 4 : 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc")
    assert compiler, "there is no gcc: make setup"
    (tmp_path / "claim.c").write_text(_CLAIM)
    run([compiler, "-O1", "-static", "-o", tmp_path / "claim", tmp_path / "claim.c"])
    layers = [layer({"claim": tmp_path / "claim"})]
    write_archive(
        tmp_path / "claim.tar", layers, config_of(layers, Entrypoint=["/claim"], User="1000")
    )
    state = tmp_path / "state"
    state.mkdir()
    (state / "log").write_text("before\n")
    if os.geteuid() == 0:
        for path in (state, state / "log"):
            os.chown(path, 1000, 1000)
    return tmp_path


def test_each_trial_finds_a_volume_as_it_was(folder: Path) -> None:
    words = ("replay", "aws-gp3-tenth", "--host", "vm", "--image", "claim.tar", "--repeats", "2")
    done = pagecage_in(folder, *words, "--volume", "./state:/state")
    assert done.ok, done.stderr
    assert "are restored before each trial" in done.stderr
    assert sorted(path.name for path in (folder / "state").iterdir()) == ["log"]
    assert (folder / "state/log").read_text() == "before\n"
