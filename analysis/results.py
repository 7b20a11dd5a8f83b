"""Results as texts, for the command line: runs, comparisons, histories and published figures.

`form` is json, csv, markdown, whole or claims for a terminal, or "" for its first screen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from analysis import fleet, history
from analysis.articles.findings import as_json as answers_json
from analysis.articles.findings import open_questions
from analysis.articles.pages import answers_report, fidelity_page, scorecard_page
from analysis.articles.ratios import HostedScorecard, chosen_runs, hosted_as_json, hosted_scorecard
from analysis.articles.scorecard import newest_runs, read_deviations, require_tested
from analysis.articles.tables import scorecard_report
from analysis.comparison import (
    Comparison,
    GateResult,
    check_bounds,
    check_responses,
    compare,
    judge,
    load_runs,
    named_gate,
    run_or_baseline,
)
from analysis.data.baseline import baseline_of
from analysis.data.load import Run, bundled_runs, include_by_name, load_run
from analysis.exchange import WRITERS, responses_of
from analysis.fleet import Fleet, is_fleet, load_fleet
from analysis.stats import parse_gate
from analysis.views import comparison, run
from analysis.volumes import read_checks
from pagecage.checkout import TOP
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_HOST, EXIT_OK, PagecageError
from pagecage.model.published_figures import read_rows
from pagecage.report.model import Report, to_markdown
from pagecage.report.terminal import terminal_text

T = TypeVar("T")


@dataclass(frozen=True)
class Formats(Generic[T]):
    """Conversions of a result: to JSON data, to a report, and to CSV (None if it has no CSV)."""

    json: Callable[[T], Any]
    report: Callable[[T], Report]
    csv: Callable[[T], str] | None = None

    def text(self, result: T, form: str) -> str:
        if form == "json":
            return json.dumps(self.json(result), indent=2) + "\n"
        if form == "csv" and self.csv:
            return self.csv(result)
        report = self.report(result)
        if form == "markdown":
            return to_markdown(report)
        return terminal_text(report, whole=form == "whole" or not report.rest)


RUN = Formats[Run](run.as_json, run.run_report, run.as_csv)
FLEET = Formats[Fleet](fleet.as_json, fleet.fleet_report, fleet.as_csv)
COMPARISON = Formats[Comparison](
    comparison.as_json, comparison.comparison_report, comparison.as_csv
)


def load(folder: Path, include: Sequence[str] = ()) -> Run | Fleet:
    """Load a run, or the runs of a fleet; `include` names excluded trials, or verdicts."""
    if not is_fleet(folder):
        return include_by_name(load_run(folder), include)
    if include:
        raise _of_one_run(folder, "--include", include[0])
    return load_fleet(folder)


def _of_one_run(folder: Path, option: str, value: str) -> PagecageError:
    return PagecageError(
        f"{option} applies to one run, and this is a fleet run",
        f"show the run of one host: pagecage show {folder}/hosts/HOST {option} {value}",
    )


def render(
    folder: Path, include: Sequence[str] = (), known_sections: Sequence[str] = ()
) -> Run | Fleet:
    """Write the report of a run or a fleet into its folder; return what was loaded for it.

    `known_sections` are the hashes of the definition's own sections that are executed.
    """
    loaded = load(folder, include) if is_fleet(folder) else None
    if isinstance(loaded, Fleet):
        fleet.write_report(loaded)
        return loaded
    from analysis.views.render import render

    return render(folder, include, known_sections)


def tables(loaded: Run | Fleet, form: str = "") -> str:
    if form == "claims" and isinstance(loaded, Run):
        return terminal_text(run.claims_report(loaded), whole=True)
    return FLEET.text(loaded, form) if isinstance(loaded, Fleet) else RUN.text(loaded, form)


def exchanged(folder: Path, name: str, include: Sequence[str] = ()) -> str:
    if is_fleet(folder):
        raise _of_one_run(folder, "--format", name)
    return WRITERS[name](include_by_name(load_run(folder), include))


def compared(
    folders: Sequence[Path],
    fail_if: Sequence[str],
    include: Sequence[str],
    form: str = "",
    *,
    anyway: bool = False,
    html: Path | None = None,
) -> tuple[str, int]:
    """Return the comparison with the first run, also as a page, and the status of the gates."""
    gates = [parse_gate(text) for text in fail_if]
    found = compare(load_runs(folders, include), gates, anyway=anyway)
    if html:
        title = " against ".join(run.run_id for run in found.runs)
        _write_page(COMPARISON.report(found), title, html)
    return COMPARISON.text(found, form), gate_status(found.verdicts())


def followed(
    paths: Sequence[Path], response: str | None, fail_if: str | None, form: str, html: Path | None
) -> tuple[str, int]:
    """Return the history of a response in runs and baselines, and the exit status of the gate."""
    gates = [parse_gate(fail_if)] if fail_if else []
    found = history.history_of(
        [run_or_baseline(path) for path in paths], gates[0].response if gates else response
    )
    formats = Formats[history.History](
        partial(history.as_json, gates=gates),
        partial(history.history_report, gates=gates),
        history.as_csv,
    )
    if html:
        report = formats.report(found)
        _write_page(report, report.title, html)
    status = gate_status({word for gate in gates for _, word, _ in found.gate_verdicts(gate)})
    return formats.text(found, form), status


def _write_page(report: Report, title: str, target: Path) -> None:
    from analysis.views.html import write_page  # late: it imports matplotlib

    write_page(report, title, target)


def gate_status(verdicts: set[str]) -> int:
    if "failed" in verdicts:
        return EXIT_GATE_FAILED
    return EXIT_GATE_UNDECIDED if "undecided" in verdicts else EXIT_OK


def judged(
    folder: Path, fail_if: Sequence[str], include: Sequence[str], form: str = ""
) -> tuple[str, int]:
    (run,) = load_runs([folder], include)
    gates = [parse_gate(text) for text in fail_if]
    check_bounds(gates)
    found = judge(run, gates)
    formats = Formats[Sequence[GateResult]](comparison.gates_json, comparison.gates_report)
    return formats.text(found, form), gate_status({one.verdict for one in found})


def check_gates(folder: Path | None, fail_if: Sequence[str]) -> None:
    """Check gates, and the run they will compare with, before there is another run."""
    gates = [parse_gate(text) for text in fail_if]
    if folder is None:
        check_bounds(gates)
        return
    (run,) = load_runs([folder])
    check_responses([run], [named_gate(gate, run) for gate in gates if gate.bound is None])


def save_baseline(
    folder: Path, out: Path, responses: Sequence[str] = (), include: Sequence[str] = ()
) -> None:
    (run,) = load_runs([folder], include)
    text = json.dumps(baseline_of(run, [*responses_of(run), *responses]), indent=1)
    out.write_text(f"{text}\n")


@contextmanager
def _stored_runs(runs: Path, bundles: Path | None) -> Iterator[Sequence[Run]]:
    """Load the runs of a folder of bundles if one is given, else the newest ones in `runs`."""
    if bundles is None:
        yield list(newest_runs(runs).values())
        return
    with bundled_runs(bundles) as loaded:
        yield loaded


def scorecard(
    runs: Path, bundles: Path | None, experiment: str | None, form: str, others: Sequence[Path] = ()
) -> str:
    require_tested(read_rows(TOP / "experiments"), experiment)
    deviations = read_deviations(bundles) if bundles else ()
    report_of: Callable[[HostedScorecard], Report] = (
        partial(scorecard_page, deviations=deviations) if form == "markdown" else scorecard_report
    )
    with _stored_runs(runs, bundles) as stored, bundled_runs(*others) as foreign:
        scored = hosted_scorecard(TOP / "experiments", stored, experiment, foreign)
        return Formats(hosted_as_json, report_of).text(scored, form)


def answers(runs: Path, bundles: Path | None, form: str) -> str:
    report_of = partial(answers_report, with_unproven=form != "markdown")
    with _stored_runs(runs, bundles) as stored:
        by_id = {run.run_id: run for run in chosen_runs(stored)}
        found = open_questions(TOP / "experiments", by_id)
        return Formats(answers_json, report_of).text(found, form)


def fidelity(folder: Path, form: str) -> str:
    with bundled_runs(folder) as own:
        compared = {run.experiment for run in own}
        with bundled_runs(TOP / "docs/runs", of=compared) as others:
            page = fidelity_page(read_checks(folder), [*others, *own])
    return Formats[Report](asdict, lambda report: report).text(page, form)


def publish(runs: Path, bundles: Path | None, named: Sequence[Path], out: Path) -> None:
    """Build a static site in `out`; without `named`, of the newest run of each experiment."""
    if find_spec("myst_nb") is None or find_spec("nbformat") is None:
        raise PagecageError(
            "the packages that build the site are not installed", "make publish", EXIT_HOST
        )
    from analysis import site

    deviations = read_deviations(bundles) if bundles else ()
    site.publish(TOP, _stored_runs(runs, bundles), named, out, deviations)
