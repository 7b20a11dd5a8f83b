"""Command line of the analysis: render or show a run, compare runs, and evaluate all of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

from analysis import fleet, history
from analysis.arguments import parser
from analysis.articles.findings import as_json as answers_json
from analysis.articles.findings import open_questions
from analysis.articles.pages import answers_report, fidelity_page, scorecard_page
from analysis.articles.ratios import HostedScorecard, chosen_runs, hosted_as_json, hosted_scorecard
from analysis.articles.scorecard import newest_runs, read_deviations
from analysis.articles.tables import scorecard_report
from analysis.comparison import Comparison, check_responses, compare, load_runs, run_or_baseline
from analysis.data.baseline import baseline_of
from analysis.data.load import Run, bundled_runs, include_by_name, load_run
from analysis.exchange import WRITERS, responses_of
from analysis.fleet import Fleet, is_fleet, load_fleet
from analysis.history import History, history_of
from analysis.stats import parse_gate
from analysis.views import comparison, run
from analysis.volumes import read_checks
from pagecage.checkout import TOP
from pagecage.errors import (
    EXIT_GATE_FAILED,
    EXIT_GATE_UNDECIDED,
    EXIT_HOST,
    EXIT_OK,
    PagecageError,
    refusal_of_system,
)
from pagecage.report.model import Report, to_markdown
from pagecage.report.terminal import print_report

T = TypeVar("T")


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; return the exit code of docs/FORMAT.md."""
    arguments = parser().parse_args(argv)
    try:
        return _COMMANDS[arguments.command](arguments) or EXIT_OK
    except PagecageError as error:
        return _refuse(error)
    except (OSError, RuntimeError) as error:
        if (refused := refusal_of_system(error)) is None:
            raise
        return _refuse(refused)


def _refuse(error: PagecageError) -> int:
    sys.stderr.write(f"{error}\n")
    return error.exit_code


def _render(arguments: argparse.Namespace) -> None:
    if is_fleet(arguments.run_dir):
        found = _fleet(arguments)
        _print_rendered(arguments, fleet.write_report(found), found, FLEET_FORMATS)
    else:
        from analysis.views.render import PAGE, render

        rendered = render(arguments.run_dir, arguments.include, arguments.section)
        _print_rendered(arguments, arguments.run_dir / PAGE, rendered, RUN_FORMATS)


def _section(arguments: argparse.Namespace) -> None:
    from analysis.views.render import run_section

    run_section(arguments.run_dir, arguments.source, arguments.out, arguments.include)


def _print_rendered(
    arguments: argparse.Namespace, page: Path, result: T, formats: Formats[T]
) -> None:
    """Print the page's path or, with --show, the output of `show` for what was rendered."""
    if arguments.show:
        _print_result(arguments, result, formats)
    else:
        sys.stdout.write(f"{page}\n")


def _show(arguments: argparse.Namespace) -> None:
    if is_fleet(arguments.run_dir):
        _print_result(arguments, _fleet(arguments), FLEET_FORMATS)
        return
    shown = include_by_name(load_run(arguments.run_dir), arguments.include)
    if arguments.format:
        sys.stdout.write(WRITERS[arguments.format](shown))
    else:
        _print_result(arguments, shown, RUN_FORMATS)


def _fleet(arguments: argparse.Namespace) -> Fleet:
    if getattr(arguments, "format", None):
        one = f"pagecage show {arguments.run_dir}/hosts/HOST --format {arguments.format}"
        raise PagecageError(
            "--format applies to one run, and this is a fleet run",
            f"show the run of one host: {one}",
        )
    if arguments.include:
        one = f"pagecage show {arguments.run_dir}/hosts/HOST --include {arguments.include[0]}"
        raise PagecageError(
            "--include applies to one run, and this is a fleet run",
            f"show the run of one host: {one}",
        )
    return load_fleet(arguments.run_dir)


def _compare(arguments: argparse.Namespace) -> int:
    gates = [parse_gate(text) for text in arguments.fail_if]
    compared = compare(
        load_runs(arguments.run_dirs, arguments.include), gates, anyway=arguments.anyway
    )
    if arguments.html:
        from analysis.views.html import to_html, write_page

        title = " against ".join(run.plan["run_id"] for run in compared.runs)
        write_page(to_html(comparison.comparison_report(compared), title), arguments.html)
    _print_result(arguments, compared, COMPARISON_FORMATS)
    return _gate_status(compared.verdicts())


def _gates(arguments: argparse.Namespace) -> None:
    """Check gates and the run they will compare with, before there is another run."""
    (baseline,) = load_runs([arguments.run_dir])
    check_responses([baseline], [parse_gate(text) for text in arguments.fail_if])


