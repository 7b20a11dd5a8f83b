"""`python -m analysis render RUN_DIR` makes the report; `python -m analysis show RUN_DIR` prints it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from analysis.load import load_run
from analysis.show import as_json, show
from pagecage.errors import EXIT_OK, PagecageError


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; gives the exit code of docs/FORMAT.md."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "render":
            from analysis.report import render

            sys.stdout.write(f"{render(arguments.run_dir)}\n")
        elif arguments.json:
            sys.stdout.write(json.dumps(as_json(load_run(arguments.run_dir)), indent=2) + "\n")
        else:
            show(load_run(arguments.run_dir), Console())
    except PagecageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (("render", "make report.ipynb and report.html"), ("show", "print table, verdicts and claims")):
        command = commands.add_parser(name, help=about)
        command.add_argument("run_dir", type=Path, help="the run's folder, as runs/latest-constrained-random")
        if name == "show":
            command.add_argument("--json", action="store_true", help="data, and data alone, on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
