"""Tables of levels, sizes, prepared data and services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.preview import trial_commands
from pagecage.definitions.cage_file import DatasetFraction
from pagecage.definitions.experiment import Experiment, ExperimentFile
from pagecage.definitions.reader import Definitions, known_programs
from pagecage.errors import PagecageError
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import (
    CommandSpec,
    SetupStep,
    TrialData,
    Workload,
    trial_from_json,
    trial_to_json,
)
from pagecage.planning.plan import PlanOptions, make_trials
from pagecage.runner.resource_needs import needed_disk_bytes
from tests.builders.definitions import EXPERIMENT, definitions, refusal
from tests.builders.plans import CAGES

RANDOM = "levels.pattern.random"
LEVEL = f"[{RANDOM}]"
FIO = 'workload = {{ program = "fio", kind = "fio", arguments = ["{}"] }}'


def level(text: str) -> str:
    """Return the experiment with this text in one of its levels."""
    return EXPERIMENT.replace(LEVEL, f"{LEVEL}\n{text}")


def written(top: Path, text: str) -> Experiment:
    (top / "experiments/asked.toml").write_text(text)
    return definitions(top).experiment("asked")


def test_a_level_may_change_program_storage_and_memory(top: Path) -> None:
    experiment = written(
        top,
        level("""
