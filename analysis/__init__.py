"""Results of runs in any notebook: `import analysis as pa; run = pa.load("runs/latest-smoke")`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.views.notebook import Results


def load(run_dir: str | Path, include: Sequence[str] = ()) -> Results:
    """Load a run; `include` names excluded trials, or verdicts, to include.

    Raises PagecageError if `run_dir` is not a run folder or has no record, and for a name that
    selects no excluded trial.
    """
    from analysis.views.notebook import Results  # late: it imports pandas and matplotlib

    return Results(run_dir, include)
