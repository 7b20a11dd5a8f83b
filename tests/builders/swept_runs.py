"""Records of a sweep."""

from __future__ import annotations

from pathlib import Path

from analysis.data.load import Run, load_run
from pagecage.model.json_codec import Json
from tests.fixtures.runs import DEFINITION, build_run


def swept(tmp_path: Path) -> Run:
    """Return a run of the twelve cells whose patterns are numbers, with latencies."""
    names = {"sequential": "4KiB", "random": "64KiB"}
    definition = {
        **DEFINITION,
        "factors": {**DEFINITION["factors"], "pattern": ["64KiB", "4KiB"]},
        "claims": [],
    }

    def renamed(record: Json) -> None:
        record["treatment"]["pattern"] = names[record["treatment"]["pattern"]]
        if record["response"]:
            record["response"] |= {"beat_p50_us": 60, "beat_p99_us": 400, "beat_p999_us": 2000}

    trials = []
    for place, trial in enumerate(load_run(build_run(tmp_path / "a")).plan["trials"]):
        treatment = {**trial["treatment"], "pattern": names[trial["treatment"]["pattern"]]}
        trials.append({**trial, "treatment": treatment, "position": place})
    return load_run(build_run(tmp_path / "b", renamed, definition=definition, trials=trials))