workload = { program = "fio", kind = "fio", arguments = ["rw=randread", "offset_increment=25%"] }
before = { program = "pcread", arguments = ["--file", "{file}"], slice = "other" }
storage = "container_layer"
machine_memory_bytes = { dataset_fraction = 0.5 }"""),
    )
    random = experiment.levels["pattern"]["random"]
    assert random.workload == Workload("fio", ("rw=randread", "offset_increment=25%"), "fio")
    assert random.before == SetupStep("pcread", ("--file", "{file}"), "other")
    assert random.storage == "container_layer"
    assert random.machine_memory_bytes == DatasetFraction(dataset_fraction=0.5)
    assert experiment.programs() == {"pcread"}


def test_files_make_the_dataset_larger_and_a_smoke_run_covers(top: Path) -> None:
    text = EXPERIMENT.replace('"10GiB", max', '"10GiB", files = 8, max').replace(
        '"--file", "{file}"', '"--files", "{files}"'
    )
    experiment = written(top, text)
    assert experiment.sizes["full"].total_bytes == 80 * 2**30
    chosen = {name: size.treatments for name, size in experiment.sizes.items()}
    assert chosen == {**dict.fromkeys(("full", "default", "emulated"), "all"), "smoke": "covering"}
    whole = written(top, text.replace("repeats = 1", 'treatments = "all"'))
    assert whole.sizes["smoke"].treatments == "all"


@pytest.mark.parametrize(
    ("text", "key", "word"),
    [
        ("files = 3", f"{RANDOM}.files: the data of sizes.", "among 3 files"),
        ('storage = "floppy"', f"{RANDOM}.storage", "container_layer"),
        (FIO.format("rw=write"), "rw=write would write", "randread"),
        (FIO.format("invalidate=1"), "invalidate is an option that pagecage writes", ""),
        (FIO.format("--rw=read"), "is not a fio job option", ""),
        (FIO.format("bs=4k\\nexec_prerun=x"), "is not a fio job", ""),
        ('workload = { program = "pcread", kind = "fio" }', 'program must be "fio"', ""),
        ('workload = { program = "pcraed" }', "there is no workload 'pcraed'", '"pcread"'),
        ('workload = { program = "pcread", arguments = ["{flie}"] }', "no placeholder {flie}", ""),
        ('dirty_bytes = "8M"', f"{RANDOM}.dirty_bytes", "MiB"),
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


KNOWN = "file, files, sidecar, data_dir, max_seconds"
FILLED_IN = "a placeholder that the agent fills in"
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
    assert experiment.sizes["smoke"].places == {"ops": 100, "narrow": "tight"}
    assert experiment.sizes["smoke"].writes == 2**20
    assert experiment.cage_names() == {"uncaged", "tenth", "tight"}
    random = experiment.levels["pattern"]["random"]
    assert (random.dirty_bytes, random.cage) == (2**23, "{narrow}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (placed(3), "sizes.smoke has no value for {"),
        (placed(argument="{opps}"), f"no placeholder {{opps}}; known: {KNOWN}, narrow, ops"),
        (placed().replace("ops = 100", "file = 1", 1), f"places.file has the name of {FILLED_IN}"),
        (placed().replace("'tight'", "'tihgt'", 1), "there is no cage 'tihgt'"),
    ],
)
def test_a_missing_or_reserved_placeholder_is_named(top: Path, text: str, message: str) -> None:
    assert message in refusal(top, text).message


TABLE = (
    '[[tables]]\ntitle = "t"\nwhere = { cage = "tenth" }\ncolumns = { "time" = "read_seconds" }\n'
)


def test_a_definition_may_have_further_tables(top: Path) -> None:
    [table] = written(top, EXPERIMENT + TABLE).definition["tables"]
    assert table["columns"] == {"time": "read_seconds"}
    no_level = refusal(top, EXPERIMENT + TABLE.replace("tenth", "x"))
    assert "tables[0].where: cage = 'x' is not a level" in no_level.message
    no_columns = refusal(top, EXPERIMENT + TABLE.replace('"time" = "read_seconds"', ""))
    assert "columns" in no_columns.message


def test_programs_are_named_after_their_folders(tmp_path: Path) -> None:
    for name in (
        *("pcread/src/main.rs", "contract/src/lib.rs", "pcscan/src/main.rs", "c/pcscan/main.c"),
        *("c/pcappend/main.c", "c/pclog/append.c", "python/pcscan.py", "java/PcIndex.java"),
    ):
        (tmp_path / "workloads" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "workloads" / name).touch()
    assert known_programs(tmp_path) == [
        *("pcappend", "pcindex-java", "pcread", "pcscan", "pcscan-c", "pcscan-python")
    ]


OWN = """
question = "?"
[workload]
program = "search"
kind = "command"
arguments = ["--in", "{data}"]
data_paths = ["{data}"]
[data]
prepare = ["index", "{data}", "--rows", "{rows}"]
made_by = ["/usr/lib/index/*/bin/index"]
writes = true
seed = 3
timeout_seconds = 60
[factors]
cage = ["uncaged", "tight"]
[sizes]
full = { places = { rows = 9 }, prepared = "1GiB" }
default = { places = { rows = 5 }, prepared = "1MiB" }
emulated = { places = { rows = 5 } }
smoke = { places = { rows = 5 } }
"""


def test_data_are_resolved_for_each_size(top: Path) -> None:
    experiment = written(top, OWN)
    trials = {
        size: make_trials(experiment, CAGES, PlanOptions(size, "asked for", 2, 7, "vm", "never"))
        for size in ("full", "smoke")
    }
    words = ("index", "{data}", "--rows", "9")
    made_by = ("/usr/lib/index/*/bin/index",)
    assert trials["full"][0].data == TrialData(words, made_by, 3, True, 60.0, 2**30)
    assert [needed_disk_bytes(trials[size]) for size in ("full", "smoke")] == [2**31, 0]
    for trial in (*trials["full"], *trials["smoke"]):
        assert trial_from_json(trial_to_json(trial)) == trial


def test_a_plan_shows_once_how_the_data_are_made(top: Path) -> None:
    options = PlanOptions("smoke", "asked for", 1, 7, "vm", "never")
    experiment = written(top, OWN.replace('"{rows}"', '"{rows}", "{seed}"'))
    first, second = make_trials(experiment, CAGES, options)
    shown = list(trial_commands(first, False))
    assert shown[0] == "index DIR/prepared/KEY/data --rows 5 3"
    assert any(line.endswith("search --in DIR/prepared/KEY/data") for line in shown[1:])
    assert not any(line.startswith("index") for line in trial_commands(second, False))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"index", "{data}"', '"index", "here"'), "prepare does not contain {data}"),
        (('prepare = ["index", "{data}", "--rows", "{rows}"]', "prepare = []"), "data.prepare"),
        (('kind = "command"', ""), "applies only to kind"),
        (("[data]", "[dato]"), "unknown key 'dato'"),
        (("writes = true", "write = true"), "unknown key 'data.write'"),
        (("places = { rows = 5 }, prep", "prep"), "sizes.default has no value for {rows}"),
        (("seed = 3", 'seed = "3"'), "data.seed"),
        (("rows = 9", "rows = 9, data = 1"), "places.data has the name of a placeholder"),
    ],
)
def test_what_is_wrong_is_named(top: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in OWN
    assert says in refusal(top, OWN.replace(*change)).message


def test_a_workload_with_the_handshake_may_use_prepared_data(top: Path) -> None:
    text = OWN.replace('kind = "command"', "").replace('data_paths = ["{data}"]', "")
    experiment = written(top, text.replace('"search"', '"pcread"'))
    assert experiment.workload.arguments == ("--in", "{data}")


def test_fio_has_no_prepared_data(top: Path) -> None:
    text = OWN.replace('"command"', '"fio"').replace('data_paths = ["{data}"]', "")
    text = text.replace('"search"', '"fio"').replace('"--in", "{data}"', "")
    assert 'a workload of kind "fio" cannot use' in refusal(top, text).message


def test_data_without_a_table_are_refused(top: Path) -> None:
    head, rest = OWN.split("[data]")
    text = head + "[factors]" + rest.split("[factors]")[1]
    assert "{data} is used, but there is no table [data]" in refusal(top, text).message


TABLES = """
question = "?"
response = "tps"
[workload]
program = "./server"
kind = "service"
arguments = ["{data_dir}/x"]
data_paths = ["{data_dir}/x"]
ready_port = 5432
load = ["./load", "-n", "{clients}", "{data_dir}"]
warm_up_seconds = 10
settle_seconds = 0.5
ready_timeout_seconds = 30
stop_signal = "INT"
[workload.metrics]
tps = 'tps = ([0-9.]+)'
share = { pattern = "$.share", higher_is_better = false }
[factors]
cage = ["uncaged"]
[sizes]
full = { places = { clients = 8 } }
default = { places = { clients = 4 } }
emulated = { places = { clients = 2 } }
smoke = { places = { clients = 1 } }
"""


def service_definitions(folder: Path, text: str) -> Definitions:
    (folder / "experiments").mkdir()
    (folder / "experiments/own.toml").write_text(text)
    (folder / "cgroups").mkdir()
    (folder / "cgroups/uncaged.toml").write_text('about = "no limits"\n')
    return Definitions(folder, [])


def test_from_the_file_to_the_trial(tmp_path: Path) -> None:
    experiment = service_definitions(tmp_path, TABLES).experiment("own")
    cages = {"uncaged": Cage("uncaged", {})}
    [trial] = make_trials(experiment, cages, PlanOptions("full", "", 1, 1, "vm", "never"))
    assert trial.workload.kind == "service"
    assert trial.workload.command == CommandSpec(("{data_dir}/x",), None, 5432)
    assert trial.workload.service == ServiceSpec(
        ("./load", "-n", "8", "{data_dir}"),
        {"tps": MetricPattern("tps = ([0-9.]+)"), "share": MetricPattern("$.share", False)},
        10.0,
        0.5,
        30.0,
        "INT",
    )
    assert trial_from_json(trial_to_json(trial)) == trial


LEVELS = """
[levels.mix]
reads = { load_arguments = ["-S"] }
both = { load_arguments = [] }
"""


def test_a_level_may_change_the_load(tmp_path: Path) -> None:
    text = TABLES.replace('cage = ["uncaged"]', 'cage = ["uncaged"]\nmix = ["reads", "both"]')
    experiment = service_definitions(tmp_path, text + LEVELS).experiment("own")
    options = PlanOptions("full", "", 1, 1, "vm", "never")
    trials = make_trials(experiment, {"uncaged": Cage("uncaged", {})}, options)
    loads = {one.treatment["mix"]: one.workload.service.load for one in trials}  # type: ignore[union-attr]
    assert loads["both"] == ("./load", "-n", "8", "{data_dir}")
    assert loads["reads"] == (*loads["both"], "-S")


def test_a_command_has_no_load_to_change() -> None:
    levels = {"cage": {"uncaged": {"load_arguments": ["-S"]}}}
    with pytest.raises(ValueError, match="load_arguments apply only to workloads of kind"):
        workload(kind="command", load=[], metrics={}, response="wall_seconds", levels=levels)


def test_an_error_names_the_key(tmp_path: Path) -> None:
    wrong = TABLES.replace("tps = ([0-9.]+)", "tps = [0-9.]+")
    with pytest.raises(PagecageError, match=r"own.toml: workload.metrics.tps.* has no groups"):
        service_definitions(tmp_path, wrong).experiment("own")


def workload(**changes: Any) -> ExperimentFile:
    service = {"kind": "service", "load": ["./load"], "metrics": {"tps": "(.)"}}
    table = {"program": "./server", "ready_port": 80, **service, **changes}
    others = {"response": table.pop("response", "tps"), "levels": table.pop("levels", {})}
    sizes: Json = {name: {} for name in ("full", "default", "emulated", "smoke")}
    others |= {"question": "?", "factors": {"cage": ["uncaged"]}, "sizes": sizes}
    return ExperimentFile.model_validate({**others, "workload": table})


@pytest.mark.parametrize("response", ["tps", "ready_seconds", "wall_seconds", "device_reads"])
def test_a_response_may_be_a_metric_or_one_of_every_trial(response: str) -> None:
    assert workload(response=response).response == response


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"load": []}, "needs `load`"),
        ({"ready_port": None}, "needs ready_when or ready_port"),
        ({"ready_when": "x"}, "remove one of them"),
        ({"metrics": {"tps": "x"}}, "has no groups"),
        ({"metrics": {"tps": "(("}}, "not a regular expression"),
        ({"metrics": {"tps": "$.x["}}, "not a JSON path"),
        ({"metrics": {"TPS": "(.)"}}, "not the name of a metric"),
        ({"metrics": {"wall_seconds": "(.)"}}, "a response of every trial"),
        ({"metrics": {"device_reads": "(.)"}}, "a response of every trial"),
        ({"response": "tpm"}, "no metric 'tpm'; known: tps, ready_seconds, wall_seconds"),
        ({"warm_up_seconds": -1}, "greater than or equal to 0"),
        ({"stop_signal": "USR1"}, "'TERM', 'INT'"),
        ({"kind": "command"}, 'load applies only to kind "service"'),
        ({"kind": "handshake", "load": []}, 'ready_port applies only to kind "command" or'),
    ],
)
def test_what_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        workload(**changes)
