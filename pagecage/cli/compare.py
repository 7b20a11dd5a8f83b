"""`pagecage compare` and `history`: gates, and comparisons of runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import Parameter

from pagecage.checkout import RUNS
from pagecage.cli.output import OutputFormat
from pagecage.cli.show import FailIf, Include, analysing, terminal_form
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.options import GATES, NewFile, Positive, given_options
from pagecage.terminal import notify
from pagecage.verdicts.repeats import FEWEST_OF_GATE


@Parameter(name="*", group=GATES)
@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Conditions that a run has to meet.

    Parameters
    ----------
    fail_if
        Exit with 5 if so, with 6 if undecided: 'ready_seconds > 30s', 'iops < 400', or with
        --baseline 'time > +10%'; repeatable
    baseline
        Run to compare with, or a file of `pagecage compare --save-baseline`
    include
        Count trials that this verdict alone excludes, such as host_quiet
    """

    fail_if: FailIf = None
    baseline: Annotated[str | None, Parameter(metavar="RUN")] = None
    include: Include = None

    @property
    def is_given(self) -> bool:
        return self.baseline is not None or bool(self.fail_if)

    def check(self, repeats: int | None = None) -> None:
        """Raise PagecageError for wrong gates, and for a baseline that lacks their responses.

        With `repeats`, also if these are too few for a decision.
        """
        if self.include and not self.is_given:
            raise PagecageError(
                "--include needs a --baseline or a --fail-if", "--baseline RUN, or remove --include"
            )
        if self.is_given:
            baseline = self._baseline()
            with analysing():
                from analysis import results

                results.check_gates(baseline, self.fail_if or ())
        if self.fail_if and repeats is not None and repeats < FEWEST_OF_GATE:
            raise PagecageError(
                f"a gate needs {FEWEST_OF_GATE} repeats to show their spread, and there would be"
                f" {repeats}",
                f"--repeats {FEWEST_OF_GATE}",
            )

    def _baseline(self) -> Path | None:
        return None if self.baseline is None else run_or_baseline(self.baseline)

    def refuse_on_group(self) -> None:
        if self.is_given:
            message = "--baseline and --fail-if apply to one host, and this run is on a group"
            raise PagecageError(message, "pagecage compare BASELINE RUN/hosts/HOST")

    def judge(self, run: Path, *, to_stderr: bool) -> int:
        """Print the verdicts on a finished run; return the gates' exit status."""
        if not self.is_given:
            return EXIT_OK
        out = sys.stderr if to_stderr else sys.stdout
        paths = [*([baseline] if (baseline := self._baseline()) else []), run]
        return _compare(paths, self.fail_if, self.include, out=out)


def _compare(
    paths: Sequence[Path],
    fail_if: list[str] | None,
    include: list[str] | None,
    form: str = "",
    *,
    anyway: bool = False,
    html: Path | None = None,
    out: TextIO | None = None,
) -> int:
    """Print the comparison of runs with the first, or the verdicts on a single one."""
    page = html and html.resolve()
    with analysing("comparison"):
        from analysis import results

        if len(paths) == 1:
            text, status = results.judged(paths[0], fail_if or (), include or (), form)
        else:
            text, status = results.compared(
                paths,
                fail_if or (),
                include or (),
                form or terminal_form(),
                anyway=anyway,
                html=page,
            )
    print(text, end="", file=out)
    return status


