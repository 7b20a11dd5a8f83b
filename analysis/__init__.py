"""Runs as data frames: `import analysis; run = analysis.load("constrained-random")`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from analysis.run_frames import RunFrames


def load(
    source: str | Path, include: Sequence[str] = (), *, bundles: str | Path | None = None
) -> RunFrames:
    """Load a run: its folder, its bundle, its id, or an experiment's name for its newest run.

    Names are looked up among the runs made here, then among the project's stored ones; or in
    `bundles` alone, a folder. `include` names excluded trials, or verdicts, to include. Raises
    PagecageError if there is no such run, if it has no record, and for a name that selects no
    excluded trial.
    """
    from analysis.run_frames import RunFrames  # late: it imports pandas

    return RunFrames(source, include, None if bundles is None else Path(bundles))


def claims(article: str, bundles: str | Path | None = None) -> pd.DataFrame:
    """Return one row per figure that an article published, with the measured one.

    `article` is the first part of the figures' ids, such as `"002"`. The runs are those in the
    folder `bundles`, by default the project's stored ones. Raises PagecageError if there is no such
    article or folder.
    """
    from analysis.run_frames import STORED, article_frame

    return article_frame(article, STORED if bundles is None else Path(bundles))
