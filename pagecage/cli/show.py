"""`pagecage compare`: runs against one another, with a gate for other programs."""

from __future__ import annotations

from pagecage.checkout import RUNS
from pagecage.cli.analyse import analyse
from pagecage.cli.output import Form
from pagecage.cli.paths import NewFile
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_OK

_ANSWERS = (EXIT_OK, EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED)


def compare(
    first: str,
    second: str,
    *more: str,
    fail_if: list[str] | None = None,
    include: list[str] | None = None,
    anyway: bool = False,
    html: NewFile | None = None,
    form: Form = Form(),  # noqa: B008 - frozen
) -> int:
    """Compare runs with the first: ratios with intervals, the noise beside them, and what else differs.

    Parameters
    ----------
    first
        A run's id or path, or an experiment's name for its newest run. The others are held against it.
    second
        Another run.
    more
        Further runs.
    fail_if
        A change that must not be, as 'read_seconds > +10%': exit status 5 where it is, 6 where the figures cannot tell.
    include
        An excluded trial to average in after all, by its name, as r3_tenth_random, or B:r3_tenth_random in one run;
        or a verdict, as host_quiet, for all trials that it alone excludes.
    anyway
        Compare what is not comparable, and say so.
    html
        A page to write, with the tables and a figure of the ratios.
    """
    from pagecage.runner.run_folder import find_run

    folders = [find_run(RUNS, name).path for name in (first, second, *more)]
    page = [f"--html={html.resolve()}"] if html else []
    gates = [f"--fail-if={gate}" for gate in fail_if or ()]
    names = [f"--include={name}" for name in include or ()]
    options = [*gates, *names, *(["--anyway"] if anyway else []), *page, *form.options()]
    done = analyse("compare", *folders, *options, answers=_ANSWERS)
    print(done.stdout, end="")
    return done.status
