"""Keys of levels, sizes and workloads: files, fio, setup steps, storage, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.definitions.reader import known_programs
from pagecage.model.trial import SetupStep, Workload
from tests.builders.definitions import EXPERIMENT, definitions, refusal, top

__all__ = ["top"]  # a fixture
LEVEL = "[levels.pattern.random]"


def level(text: str) -> str:
    """Return the experiment with this text in one of its levels."""
    return EXPERIMENT.replace(LEVEL, f"{LEVEL}\n{text}")


def written(top: Path, text: str):
    (top / "experiments/asked.toml").write_text(text)
    return definitions(top).experiment("asked")


def test_a_level_may_change_program_storage_and_memory(top: Path) -> None:
    experiment = written(
        top,
        level("""
workload = { program = "fio", kind = "fio", arguments = ["rw=randread", "offset_increment=25%"] }
before = { program = "pcread", arguments = ["--file", "{file}"], slice = "other" }
storage = "dm_delay"
storage_latency_us = 8000
machine_memory_bytes = { dataset_fraction = 0.5 }"""),
    )
    random = experiment.levels["pattern"]["random"]
    assert random.workload == Workload("fio", ("rw=randread", "offset_increment=25%"), "fio")
    assert random.before == SetupStep("pcread", ("--file", "{file}"), "other")
    assert (random.storage, random.storage_latency_us, random.machine_memory_fraction) == (
        "dm_delay",
        8000,
        0.5,
    )
    assert experiment.programs() == {"pcread"}


def test_files_make_the_dataset_larger_and_a_smoke_run_covers(top: Path) -> None:
    text = EXPERIMENT.replace('"10GiB", max', '"10GiB", files = 8, max').replace(
        '"--file", "{file}"', '"--files", "{files}"'
    )
    experiment = written(top, text)
    assert experiment.sizes["full"].total_bytes == 80 * 2**30
    assert {name: size.treatments for name, size in experiment.sizes.items()} == {
        "full": "all",
        "default": "all",
        "emulated": "all",
        "smoke": "covering",
    }
    assert (
        written(top, text.replace("repeats = 1", 'treatments = "all"')).sizes["smoke"].treatments
        == "all"
    )


@pytest.mark.parametrize(
    ("text", "key", "word"),
    [
        ('storage = "null_blk"', "levels.pattern.random", "needs storage_latency_us"),
        ("storage_latency_us = 5", "levels.pattern.random", "needs storage_latency_us"),
        (
            'storage = "data"\nstorage_latency_us = 5',
            "levels.pattern.random",
            "needs storage_latency_us",
        ),
        (
            'storage = "dm_delay"\nstorage_latency_us = 1500',
            "levels.pattern.random",
            "whole milliseconds",
        ),
        ("files = 3", "levels.pattern.random.files: the data of sizes.", "among 3 files"),
        ('storage = "floppy"', "levels.pattern.random.storage", "null_blk"),
        (
            'workload = { program = "fio", kind = "fio", arguments = ["rw=write"] }',
            "rw=write would write",
            "randread",
        ),
        (
            'workload = { program = "fio", kind = "fio", arguments = ["invalidate=1"] }',
            "invalidate is an option that pagecage writes",
            "",
        ),
        (
            'workload = { program = "fio", kind = "fio", arguments = ["--rw=read"] }',
            "is not a fio job option",
            "",
        ),
        (
            'workload = { program = "fio", kind = "fio", arguments = ["bs=4k\\nexec_prerun=x"] }',
            "is not a fio job",
            "",
        ),
        ('workload = { program = "pcread", kind = "fio" }', 'program must be "fio"', ""),
        ('workload = { program = "pcraed" }', "there is no workload 'pcraed'", '"pcread"'),
        ('workload = { program = "pcread", arguments = ["{flie}"] }', "no placeholder {flie}", ""),
        ('dirty_bytes = "8M"', "levels.pattern.random.dirty_bytes", "MiB"),
        (
            'workload = { program = "pcread", arguments = ["{ops}"] }',
            "no placeholder {ops}; known: file",
            "",
        ),
        ('cage = "{narrow}"', "levels.*.cage: there is no placeholder {narrow}", ""),
        ('before = { program = "pcraed" }', "there is no workload 'pcraed'", '"pcread"'),
        ('before = { program = "pcread", slice = "third" }', "before.slice", "same"),
        ('before = { program = "pcread", arguments = ["x{files}"] }', "must stand alone", ""),
    ],
)
def test_an_error_in_a_level_names_its_key(top: Path, text: str, key: str, word: str) -> None:
    error = refusal(top, level(text))
    assert key in error.message
    assert word in f"{error.message} {error.hint}"


PLACES = "places = { ops = 100, narrow = 'tight' }, writes = '1MiB', "


def placed(sizes: int = 4, argument: str = "{ops}") -> str:
    """Return the experiment with placeholders in this many sizes, and levels that use them."""
    used = level("cage = '{narrow}'\ndirty_bytes = '8MiB'").replace(
        '["--pattern", "random"]', f'["{argument}"]'
    )
    assert argument in used
    head, *tails = used.split(" = { dataset")
    return head + "".join(
        f" = {{ {PLACES if n < sizes else ''}dataset{tail}" for n, tail in enumerate(tails)
    )


def test_a_size_has_values_for_placeholders(top: Path) -> None:
    experiment = written(top, placed())
    assert experiment.sizes["smoke"].places == {"ops": "100", "narrow": "tight"}
    assert experiment.sizes["smoke"].writes_bytes == 2**20
    assert experiment.cage_names() == {"uncaged", "tenth", "tight"}
    assert (
        experiment.levels["pattern"]["random"].dirty_bytes,
        experiment.levels["pattern"]["random"].cage,
    ) == (
        2**23,
        "{narrow}",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (placed(3), "sizes.smoke has no value for {"),
        (
            placed(argument="{opps}"),
            (
                "no placeholder {opps}; known: file, files, sidecar, data_dir, max_seconds,"
                " narrow, ops"
            ),
        ),
        (
            placed().replace("ops = 100", "file = 1", 1),
            "places.file has the name of a placeholder that the agent fills in",
        ),
        (placed().replace("'tight'", "'tihgt'", 1), "there is no cage 'tihgt'"),
    ],
)
def test_a_missing_or_reserved_placeholder_is_named(top: Path, text: str, message: str) -> None:
    assert message in refusal(top, text).message


TABLE = (
    '[[tables]]\ntitle = "t"\nwhere = { cage = "tenth" }\ncolumns = { "time" = "read_seconds" }\n'
)


def test_a_definition_may_have_further_tables(top: Path) -> None:
    assert written(top, EXPERIMENT + TABLE).definition["tables"][0]["columns"] == {
        "time": "read_seconds"
    }
    assert (
        "tables[0].where: cage = 'x' is not a level"
        in refusal(top, EXPERIMENT + TABLE.replace("tenth", "x")).message
    )
    assert (
        "columns" in refusal(top, EXPERIMENT + TABLE.replace('"time" = "read_seconds"', "")).message
    )


def test_programs_are_named_after_their_folders(tmp_path: Path) -> None:
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
        "pcappend",
        "pcindex-java",
        "pcread",
        "pcscan",
        "pcscan-c",
        "pcscan-python",
    ]