def _baseline(arguments: argparse.Namespace) -> None:
    (run,) = load_runs([arguments.run_dir], arguments.include)
    text = json.dumps(baseline_of(run, [*responses_of(run), *arguments.response]), indent=1)
    arguments.out.write_text(f"{text}\n")


def _history(arguments: argparse.Namespace) -> int:
    gates = [parse_gate(text) for text in arguments.fail_if]
    response = gates[0].response if gates else arguments.response
    found = history_of([run_or_baseline(path) for path in arguments.run_dirs], response)
    if arguments.html:
        from analysis.views.html import to_html, write_page

        report = history.history_report(found, gates)
        write_page(to_html(report, report.title), arguments.html)
    formats = Formats[History](
        lambda one: history.as_json(one, gates),
        history.as_csv,
        lambda one: history.history_report(one, gates),
    )
    _print_result(arguments, found, formats)
    return _gate_status({word for gate in gates for _, word, _ in found.gate_verdicts(gate)})


def _gate_status(verdicts: set[str]) -> int:
    if "failed" in verdicts:
        return EXIT_GATE_FAILED
    return EXIT_GATE_UNDECIDED if "undecided" in verdicts else EXIT_OK


def _claims(arguments: argparse.Namespace) -> None:
    deviations = read_deviations(arguments.bundles) if arguments.bundles else ()
    report_of: Callable[[HostedScorecard], Report] = (
        partial(scorecard_page, deviations=deviations)
        if arguments.markdown
        else lambda scored: scorecard_report(scored.card)
    )
    with _stored_runs(arguments) as runs:
        scored = hosted_scorecard(TOP / "experiments", runs, arguments.experiment)
        _print_result(arguments, scored, Formats(hosted_as_json, None, report_of))


def _fidelity(arguments: argparse.Namespace) -> None:
    with bundled_runs(arguments.folder) as own, bundled_runs(arguments.bundles) as others:
        page = fidelity_page(read_checks(arguments.folder), [*others, *own])
        _print_result(arguments, page, Formats(asdict, None, lambda report: report))


def _answers(arguments: argparse.Namespace) -> None:
    report_of = partial(answers_report, with_unproven=not arguments.markdown)
    with _stored_runs(arguments) as runs:
        by_id = {str(run.plan["run_id"]): run for run in chosen_runs(runs)}
        found = open_questions(TOP / "experiments", by_id)
        _print_result(arguments, found, Formats(answers_json, None, report_of))


@contextmanager
def _stored_runs(arguments: argparse.Namespace) -> Iterator[Sequence[Run]]:
    """Load the runs of a folder of bundles if one is given, else the newest ones in `--runs`."""
    if arguments.bundles is None:
        yield list(newest_runs(arguments.runs).values())
        return
    with bundled_runs(arguments.bundles) as runs:
        yield runs


def _publish(arguments: argparse.Namespace) -> None:
    if find_spec("myst_nb") is None or find_spec("nbformat") is None:
        raise PagecageError(
            "the packages that build the site are not installed", "make publish", EXIT_HOST
        )
    from analysis.site import publish

    with _stored_runs(arguments) as runs:
        sys.stdout.write(f"{publish(TOP, runs, arguments.run_dir, arguments.out)}\n")


@dataclass(frozen=True)
class Formats(Generic[T]):
    """Conversions of a result: to JSON data, to CSV (None if it has no CSV), and to a report."""

    json: Callable[[T], Any]
    csv: Callable[[T], str] | None
    report: Callable[[T], Report]


RUN_FORMATS = Formats[Run](run.as_json, run.as_csv, run.run_report)
FLEET_FORMATS = Formats[Fleet](fleet.as_json, fleet.as_csv, fleet.fleet_report)
COMPARISON_FORMATS = Formats[Comparison](
    comparison.as_json, comparison.as_csv, comparison.comparison_report
)


def _print_result(arguments: argparse.Namespace, result: T, formats: Formats[T]) -> None:
    if arguments.json:
        sys.stdout.write(json.dumps(formats.json(result), indent=2) + "\n")
    elif formats.csv and arguments.csv:
        sys.stdout.write(formats.csv(result))
    elif getattr(arguments, "markdown", False):
        sys.stdout.write(to_markdown(formats.report(result)))
    else:
        print_report(formats.report(result), Console())


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int | None]] = {
    "render": _render,
    "section": _section,
    "show": _show,
    "claims": _claims,
    "answers": _answers,
    "fidelity": _fidelity,
    "compare": _compare,
    "baseline": _baseline,
    "gates": _gates,
    "history": _history,
    "publish": _publish,
}


if __name__ == "__main__":
    sys.exit(main())