def run_or_baseline(name: str) -> Path:
    from pagecage.runner.run_folder import find_run, path_exists, run_paths

    path = Path(name)
    # `pagecage init -- ./server` names the experiment after a file of the folder.
    is_run = any(path_exists(place / "plan.json") for place in run_paths(RUNS, name))
    if not is_run and path_exists(path) and path.is_file():
        return path.resolve()
    return find_run(RUNS, name).path


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """Options of a run that is saved to compare later ones with.

    Parameters
    ----------
    save_baseline
        Save the run's figures to this file, without raw samples and names, to be committed
    response
        Further response to save; the main ones, bytes, I/Os and faults are saved
    force
        Overwrite the file of --save-baseline
    """

    save_baseline: NewFile | None = None
    response: Annotated[list[str] | None, Parameter(metavar="NAME")] = None
    force: bool = False

    def save(self, name: str, target: Path, include: list[str] | None) -> int:
        from pagecage.runner.run_folder import find_run

        run = find_run(RUNS, name)
        if target.exists() and not self.force:
            raise PagecageError(f"{target} exists", "name another file, or add --force")
        file = target.resolve()
        with analysing():
            from analysis import results

            results.save_baseline(run.path, file, self.response or (), include or ())
        notify(f"saved: {os.path.relpath(target)}")
        return EXIT_OK


def compare(
    first: str,
    /,
    *others: str,
    fail_if: FailIf = None,
    include: Include = None,
    anyway: bool = False,
    html: NewFile | None = None,
    baseline: BaselineOptions = BaselineOptions(),
    output_format: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
) -> int:
    """Compare runs, judge one by gates, or save a baseline.

    Parameters
    ----------
    first
        Run to compare with (id, path or experiment's name), or file of --save-baseline
    others
        Runs to compare; none with --save-baseline, and with gates that have bounds
    fail_if
        Exit with 5 if so, with 6 if undecided: 'read_seconds > +10%', 'iops < 400'; repeatable
    include
        Include an excluded trial, by name: r3_tenth_random, or B:r3_tenth_random in the second
        run only. Or a verdict such as host_quiet, for all trials excluded by it alone
    anyway
        Compare runs that are not comparable, with a warning
    html
        Write a page with the tables and a figure of the ratios
    """
    if (target := baseline.save_baseline) is not None:
        if others or fail_if:
            raise PagecageError("--save-baseline saves one run and judges none", "remove the rest")
        return baseline.save(first, target, include)
    for option in given_options(baseline):
        raise PagecageError(f"{option} applies only to --save-baseline", f"remove {option}")
    if not others and (not fail_if or html):
        hint = "pagecage compare FIRST SECOND"
        raise PagecageError("there is no second run to compare with", hint)
    paths = [run_or_baseline(name) for name in (first, *others)]
    return _compare(paths, fail_if, include, output_format.form(), anyway=anyway, html=html)


def history(
    name: str,
    /,
    *older: str,
    response: Annotated[str | None, Parameter(metavar="NAME")] = None,
    last: Positive = 50,
    fail_if: Annotated[str | None, Parameter(metavar="CONDITION")] = None,
    html: NewFile | None = None,
    output_format: OutputFormat = OutputFormat(),  # noqa: B008 - frozen
) -> int:
    """Show how a figure changed from run to run.

    Runs that are not comparable with the newest one are left out. A change of level is proven if at
    least three runs on each side show it.

    Parameters
    ----------
    name
        Experiment, for its runs; or a run or baseline
    older
        Further runs or baselines
    response
        Response to follow; by default the experiment's
    last
        Number of the newest runs to read
    fail_if
        Exit with 5 if the newest change of level is such, with 6 if that is undecided
    html
        Write a page with a figure
    """
    if response and fail_if:
        raise PagecageError(
            "--response and --fail-if are mutually exclusive", "a condition names its response"
        )
    made = sorted(RUNS.glob(f"*Z-{name}-*"), reverse=True)
    newest = [path for path in made if (path / "records.jsonl").exists()][:last]
    paths = [*(newest or [run_or_baseline(name)]), *map(run_or_baseline, older)]
    return _follow(paths, response, fail_if, output_format.form() or terminal_form(), html)


def _follow(
    paths: list[Path], response: str | None, fail_if: str | None, form: str, html: Path | None
) -> int:
    notify(f"reading {len(paths)} runs ...")
    page = html and html.resolve()
    with analysing():
        from analysis import results

        text, status = results.followed(paths, response, fail_if, form, page)
    print(text, end="")
    return status
