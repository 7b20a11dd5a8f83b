"""Replays of programs and of services as experiments."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.articles.findings import evaluate_findings
from analysis.data.load import Run, load_run
from analysis.sweep import Sweep, sweep_of, sweep_rows, sweep_sentences
from pagecage.definitions.experiment import ExperimentFile
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, from_json, to_json
from pagecage.model.record import append_record, read_records
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import CommandSpec, ImageSpec, trial_from_json, trial_to_json
from pagecage.planning.plan import PlanOptions, make_plan, make_trials
from pagecage.planning.replay import SIZE, ReplaySpec, make_experiment
from pagecage.process import run
from pagecage.runner.uploads import (
    UploadedFile,
    find_uploads,
    parse_ldd,
    path_on_host,
    program_uploads,
    translate_command,
)
from tests.builders.plans import HARNESS
from tests.builders.run_edits import with_limits_of
from tests.fixtures.stored import stored

LDD = """\tlinux-vdso.so.1 (0x00007f9fe84e6000)
\tlibsqlite3.so.0 => /lib/x86_64-linux-gnu/libsqlite3.so.0 (0x00007f9fe8328000)
\tlibgone.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f9fe84e8000)
"""

OWN = """
question = "?"
[workload]
program = "./server"
kind = "command"
data_paths = ["{data_dir}/x"]
ready_when = "^ready"
timeout_seconds = 7.5
[factors]
cage = ["uncaged"]
[sizes]
full = {}
default = {}
emulated = {}
smoke = {}
"""


def replay(
    *typed: str,
    cages: tuple[str, ...] = ("uncaged", "customer"),
    command: CommandSpec | None = None,
) -> ReplaySpec:
    return ReplaySpec(typed, typed, command or CommandSpec(), cages, "cold", ("iostat",))


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("sqlite3", "replay-sqlite3"),
        ("./My Server", "replay-my-server"),
        ("/usr/bin/g++", "replay-g"),
        ("_", "replay"),
    ],
)
def test_a_replay_is_named_after_its_program(program: str, name: str) -> None:
    assert replay(program).name == name


def test_an_image_is_named_with_its_id() -> None:
    image = ImageSpec("own:1", f"sha256:{'0123456789ab' * 5}", "amd64", 1)
    made = make_experiment(replay("own:1", "-a", command=CommandSpec(image=image)))
    assert "How long does the image `own:1 -a` (sha256:0123456789ab) take" in made.question


def test_findings_compare_each_cage_with_the_control() -> None:
    made = make_experiment(replay("true", cages=("uncaged", "customer", "tenth")))
    findings = made.definition["findings"]
    assert [(f["where"], f["over"]) for f in findings] == [
        ({"cage": name}, {"cage": "uncaged"}) for name in ("customer", "tenth")
    ]
    assert made.response == "wall_seconds"
    assert make_experiment(replay("true", cages=("customer",))).definition["findings"] == []


def test_a_server_is_measured_until_it_serves() -> None:
    made = make_experiment(replay("server", command=CommandSpec(ready_port=80)))
    assert made.response == "ready_seconds"
    assert {finding["response"] for finding in made.definition["findings"]} == {"ready_seconds"}


def test_equal_replays_have_equal_hashes() -> None:
    one, same, other = (make_experiment(replay("true", *words)) for words in ((), (), ("x",)))
    assert one.definition_sha256 == same.definition_sha256 != other.definition_sha256


commands = st.builds(
    CommandSpec,
    st.lists(st.text()).map(tuple),
    st.none() | st.text(),
    st.none() | st.integers(1, 65535),
    st.none() | st.floats(1, 1e6),
    st.none() | st.text(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.builds(ImageSpec, st.text(), st.text(), st.text(), st.integers(0)),
)


@dataclass(frozen=True)
class Holder:
    command: CommandSpec | None


@given(st.builds(Holder, st.none() | commands))
def test_a_command_survives_json(holder: Holder) -> None:
    assert from_json(Holder, to_json(holder)) == holder


class TestCarried:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data/below").mkdir(parents=True)
        (tmp_path / "data/below/file").write_bytes(b"x" * 1000)
        (tmp_path / "data/link").symlink_to("/nowhere")
        (tmp_path / "db").write_bytes(b"y" * 10)
        return tmp_path

    def test_each_lies_under_its_own_name(self, folder: Path) -> None:
        made = find_uploads(["data", str(folder / "db")])
        assert [(one.name, one.size_bytes) for one in made] == [("data", 1000), ("db", 10)]
        assert from_json(tuple[UploadedFile, ...], to_json(made)) == made

    @pytest.mark.parametrize(
        ("paths", "says"),
        [(["nowhere"], "'nowhere' does not exist"), (["db", "./db"], "two files")],
    )
    def test_what_cannot_be_named(self, folder: Path, paths: list[str], says: str) -> None:
        with pytest.raises(PagecageError, match=says):
            find_uploads(paths)

    @pytest.mark.parametrize(
        ("path", "there"),
        [
            ("data", "/d/data"),
            ("data/below/file", "/d/data/below/file"),
            ("./db", "/d/db"),
            ("database", None),
            ("/etc/hosts", None),
        ],
    )
    def test_where_a_path_lies_on_the_host(
        self, folder: Path, path: str, there: str | None
    ) -> None:
        assert path_on_host(path, find_uploads(["data", "db"]), "/d") == there

    def test_a_path_with_dots_is_found_again(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "here").mkdir()
        monkeypatch.chdir(folder / "here")
        [upload] = find_uploads(["../db"])
        assert path_on_host("../db", [upload], "/d") == "/d/db"

    def test_only_words_that_are_exactly_a_carried_path_are_translated(self, folder: Path) -> None:
        path = str(folder / "db")
        words = translate_command(
            ["sqlite3", path, f"{path}x", "db", f"--file={path}"], find_uploads([path]), "/d"
        )
        assert words == ("sqlite3", "/d/db", f"{path}x", "db", f"--file={path}")


def test_ldd_is_read() -> None:
    assert parse_ldd(LDD) == {
        "libsqlite3.so.0": "/lib/x86_64-linux-gnu/libsqlite3.so.0",
        "libgone.so.1": None,
        "ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2",
    }
    assert parse_ldd("\tstatically linked\n") == {}


@given(st.text())
def test_any_output_of_ldd_is_read(text: str) -> None:
    parse_ldd(text)


def test_a_program_runs_from_what_was_carried(tmp_path: Path) -> None:
    """The copied program opens only the copied libraries."""
    parts, start = program_uploads("sort")
    for part in parts:
        (tmp_path / part.name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(part.source, tmp_path / part.name)
    argv = [word.replace("{directory}", str(tmp_path)) for word in start]
    assert run(argv, input_text="b\na\n").stdout == "a\nb\n"
    listed = run([*argv[:3], "--list", argv[-1]]).stdout
    opened = [
        line.split(" => ")[1].split(" ")[0] for line in listed.splitlines() if " => /" in line
    ]
    assert opened
    assert all(path.startswith(str(tmp_path)) for path in opened)


def test_a_static_program_needs_nothing(tmp_path: Path) -> None:
    static = next(
        (path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if Path(path).exists()), None
    )
    assert static is not None, "libc-bin has had this static program in every Debian and Ubuntu"
    parts, start = program_uploads(static)
    assert start == ("{directory}/program/ldconfig",)
    assert [part.name for part in parts] == ["program/ldconfig"]


def test_a_script_and_a_text_are_refused(tmp_path: Path) -> None:
    for name, content, says in (
        ("script", "#!/usr/bin/perl\n", "script for /usr/bin/perl"),
        ("text", "x", "not an ELF program"),
    ):
        path = tmp_path / name
        path.write_text(content)
        path.chmod(0o755)
        with pytest.raises(PagecageError, match=says):
            program_uploads(str(path))
    with pytest.raises(PagecageError, match="no program 'no-such-program'"):
        program_uploads("no-such-program")


class TestDefinition:
    """`kind = "command"` in a file."""

    def workload(self, **changes: object) -> ExperimentFile:
        table = {"program": "./server", "kind": "command", **changes}
        sizes: Json = {name: {} for name in ("full", "default", "emulated", "smoke")}
        whole: Json = {"question": "?", "factors": {"cage": ["uncaged"]}, "sizes": sizes}
        return ExperimentFile.model_validate({**whole, "workload": table})

    def test_all_keys(self) -> None:
        keys = {"data_paths": ["{data_dir}/x"], "ready_when": "^ready$", "timeout_seconds": 5.0}
        made = self.workload(**keys).workload
        assert made.command == CommandSpec(("{data_dir}/x",), "^ready$", timeout_seconds=5.0)

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"ready_when": "(("}, "not a regular expression"),
            ({"ready_port": 0}, "greater than 0"),
            ({"ready_port": 65536}, "less than 65536"),
            ({"timeout_seconds": 0}, "greater than 0"),
            ({"kind": "handshake", "ready_port": 80}, 'applies only to kind "command"'),
            ({"kind": "handshake", "data_paths": ["x"]}, 'applies only to kind "command"'),
            ({"ready_when": "x", "ready_port": 80}, "remove one of them"),
        ],
    )
    def test_what_is_refused(self, changes: dict[str, object], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            self.workload(**changes)

    def test_from_the_file_to_the_trial(self, tmp_path: Path) -> None:
        (tmp_path / "experiments").mkdir()
        (tmp_path / "experiments/own.toml").write_text(OWN)
        (tmp_path / "cgroups").mkdir()
        (tmp_path / "cgroups/uncaged.toml").write_text('about = "no limits"\n')
        experiment = Definitions(tmp_path, []).experiment("own")
        options = PlanOptions("full", "", 1, 1, "vm", "never")
        [trial] = make_trials(experiment, {"uncaged": Cage("uncaged", {})}, options)
        assert trial.workload.command == CommandSpec(("{data_dir}/x",), "^ready", None, 7.5)
        assert trial.timeout_seconds == 7.5
        assert trial_from_json(trial_to_json(trial)) == trial


PATTERNS = {"tps": MetricPattern("tps = (.)"), "p99_ms": MetricPattern("$.p99")}
SERVICE = ServiceSpec(("load", "a b"), PATTERNS, 10.0, 1.0)
CAGES = ("uncaged", "tenth")


def served_replay(service: ServiceSpec = SERVICE, cages: tuple[str, ...] = CAGES) -> ReplaySpec:
    command = CommandSpec(ready_port=80, is_literal=True)
    argv = ("server", "x")
    spec = ReplaySpec(argv, argv, command, cages, "cold", ())
    return replace(spec, service=service, typed_load=service.load)


def test_its_first_metric_is_the_response() -> None:
    made = make_experiment(served_replay())
    assert (made.response, made.workload.kind, made.workload.service) == ("tps", "service", SERVICE)
    assert make_experiment(served_replay(replace(SERVICE, metrics={}))).response == "wall_seconds"
    assert made.question == "How does `server x` serve the load `load 'a b'` in uncaged and tenth?"


def test_a_definition_has_what_a_file_would_hold() -> None:
    workload = make_experiment(served_replay()).definition["workload"]
    assert workload["load"] == ["load", "a b"]
    assert workload["metrics"] == {"tps": "tps = (.)", "p99_ms": "$.p99"}
    assert (workload["warm_up_seconds"], workload["settle_seconds"]) == (10.0, 1.0)


def run_of(folder: Path, figures: dict[str, dict[str, float]], about: Json) -> Run:
    """Return a run whose trials have these figures, by cage; else they are a stored trial."""
    cages = {name: Cage(name, {"IOReadIOPSMax": 500}) for name in figures}
    options = PlanOptions(SIZE, "", 1, 7, "vm", "never")
    made = make_experiment(served_replay(cages=tuple(figures)))
    plan = make_plan("20261121T100000Z-replay-server-vm", made, cages, options, "", HARNESS)
    plan = replace(plan, document={**plan.document, **about})
    record, series = stored("iops")
    trace = "trials/all.1/sampler.jsonl"
    (folder / trace).parent.mkdir(parents=True)
    (folder / trace).write_text("".join(json.dumps(row) + "\n" for row in series))
    for trial in plan.trials:
        own = figures[trial.treatment["cage"]]
        changed = replace(
            record,
            trial_id=trial.trial_id,
            treatment=trial.treatment,
            traces={"sampler": trace},
            experiment=plan.document["experiment"],
            run_id=plan.run_id,
            response=own,
        )
        append_record(folder / "records.jsonl", changed)
    document = with_limits_of(plan.document, read_records(folder / "records.jsonl"))
    (folder / "plan.json").write_text(json.dumps(document))
    return load_run(folder)


def test_findings_say_what_the_cage_costs(tmp_path: Path) -> None:
    """Each ratio is above 1 where the cage costs something."""
    free = {"tps": 310.0, "p99_ms": 4.0, "ready_seconds": 1.0}
    caged = {"tps": 100.0, "p99_ms": 12.0, "ready_seconds": 2.0}
    run = run_of(tmp_path, {"uncaged": free, "tenth": caged}, {})
    assert [finding.sentence for finding in evaluate_findings(run)] == [
        "Without limits, tps is 3.1 times as high as in `tenth`.",
        "In `tenth`, p99_ms is 3 times as high as without limits.",
        "In `tenth` it takes 2 times as long until the server serves.",
    ]


def sweep_in(folder: Path, response: str, figures: tuple[float, ...]) -> Sweep:
    """Return the sweep of a run with these figures of the metric at 500, 1,000 and 2,000 IOPS."""
    values = {f"tenth, IOReadIOPSMax {n}": n for n in (500, 1000, 2000)}
    definition = make_experiment(served_replay(cages=tuple(values))).definition
    about = {"property": "IOReadIOPSMax", "factor": "cage", "values": values, "own": None}
    levels = {name: {response: n} for name, n in zip(values, figures, strict=True)}
    changes = {"sweep": about, "definition": {**definition, "response": response}}
    sweep = sweep_of(run_of(folder, levels, changes))
    assert sweep is not None
    return sweep


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ((500.0, 990.0, 1010.0), "The knee is at IOReadIOPSMax 1,000: above 1,000 the metric tps"),
        ((500.0, 1000.0, 2000.0), "The metric tps still rises at 2,000, the largest value."),
        ((500.0, 505.0, 490.0), "The metric tps is the same from 500 upwards"),
    ],
)
def test_a_sweep_shows_the_metric(
    tmp_path: Path, figures: tuple[float, float, float], says: str
) -> None:
    sweep = sweep_in(tmp_path, "tps", figures)
    assert sweep.response == "tps"
    assert [point.measured for point in sweep.points] == [*figures]
    assert sweep_rows(sweep)[0]["measured"] == "500 tps"
    assert sweep.points[1].predicted == pytest.approx(2 * figures[0], rel=0.05)
    assert sweep_sentences(sweep)[0].startswith(says)


def test_a_latency_has_a_knee_but_is_not_predicted(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path, "p99_ms", (8.0, 4.0, 4.1))
    assert all(point.predicted is None for point in sweep.points)
    assert sweep_rows(sweep)[0]["measured"] == "8 ms"
    assert "above 1,000 the metric p99_ms falls by 10% at most" in sweep_sentences(sweep)[0]
