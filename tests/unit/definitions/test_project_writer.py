"""The experiment that `pagecage init` writes holds any command."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.definitions.experiment import SIZES
from pagecage.definitions.project_writer import FILES, SLOW_DISK_FILE, experiment_text
from pagecage.definitions.reader import Definitions
from tests.tree import ROOT

WORDS = st.lists(
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")), min_size=1
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (FILES | SLOW_DISK_FILE).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "experiments").mkdir()
    return tmp_path


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS)
def test_any_command_is_kept_word_for_word(project: Path, words: list[str]) -> None:
    (project / "experiments/mine.toml").write_text(experiment_text(words, []), encoding="utf-8")
    table = tomllib.loads((project / "experiments/mine.toml").read_text(encoding="utf-8"))
    assert [table["workload"]["program"], *table["workload"]["arguments"]] == words
    read = Definitions(ROOT, [], project).experiment("mine")
    assert (read.workload.program, *read.workload.arguments) == tuple(words)
    assert read.cage_names() == {"uncaged", "slow-disk"}


def test_files_are_copied_and_data_are_cold(project: Path) -> None:
    text = experiment_text(["./server", "--index", "index.db"], ["./server", "index.db"])
    (project / "experiments/mine.toml").write_text(text)
    read = Definitions(ROOT, [], project).experiment("mine")
    assert read.copies == ("./server", "index.db")
    assert read.workload.command is not None
    assert read.workload.command.data_paths == ("index.db",)
    assert {level.cache for level in read.levels["cage"].values()} == {"cold"}


def test_a_dataset_is_made_for_a_command_that_names_it(project: Path) -> None:
    (project / "experiments/mine.toml").write_text(experiment_text(["cat", "{file}"], []))
    read = Definitions(ROOT, [], project).experiment("mine")
    assert all(read.sizes[size].dataset for size in SIZES)
    assert read.levels["cage"]["slow-disk"].cache == "cold"
