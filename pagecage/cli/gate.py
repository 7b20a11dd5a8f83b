"""Gates: comparison of a finished run with a baseline, and its exit status."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import RUNS
from pagecage.cli.analyse import analyse, repeated
from pagecage.errors import (
    EXIT_GATE_FAILED,
    EXIT_GATE_UNDECIDED,
    EXIT_OK,
    PagecageError,
)
from pagecage.runner.run_folder import find_run, path_exists

GATE_STATUSES = (EXIT_OK, EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED)
FailIf = Annotated[list[str] | None, Parameter(metavar="CONDITION")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Options of a run that is compared with an earlier one.

    Parameters
    ----------
    baseline
        Compare with this run, or with a file of `pagecage baseline save`
    fail_if
        Exit with 5 if a response changed so, with 6 if it cannot be decided; for example
        'device_read_bytes > +5%'
    include
        Compare excluded trials too: host_quiet includes those that only other work on the host
        excludes, which changes no bytes that the program reads
    """

    baseline: Annotated[str | None, Parameter(metavar="RUN")] = None
    fail_if: FailIf = None
    include: Annotated[list[str] | None, Parameter(metavar="NAME")] = None

    def checked(self) -> Path | None:
        """Return the path of the baseline, or None without one.

        Raises PagecageError for a baseline that cannot be read, and for a gate that is none or that
        names a response which the baseline lacks.
        """
        if self.baseline is None:
            for option, values in (("--fail-if", self.fail_if), ("--include", self.include)):
                if values:
                    raise PagecageError(f"{option} needs a --baseline", "--baseline RUN")
            return None
        path = run_or_baseline(self.baseline)
        analyse("gates", path, *repeated("--fail-if", self.fail_if))
        return path

    def refuse_on_group(self) -> None:
        """Raise PagecageError if there is a baseline, which is of one host."""
        if self.baseline is not None:
            message = "--baseline applies to one host, and this run is on a group"
            raise PagecageError(message, "pagecage compare BASELINE RUN/hosts/HOST")


def run_or_baseline(name: str) -> Path:
    """Return the folder of a run, or the path of a baseline file."""
    path = Path(name)
    if path_exists(path) and path.is_file():
        return path.resolve()
    return find_run(RUNS, name).path


def judge(baseline: Path, run: Path, gate: GateOptions, *, to_stderr: bool) -> int:
    """Print the comparison of a run with its baseline; return the gates' exit status.

    Raises PagecageError if the two are not comparable.
    """
    words = [*repeated("--fail-if", gate.fail_if), *repeated("--include", gate.include)]
    done = analyse("compare", baseline, run, *words, accepted=GATE_STATUSES)
    print(done.stdout, end="", file=sys.stderr if to_stderr else sys.stdout)
    return done.status
