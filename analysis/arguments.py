"""Command-line arguments of the analysis."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from analysis.exchange import WRITERS
from pagecage.checkout import TOP

_ABOUT = "Render or show a run, compare runs, and evaluate all of them."
INCLUDE_HELP = "an excluded trial, or a verdict that excludes trials, to include"
JSON_HELP = "print JSON, and nothing else, to standard output"


def parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    whole = argparse.ArgumentParser(prog="python -m analysis", description=_ABOUT)
    commands = whole.add_subparsers(dest="command", required=True)
    _add_render_and_show(commands)
    _add_section(commands)
    _add_compare(commands)
    _add_baseline(commands)
    _add_gates(commands)
    _add_history(commands)
    _add_collections(commands)
    return whole


def _add_collections(commands: Any) -> None:
    claims = commands.add_parser(
        "claims", help="print every published figure with the result of the newest runs"
    )
    claims.add_argument("--experiment", help="print only the figures that this experiment tests")
    answers = commands.add_parser(
        "answers", help="print the articles' open questions with the findings of the newest runs"
    )
    fidelity = commands.add_parser(
        "fidelity", help="print the fidelity of simulated volumes, from stored checks and bundles"
    )
    fidelity.add_argument("folder", type=Path, help="the folder of checks and bundles")
    fidelity.add_argument(
        "--bundles", type=Path, default=TOP / "docs/runs", help="a folder of further bundles"
    )
    for command, page in (
        (claims, "docs/SCORECARD.md"),
        (answers, "docs/answers.md"),
        (fidelity, "docs/FIDELITY.md"),
    ):
        command.add_argument("--markdown", action="store_true", help=f"print the page {page}")
        command.add_argument("--json", action="store_true", help=JSON_HELP)
    site = commands.add_parser("publish", help="build a static site of runs")
    site.add_argument(
        "run_dir",
        type=Path,
        nargs="*",
        help="run folders; by default the newest of every experiment",
    )
    site.add_argument("--out", type=Path, required=True, help="the folder to write the site to")
    for command in (claims, answers, site):
        command.add_argument(
            "--runs", type=Path, default=TOP / "runs", help="the folder that holds the runs"
        )
        command.add_argument("--bundles", type=Path, help="a folder of bundles, to read instead")


def _add_render_and_show(commands: Any) -> None:
    for name, about in (
        ("render", "write report.ipynb and report.html"),
        ("show", "print table, verdicts and claims"),
    ):
        command = commands.add_parser(name, help=about)
        command.add_argument(
            "run_dir", type=Path, help="the run's folder, such as runs/latest-constrained-random"
        )
        command.add_argument("--include", action="append", default=[], help=INCLUDE_HELP)
        if name == "render":
            command.add_argument(
                "--show",
                action="store_true",
                help="print the output of `show` instead of the page's path",
            )
            command.add_argument(
                "--section",
                action="append",
                default=[],
                metavar="SHA256",
                help="a section of the definition that is executed",
            )
        else:
            command.add_argument("--format", choices=WRITERS, help="print another program's format")
        command.add_argument("--json", action="store_true", help=JSON_HELP)
        command.add_argument(
            "--csv", action="store_true", help="print the table as CSV, one line per treatment"
        )
        command.add_argument(
            "--markdown", action="store_true", help="print the table and the claims as Markdown"
        )


def _add_section(commands: Any) -> None:
    command = commands.add_parser("section", help="execute a definition's own part of a report")
    command.add_argument("run_dir", type=Path, help="the run's folder")
    command.add_argument("source", type=Path, help="the file with the cells")
    command.add_argument("out", type=Path, help="the file to write the executed cells to")
    command.add_argument("--include", action="append", default=[], help=INCLUDE_HELP)


def _add_compare(commands: Any) -> None:
    command = commands.add_parser("compare", help="compare runs with the first of them")
    command.add_argument("run_dirs", type=Path, nargs="+", help="the runs' folders")
    for name, about in (("--fail-if", "'read_seconds > +10%%'"), ("--include", INCLUDE_HELP)):
        command.add_argument(name, action="append", default=[], help=about)
    command.add_argument("--html", type=Path, help="also write an HTML page")
    for name in ("--anyway", "--json", "--csv", "--markdown"):
        command.add_argument(name, action="store_true")


def _add_baseline(commands: Any) -> None:
    command = commands.add_parser("baseline", help="write a run's figures to a small file")
    command.add_argument("run_dir", type=Path, help="the run's folder")
    command.add_argument("--out", type=Path, required=True, help="the file to write")
    command.add_argument("--response", action="append", default=[], help="a further response")
    command.add_argument("--include", action="append", default=[], help=INCLUDE_HELP)


def _add_gates(commands: Any) -> None:
    command = commands.add_parser("gates", help="check gates before a run is compared")
    command.add_argument("run_dir", type=Path, help="the run's folder, or a baseline")
    command.add_argument("--fail-if", action="append", default=[], help="a gate")


def _add_history(commands: Any) -> None:
    command = commands.add_parser("history", help="print where a figure changed its level")
    command.add_argument("run_dirs", type=Path, nargs="+", help="runs and baselines")
    command.add_argument("--response", help="the response; by default the experiment's")
    command.add_argument("--fail-if", action="append", default=[], help="a gate")
    command.add_argument("--html", type=Path, help="also write an HTML page")
    for name in ("--json", "--csv", "--markdown"):
        command.add_argument(name, action="store_true")
