"""`python -m analysis render RUN_DIR` makes a report, `show RUN_DIR` prints it, `claims` and `answers` look at all."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

from analysis.claims.answers import answers
from analysis.claims.answers import as_json as answers_json
from analysis.claims.scorecard import as_json as scorecard_json
from analysis.claims.scorecard import newest_runs, scorecard
from analysis.data.include import include_by_name
from analysis.data.load import Run, load_run
from analysis.stats.gates import parse_gate
from analysis.summaries.comparison import compare, load_sides
from analysis.summaries.fleet import Fleet, is_fleet, load_fleet
from analysis.views import comparison, fleet, run
from analysis.views.answers import markdown, show_answers
from analysis.views.run import as_json, show
from analysis.views.scorecard import show_scorecard
from pagecage.checkout import TOP
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_OK, PagecageError

INCLUDE_HELP = "an excluded trial, or the verdict that excludes some, to average in"
JSON_HELP = "data, and data alone, on standard output"
T = TypeVar("T")


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; gives the exit code of docs/FORMAT.md."""
    arguments = _parser().parse_args(argv)
    try:
        return _COMMANDS[arguments.command](arguments) or EXIT_OK
    except PagecageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _render(arguments: argparse.Namespace) -> None:
    if is_fleet(arguments.run_dir):
        from analysis.views.fleet_page import write_report

        fleet = _fleet(arguments)
        _tell_rendered(arguments, write_report(fleet), fleet, FLEET_FORMS)
    else:
        from analysis.views.render import PAGE, render

        run = render(arguments.run_dir, arguments.include)
        _tell_rendered(arguments, arguments.run_dir / PAGE, run, RUN_FORMS)


def _tell_rendered(arguments: argparse.Namespace, page: Path, made: T, forms: Forms[T]) -> None:
    """Print the page's path, or with --show what `show` prints of what was loaded for the page."""
    if arguments.show:
        _tell(arguments, made, forms)
    else:
        sys.stdout.write(f"{page}\n")


def _show(arguments: argparse.Namespace) -> None:
    if is_fleet(arguments.run_dir):
        _tell(arguments, _fleet(arguments), FLEET_FORMS)
    else:
        _tell(arguments, include_by_name(load_run(arguments.run_dir), arguments.include), RUN_FORMS)


def _fleet(arguments: argparse.Namespace) -> Fleet:
    if arguments.include:
        one = f"pagecage show {arguments.run_dir}/hosts/HOST --include {arguments.include[0]}"
        raise PagecageError("--include applies to one run, and this is a fleet run", f"show the run of one host: {one}")
    return load_fleet(arguments.run_dir)


def _compare(arguments: argparse.Namespace) -> int:
    gates = [parse_gate(text) for text in arguments.fail_if]
    made = compare(load_sides(arguments.run_dirs, arguments.include), gates, anyway=arguments.anyway)
    if arguments.html:
        from analysis.views.comparison_page import page
        from analysis.views.html import write_page

        write_page(page(made), arguments.html)
    _tell(
        arguments, made,
        Forms(comparison.as_json, comparison.as_csv, comparison.as_markdown, comparison.show),
    )  # fmt: skip
    verdicts = made.verdicts()
    return EXIT_GATE_FAILED if "failed" in verdicts else EXIT_GATE_UNDECIDED if "undecided" in verdicts else EXIT_OK


def _claims(arguments: argparse.Namespace) -> None:
    card = scorecard(TOP / "experiments", newest_runs(arguments.runs), arguments.experiment)
    _tell(arguments, card, Forms(scorecard_json, None, None, show_scorecard))


def _answers(arguments: argparse.Namespace) -> None:
    found = answers(TOP / "experiments", newest_runs(arguments.runs))
    _tell(arguments, found, Forms(answers_json, None, markdown, show_answers))


def _publish(arguments: argparse.Namespace) -> None:
    from analysis.site.publish import publish

    sys.stdout.write(f"{publish(TOP, arguments.runs, arguments.run_dir, arguments.out)}\n")


@dataclass(frozen=True)
class Forms(Generic[T]):
    """How one thing is told: as data, as a table's lines, as markdown, on the terminal; None where there is no such."""

    json: Callable[[T], Any]
    csv: Callable[[T], str] | None
    markdown: Callable[[T], str] | None
    terminal: Callable[[T, Console], None]


RUN_FORMS = Forms[Run](as_json, run.as_csv, run.as_markdown, show)
FLEET_FORMS = Forms[Fleet](fleet.as_json, fleet.as_csv, fleet.as_markdown, fleet.show)


def _tell(arguments: argparse.Namespace, told: T, forms: Forms[T]) -> None:
    if arguments.json:
        sys.stdout.write(json.dumps(forms.json(told), indent=2) + "\n")
    elif forms.csv and arguments.csv:
        sys.stdout.write(forms.csv(told))
    elif forms.markdown and arguments.markdown:
        sys.stdout.write(forms.markdown(told))
    else:
        forms.terminal(told, Console())


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int | None]] = {
    "render": _render,
    "show": _show,
    "claims": _claims,
    "answers": _answers,
    "compare": _compare,
    "publish": _publish,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (("render", "make report.ipynb and report.html"), ("show", "print table, verdicts and claims")):
        command = commands.add_parser(name, help=about)
        command.add_argument("run_dir", type=Path, help="the run's folder, as runs/latest-constrained-random")
        command.add_argument("--include", action="append", default=[], help=INCLUDE_HELP)
        if name == "render":
            command.add_argument("--show", action="store_true", help="print what `show` prints, not the page's path")
        command.add_argument("--json", action="store_true", help=JSON_HELP)
        command.add_argument("--csv", action="store_true", help="the table, a line a treatment")
        command.add_argument("--markdown", action="store_true", help="table and claims")
    _add_compare(commands)
    claims = commands.add_parser("claims", help="print every published figure and what the newest runs say of it")
    claims.add_argument("--experiment", help="only the figures that this experiment tests")
    told = commands.add_parser("answers", help="print the articles' open questions and what the newest runs say")
    told.add_argument("--markdown", action="store_true", help="as the page docs/answers.md")
    site = commands.add_parser("publish", help="make a static site of runs")
    site.add_argument("run_dir", type=Path, nargs="*", help="run folders; the newest of every experiment without any")
    site.add_argument("--out", type=Path, required=True, help="the folder that becomes the site")
    site.add_argument("--runs", type=Path, default=TOP / "runs", help="where the runs are")
    for command in (claims, told):
        command.add_argument("--runs", type=Path, default=TOP / "runs", help="where the runs are")
        command.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _add_compare(commands: Any) -> None:
    command = commands.add_parser("compare", help="hold runs against the first of them")
    command.add_argument("run_dirs", type=Path, nargs="+", help="the runs' folders")
    for name, about in (("--fail-if", "'read_seconds > +10%%'"), ("--include", INCLUDE_HELP)):
        command.add_argument(name, action="append", default=[], help=about)
    command.add_argument("--html", type=Path, help="a page to write beside what is printed")
    for name in ("--anyway", "--json", "--csv", "--markdown"):
        command.add_argument(name, action="store_true")


if __name__ == "__main__":
    sys.exit(main())
