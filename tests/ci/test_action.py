"""The GitHub Action: its steps are run as a runner would run them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.views.render import render
from pagecage.process import run
from tests.builders.command_line import called
from tests.builders.run_edits import resealed
from tests.builders.timed_runs import times
from tests.checkout import environment
from tests.ci.action import ACTION, BASH, Job, Runner, action
from tests.ci.conftest import make_project
from tests.ci.expressions import UnknownExpressionError, interpolate, is_true
from tests.fixtures.runs import build_run

pytestmark = pytest.mark.slow
BIN = Path(sys.prefix) / "bin"
LIGHT = {"host": "local", "size": "smoke", "treatments": "cage=uncaged\n", "install": "false"}
"""A real run that needs neither limits nor the guest."""
ALWAYS = ["Identify the guest's image", "Run the experiment", "Write the summary and the report"]


def scripts() -> Iterator[tuple[str, str]]:
    """Yield the name and the script of each step that has one."""
    for step in action()["runs"]["steps"]:
        if "run" in step:
            yield step["name"], step["run"]


SCRIPTS = dict(scripts())


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Runner:
    top = tmp_path_factory.mktemp("runner")
    make_project(top / "workspace", path)
    return Runner(top / "workspace", top / "files", path, environment(top))


@pytest.fixture(scope="module")
def finished(runner: Runner) -> Job:
    return runner.use(experiment="reader", repeats="3", **LIGHT)


@pytest.fixture(scope="module")
def baseline(finished: Job, runner: Runner, path: Path) -> Path:
    """The figures of the finished run, from another kernel."""
    target = runner.workspace / "reader.json"
    words = ("compare", finished.outputs["run"], "--save-baseline", target)
    run([path / "pagecage", *words], cwd=runner.workspace, env=dict(runner.variables))
    saved = json.loads(target.read_text())
    for facts in saved["facts"]:
        facts["kernel"] = "5.4.0-another"
    target.write_text(json.dumps(resealed(saved)))
    return target


def test_it_follows_the_schema_of_actions() -> None:
    schema = ("--builtin-schema", "vendor.github-actions")
    done = run([BIN / "check-jsonschema", *schema, ACTION], check=False)
    assert done.ok, done.stdout


def test_a_run_without_a_gate(finished: Job) -> None:
    assert finished.status == 0, finished.logs
    assert finished.ran == [*ALWAYS, "Upload the report", "Gate"]
    assert (finished.outputs["verdict"], finished.outputs["status"]) == ("none", "0")
    records = Path(finished.outputs["run"], "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in records] == ["ok"] * 3


def test_the_artefact_has_the_report_and_what_other_programs_read(
    finished: Job, runner: Runner
) -> None:
    uploaded = {path.name for path in (runner.artifacts / "pagecage").iterdir()}
    bundle = f"{Path(finished.outputs['run']).name}.pagecage.zip"
    texts = {"report.html", "baseline.json", "run.md", "junit.xml", "metrics.txt"}
    assert uploaded == {*texts, bundle}
    assert finished.outputs["report"].startswith(str(runner.files / "temp"))


def test_the_summary_has_the_table(finished: Job) -> None:
    assert finished.summary.startswith("## pagecage: `reader`\n\nGate: **none** (exit status 0)\n")
    assert "| cage | wall seconds |" in finished.summary
    assert "3 trials: " in finished.summary


def test_a_gate_that_cannot_be_decided_fails_the_job_and_has_a_report(
    runner: Runner, baseline: Path
) -> None:
    gates = "wall_seconds > +5%\r\n\ndevice_read_bytes > +5%\n"
    inputs = {"baseline": baseline.name, "fail_if": gates, "artifact": "undecided", **LIGHT}
    job = runner.use(experiment="reader", repeats="3", **inputs)
    assert (job.status, job.outputs["verdict"]) == (6, "undecided"), job.logs
    assert "Gate: **undecided** (exit status 6)" in job.summary
    assert "kernel" in job.summary
    assert "5.4.0-another" in job.summary
    assert (runner.artifacts / "undecided/report.html").exists()
    assert "::error title=pagecage::verdict undecided" in job.logs["Gate"].stdout


def test_a_bound_needs_no_baseline_and_counts_what_is_included(runner: Runner) -> None:
    """On a busy machine it is decided by `include` alone."""
    gate = {"fail_if": "wall_seconds < 1000s", "include": "host_quiet", "artifact": ""}
    job = runner.use(experiment="reader", repeats="3", **gate, **LIGHT)
    assert (job.status, job.outputs["verdict"]) == (5, "failed"), job.logs


@pytest.mark.parametrize(
    ("times_as_many", "status", "verdict"), [(1, "0", "passed"), (3, "5", "failed")]
)
def test_a_decided_gate_has_a_table_and_a_chart_in_the_summary(
    runner: Runner, tmp_path: Path, times_as_many: int, status: str, verdict: str
) -> None:
    """The steps after the run, with the figures of made runs."""
    build_run(tmp_path / "a", times(1, 1), repeats=8)
    build_run(tmp_path / "b", times(times_as_many, 3), repeats=8, run_id="b")
    assert (
        called(["compare", str(tmp_path / "a"), "--save-baseline", str(tmp_path / "a.json")]) == 0
    )
    render(tmp_path / "b")
    inputs = {
        "experiment": "constrained-random",
        "baseline": str(tmp_path / "a.json"),
        "fail-if": "full_pass_seconds > +25%",
        "artifact": f"made-{verdict}",
    }
    after = ("Write the summary and the report", "Upload the report", "Gate")
    known = {"run": str(tmp_path / "b"), "status": status, "verdict": verdict}
    job = Job(runner, inputs).run(after, **known)
    assert job.status == int(status), job.logs
    assert f"Gate: **{verdict}** (exit status {status})" in job.summary
    assert f"| {verdict} | full_pass_seconds > +25% |" in job.summary
    assert "```mermaid\nxychart-beta horizontal\n" in job.summary
    assert (runner.artifacts / f"made-{verdict}/comparison.html").exists()


def test_a_condition_that_names_nothing_is_refused_before_the_run(
    runner: Runner, baseline: Path
) -> None:
    inputs = {"baseline": baseline.name, "fail_if": "nothing > +5%", "artifact": "", **LIGHT}
    job = runner.use(experiment="reader", **inputs)
    assert (job.status, job.outputs["verdict"], job.outputs["run"]) == (2, "error", "")
    assert "There is no run" in job.summary
    assert job.ran == [*ALWAYS, "Gate"]


HOSTILE = '"; touch hacked; $(touch hacked) `touch hacked`\ntouch hacked #'


@pytest.mark.parametrize("name", ["experiment", "host", "treatments", "cage"])
def test_the_text_of_an_input_is_never_run(runner: Runner, name: str) -> None:
    job = runner.use(**{"experiment": "reader", **LIGHT, name: HOSTILE})
    assert job.status != 0
    assert not list(runner.workspace.rglob("*hacked*"))
    assert not list(runner.files.rglob("*hacked*"))


@pytest.mark.parametrize("name", list(SCRIPTS))
def test_no_expression_stands_within_a_script(name: str) -> None:
    assert "${{" not in SCRIPTS[name]


def test_an_expression_within_a_script_would_run_an_input(tmp_path: Path) -> None:
    """Scripts are interpolated as GitHub does it, so that the tests above can fail."""
    script = interpolate("echo ${{ inputs.size }}", {"inputs.size": f"$(touch {tmp_path}/hacked)"})
    run([*BASH, "-c", script])
    assert (tmp_path / "hacked").exists()


def test_an_image_is_packed_only_if_the_cache_lacks_it() -> None:
    step = {step["name"]: step for step in action()["runs"]["steps"]}
    known = {"steps.image.outputs.kind": "vm", "inputs.cache": "true"}
    condition = step["Build the guest's image"]["if"]
    assert condition == step["Keep the guest's image"]["if"]
    assert is_true(condition, {**known, "steps.guest.outputs.cache-hit": ""})
    assert not is_true(condition, {**known, "steps.guest.outputs.cache-hit": "true"})


@pytest.mark.parametrize(
    "text", ["always()", "a ==", "inputs.nothing", "inputs.a && inputs.b", "-"]
)
def test_an_expression_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UnknownExpressionError):
        is_true(text, {"inputs.a": "", "inputs.b": ""})
    with pytest.raises(UnknownExpressionError):
        interpolate(f"${{{{ {text} }}}}", {})


def test_conditions() -> None:
    names = {"inputs.a": "TRUE", "steps.x.outputs.y": ""}
    assert is_true("inputs.a == 'true'", names)
    assert is_true("inputs.a != '' && steps.x.outputs.y == ''", names)
    assert is_true("inputs.a == '' || inputs.a == 'true'", names)
    assert not is_true("inputs.a == '' && inputs.a == 'true' || 'x' == 'it''s'", names)


@pytest.mark.parametrize("name", list(SCRIPTS))
def test_shellcheck(name: str, tmp_path: Path) -> None:
    script = tmp_path / "step.sh"
    script.write_text(f"#!/bin/bash\n{SCRIPTS[name]}")
    done = run([BIN / "shellcheck", script], check=False)
    assert done.ok, done.stdout


def test_a_copy_of_the_action_without_source_asks_for_a_wheel(tmp_path: Path, path: Path) -> None:
    runner = Runner(tmp_path, tmp_path / "files", path)
    job = Job(runner, {"experiment": "smoke", "host": "local"}, folder=tmp_path).run()
    assert job.status == 2
    assert "give it the input wheel or version" in job.logs["Identify the wheel"].stdout


def test_a_wheel_from_source_has_a_key_of_its_contents(tmp_path: Path, path: Path) -> None:
    keys = []
    for number, text in enumerate(("a", "a", "b")):
        source = tmp_path / str(number)
        (source / "build").mkdir(parents=True)
        (source / "build/made").write_text(str(number))
        (source / "Makefile").write_text(f"wheel:\n\t@echo {text}; exit 7\n")
        runner = Runner(tmp_path, tmp_path / f"files-{number}", path)
        job = Job(runner, {"experiment": "smoke", "host": "local"}, folder=source).run()
        assert job.ran[-1] == "Build the wheel"
        keys.append(job.context["steps.source.outputs.key"])
    assert keys[0] == keys[1] != keys[2]
