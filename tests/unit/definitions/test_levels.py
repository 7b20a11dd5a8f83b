"""What a level, a size and a workload may say beyond arguments: files, fio, steps before, storage, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.definitions.reader import known_programs
from pagecage.model.trial import SetupStep, Workload
from tests.builders.definitions import EXPERIMENT, definitions, refusal, top

__all__ = ["top"]  # a fixture
LEVEL = "[levels.pattern.random]"


def level(text: str) -> str:
    """The experiment with this in one of its levels."""
    return EXPERIMENT.replace(LEVEL, f"{LEVEL}\n{text}")


def written(top: Path, text: str):
    (top / "experiments/asked.toml").write_text(text)
    return definitions(top).experiment("asked")


def test_a_level_may_change_the_program_and_what_lies_under_it(top: Path) -> None:
    told = written(
        top,
        level("""
workload = { program = "fio", kind = "fio", arguments = ["rw=randread", "offset_increment=25%"] }
before = { program = "pcread", arguments = ["--file", "{file}"], slice = "other" }
storage = "dm_delay"
storage_latency_us = 8000
machine_memory_bytes = { dataset_fraction = 0.5 }"""),
    )
    random = told.levels["pattern"]["random"]
    assert random.workload == Workload("fio", ("rw=randread", "offset_increment=25%"), "fio")
    assert random.before == SetupStep("pcread", ("--file", "{file}"), "other")
    assert (random.storage, random.storage_latency_us, random.machine_memory_fraction) == ("dm_delay", 8000, 0.5)
    assert told.programs() == {"pcread"}


def test_files_make_the_dataset_larger_and_a_smoke_run_covers(top: Path) -> None:
    text = EXPERIMENT.replace('"10GiB", max', '"10GiB", files = 8, max').replace(
        '"--file", "{file}"', '"--files", "{files}"'
    )
    told = written(top, text)
    assert told.sizes["full"].total_bytes == 80 * 2**30
    assert {name: size.treatments for name, size in told.sizes.items()} == {
        "full": "all", "default": "all", "emulated": "all", "smoke": "covering",
    }  # fmt: skip
    assert written(top, text.replace("repeats = 1", 'treatments = "all"')).sizes["smoke"].treatments == "all"


@pytest.mark.parametrize(
    ("text", "key", "word"),
    [
        ('storage = "null_blk"', "levels.pattern.random", "storage_latency_us goes with"),
        ("storage_latency_us = 5", "levels.pattern.random", "storage_latency_us goes with"),
        ('storage = "data"\nstorage_latency_us = 5', "levels.pattern.random", "storage_latency_us goes with"),
        ('storage = "dm_delay"\nstorage_latency_us = 1500', "levels.pattern.random", "whole milliseconds"),
        ('storage = "floppy"', "levels.pattern.random.storage", "null_blk"),
        ('workload = { program = "fio", kind = "fio", arguments = ["rw=write"] }', "rw=write would write", "randread"),
        ('workload = { program = "fio", kind = "fio", arguments = ["invalidate=1"] }', "invalidate is written", ""),
        ('workload = { program = "fio", kind = "fio", arguments = ["--rw=read"] }', "is no fio job option", ""),
        ('workload = { program = "fio", kind = "fio", arguments = ["bs=4k\\nexec_prerun=x"] }', "is no fio job", ""),
        ('workload = { program = "pcread", kind = "fio" }', 'program must be "fio"', ""),
        ('workload = { program = "pcraed" }', "no workload 'pcraed'", '"pcread"'),
        ('workload = { program = "pcread", arguments = ["{flie}"] }', "no {flie}", ""),
        ('dirty_bytes = "8M"', "levels.pattern.random.dirty_bytes", "MiB"),
        ('workload = { program = "pcread", arguments = ["{ops}"] }', "no {ops}; known: file", ""),
        ('cage = "{narrow}"', "levels.*.cage: no {narrow}", ""),
        ('before = { program = "pcraed" }', "no workload 'pcraed'", '"pcread"'),
        ('before = { program = "pcread", slice = "third" }', "before.slice", "same"),
        ('before = { program = "pcread", arguments = ["x{files}"] }', "it stands alone", ""),
    ],
)
def test_what_is_wrong_in_a_level_is_named(top: Path, text: str, key: str, word: str) -> None:
    error = refusal(top, level(text))
    assert key in error.message
    assert word in f"{error.message} {error.hint}"


PLACES = "places = { ops = 100, narrow = 'tight' }, writes = '1MiB', "


def placed(sizes: int = 4, argument: str = "{ops}") -> str:
    """The experiment with places of its own in so many of its sizes, and levels that use them."""
    used = level("cage = '{narrow}'\ndirty_bytes = '8MiB'").replace('["--pattern", "random"]', f'["{argument}"]')
    assert argument in used
    head, *tails = used.split(" = { dataset")
    return head + "".join(f" = {{ {PLACES if n < sizes else ''}dataset{tail}" for n, tail in enumerate(tails))


def test_a_size_gives_places_of_the_definitions_own(top: Path) -> None:
    told = written(top, placed())
    assert told.sizes["smoke"].places == {"ops": "100", "narrow": "tight"}
    assert told.sizes["smoke"].writes_bytes == 2**20
    assert told.cage_names() == {"uncaged", "tenth", "tight"}
    assert (told.levels["pattern"]["random"].dirty_bytes, told.levels["pattern"]["random"].cage) == (2**23, "{narrow}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (placed(3), "sizes.smoke gives nothing for {"),
        (placed(argument="{opps}"), "no {opps}; known: file, files, sidecar, data_dir, max_seconds, narrow, ops"),
        (placed().replace("ops = 100", "file = 1", 1), "places.file has the name of a place that the agent fills in"),
        (placed().replace("'tight'", "'tihgt'", 1), "there is no cage 'tihgt'"),
    ],
)
def test_a_place_that_a_size_lacks_or_takes_is_named(top: Path, text: str, message: str) -> None:
    assert message in refusal(top, text).message


TABLE = '[[tables]]\ntitle = "t"\nwhere = { cage = "tenth" }\ncolumns = { "time" = "read_seconds" }\n'


def test_a_definition_asks_for_further_tables(top: Path) -> None:
    assert written(top, EXPERIMENT + TABLE).definition["tables"][0]["columns"] == {"time": "read_seconds"}
    assert "tables[0].where: cage = 'x' is no level" in refusal(top, EXPERIMENT + TABLE.replace("tenth", "x")).message
    assert "columns" in refusal(top, EXPERIMENT + TABLE.replace('"time" = "read_seconds"', "")).message


def test_programs_are_told_by_the_folders(tmp_path: Path) -> None:
    for name in (
        "pcread/src/main.rs",
        "contract/src/lib.rs",
        "pcscan/src/main.rs",
        "c/pcscan/main.c",
        "c/pcappend/main.c",
        "c/pclog/append.c",
        "python/pcscan.py",
        "java/PcIndex.java",
    ):
        (tmp_path / "workloads" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "workloads" / name).touch()
    assert known_programs(tmp_path) == [
        "pcappend", "pcindex-java", "pcread", "pcscan", "pcscan-c", "pcscan-python",
    ]  # fmt: skip
