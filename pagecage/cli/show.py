"""`pagecage show`: a run's tables and report.

The analysis and all that runs trials are imported late, because they take long.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import TOP
from pagecage.cli.output import OutputFormat
from pagecage.errors import EXIT_OK, UNREADABLE, PagecageError, exclusive, refusal_of_system
from pagecage.terminal import is_verbose, notify

if TYPE_CHECKING:
    from pagecage.cli.execution import PreparedRun
    from pagecage.hosts.host import Host
    from pagecage.model.plan import Plan

Include = Annotated[list[str] | None, Parameter(metavar="NAME")]
FailIf = Annotated[list[str] | None, Parameter(metavar="CONDITION")]


@contextmanager
def analysing(product: str = "report") -> Iterator[None]:
    """Let the analysis be imported and called; its errors name the product that is missing.

    The working directory is the project's top, because matplotlib would read a matplotlibrc of the
    user's. Warnings of libraries are dropped.
    """
    before = os.open(".", os.O_PATH)  # also of a folder that was removed
    os.chdir(TOP)
    try:
        with redirect_stderr(StringIO()):
            yield
    except (PagecageError, OSError, RuntimeError) as error:
        refused = error if isinstance(error, PagecageError) else refusal_of_system(error)
        if refused is None:
            raise
        reason = refused.message.splitlines()[-1]
        hint = refused.hint or "pagecage show NAME --html"
        raise PagecageError(f"no {product}: {reason}", hint, refused.exit_code) from None
    finally:
        os.fchdir(before)
        os.close(before)


def show_run(
    run_folder: Path, form: str = "", include: Sequence[str] = (), exchange: str | None = None
) -> str:
    """Return a run's tables in a form of OutputFormat, or its figures for another program."""
    with analysing():
        from analysis import results

        if exchange:
            return results.exchanged(run_folder, exchange, include)
        return results.tables(results.load(run_folder, include), form or terminal_form())


def terminal_form() -> str:
    return "whole" if is_verbose() else ""


def report(
    run_folder: Path,
    form: str = "",
    include: Sequence[str] = (),
    *,
    shows_tables: bool = True,
    runs_sections: bool = True,
) -> None:
    """Write report.ipynb and report.html to the run's folder, print its tables, and name the page.

    With `runs_sections` the definition's own sections are executed if they were accepted on this
    machine.
    """
    notify("making the report ...")
    known = _known_sections(run_folder) if runs_sections else []
    with analysing():
        from analysis import results

        loaded = results.render(run_folder, include, known)
        text = results.tables(loaded, form or terminal_form()) if shows_tables else ""
    if shows_tables:
        print(text, end="")
        notify(f"report: {os.path.relpath(run_folder / 'report.html')}")


def show_plan(plan: Plan, host: Host, *, as_json: bool = False) -> None:
    """Stop the host, and print a plan with the commands of each trial, or as JSON."""
    from pagecage.agent.preview import trial_commands
    from pagecage.model.plan import plan_to_json
    from pagecage.planning.plan import plan_lines

    host.stop()
    if as_json:
        print(json.dumps(plan_to_json(plan)))
        return
    print("\n".join(plan_lines(plan)))
    for trial in plan.trials:
        print(f"\n# {trial.trial_id}\n" + "\n".join(trial_commands(trial, host.user)))


def measure(prepared: PreparedRun, form: str) -> int:
    from pagecage.cli.execution import execute, exit_code

    status = execute(prepared, notify)
    report(prepared.folder.path, form)
    return exit_code(prepared, status, notify)


def _known_sections(run_folder: Path) -> list[str]:
    from pagecage.definitions.known import accepted_sections

    try:
        sections = json.loads((run_folder / "plan.json").read_bytes()).get("sections") or {}
    except UNREADABLE:
        return []
    texts = sections.values() if isinstance(sections, dict) else ()
    return accepted_sections(text for text in texts if isinstance(text, str))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFormat(OutputFormat):
    """The output format of a run.

    Parameters
    ----------
    claims
        Print only the published figures that the run compares
    """

    claims: bool = False

    def given(self) -> dict[str, bool]:
        return {**super().given(), "claims": self.claims}


def show(
    name: str,
    /,
    output_format: RunFormat = RunFormat(),
    *,
    include: Include = None,
    html: bool = False,
    format: Annotated[  # noqa: A002 - the option's name
        Literal["bencher", "github-benchmark", "hyperfine", "junit", "openmetrics"] | None,
        Parameter(metavar="NAME"),
    ] = None,
) -> int:
    """Show a run's tables, verdicts and claims.

    Parameters
    ----------
    name
        Run: id, folder, bundle, EXPERIMENT, EXPERIMENT@GROUP; or a directory of runs, to list them
    include
        Include an excluded trial, by name; or a verdict (limits, cache_state_reached, host_quiet,
        collectors, consistency, output, volume) for all trials excluded by it alone
    html
        Make the HTML report again and print its path
    format
        Print figures for another program: bencher, github-benchmark, hyperfine, junit, openmetrics
    """
    from pagecage.cli.runs import holds_runs, list_, opened_folder

    form, names = output_format.form(), include or ()
    forms = {"--html": html, f"--{form}": form, "--format": format}
    if len(given := [option for option, is_given in forms.items() if is_given]) > 1:
        raise exclusive(*given)
    if holds_runs(name):
        return list_(Path(name), as_json=output_format.as_json)
    with opened_folder(name) as path:
        if html:
            _make_page(path, names, name)
        else:
            print(show_run(path, form, names, format), end="")
    return EXIT_OK


def _make_page(path: Path, include: Sequence[str], name: str) -> None:
    from pagecage.cli.runs import BUNDLED

    if path.name == BUNDLED:
        message = f"{name} is an archive, which a report is not written into"
        raise PagecageError(message, f"pagecage import {name}")
    report(path, include=include, shows_tables=False)
    print(path / "report.html")
