"""Measurement of the statistics: `python -m reliability.statistics [--before COMMIT]`.

The first form measures the present rules, the second one those of an earlier commit with the same
samples. Either stores its results and writes docs/TRUST.md.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from pagecage.process import run
from reliability.campaign import RESULTS, measured_with, tell, write_page
from reliability.statistics.comparisons import (
    BLOCKS,
    HOSTS,
    REPEATS,
    SHAPES,
    SLOWDOWNS,
    SLOWDOWNS_WITHIN,
    as_json,
    compare_pairs,
    compare_treatments,
    cover,
    in_blocks,
    without_blocks,
)
from reliability.statistics.section import BEFORE, NOW
from tests.tree import ROOT

SEED = 20261122
PAIRS, SLOWED_PAIRS, INTERVALS = 10_000, 5_000, 2_000
PAIRS_BEFORE, SLOWED_BEFORE, INTERVALS_BEFORE = 1_000, 400, 2_000
"""The earlier rule takes a hundred times as long, and most with many repeats."""
MANY_REPEATS, FEWER = 30, 4
PARTS: Mapping[str, tuple[Iterable[str], Sequence[float], Sequence[int]]] = {
    "between": (SHAPES, (1.0, *SLOWDOWNS), REPEATS),
    "within": (HOSTS, (1.0, *SLOWDOWNS_WITHIN), BLOCKS),
    "coverage": (SHAPES, (1.0,), REPEATS),
}
"""The kinds of noise, the slow-downs and the numbers of repeats of each part."""
Task = tuple[str, str, float, int, bool]


def measure(*, is_before: bool) -> dict[str, Any]:
    """Measure each kind of noise, slow-down and number of repeats on a CPU of its own."""
    tasks: list[Task] = [
        (part, noise, slowdown, count, is_before)
        for part, (kinds, slowdowns, repeats) in PARTS.items()
        for slowdown in slowdowns
        for noise in kinds
        for count in repeats
    ]
    found: dict[str, Any] = {"seed": SEED, "between": [], "within": [], "coverage": []}
    with ProcessPoolExecutor() as pool:
        for task, rows in zip(tasks, pool.map(_measured, tasks), strict=True):
            found[task[0]] += rows
    return found


def _measured(task: Task) -> list[dict[str, Any]]:
    part, noise, slowdown, count, is_before = task
    equal, slowed, intervals = (
        (PAIRS_BEFORE, SLOWED_BEFORE, INTERVALS_BEFORE)
        if is_before
        else (PAIRS, SLOWED_PAIRS, INTERVALS)
    )
    pairs = intervals if part == "coverage" else equal if slowdown == 1 else slowed
    pairs //= FEWER if is_before and count >= MANY_REPEATS else 1
    if part == "coverage":
        return as_json(cover({noise: SHAPES[noise]}, pairs, SEED, [count]))
    if part == "between":
        return as_json(compare_pairs({noise: SHAPES[noise]}, pairs, SEED, slowdown, [count]))
    compare = without_blocks if is_before else in_blocks
    hosts = {noise: HOSTS[noise]}
    return as_json(compare_treatments(hosts, pairs, SEED, slowdown, [count], compare))


def measure_commit(commit: str) -> dict[str, Any]:
    """Measure the rules of a commit: its `analysis` and `pagecage`, in a folder of their own."""
    name = run(["git", "rev-parse", "--short=8", commit], cwd=ROOT).stdout.strip()
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "tree.tar"
        run(["git", "archive", f"--output={archive}", name, "analysis", "pagecage"], cwd=ROOT)
        with tarfile.open(archive) as tree:
            tree.extractall(scratch, filter="data")
        for folder in ("reliability", "tests"):
            (Path(scratch) / folder).symlink_to(ROOT / folder)
        words = [sys.executable, "-m", "reliability.statistics", "--rows"]
        done = run(words, cwd=Path(scratch), env={**os.environ, "PYTHONPATH": scratch})
    return {"commit": name, **json.loads(done.stdout)}


def text_of(found: Mapping[str, Any]) -> str:
    """Return results as JSON with a row per line."""
    parts = [
        f" {json.dumps(key)}: "
        + (
            json.dumps(part)
            if not isinstance(part, list)
            else ("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in part) + "\n ]")
        )
        for key, part in found.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(words: Sequence[str]) -> None:
    if list(words) == ["--rows"]:
        print(json.dumps(measure(is_before=True)))
        return
    tell("comparing samples ...")
    if words:
        (RESULTS / BEFORE).write_text(text_of(measure_commit(words[1])))
    else:
        found = measure(is_before=False)
        (RESULTS / NOW).write_text(text_of({"measured": measured_with(NOW, (), ()), **found}))
    write_page(RESULTS)


if __name__ == "__main__":
    main(sys.argv[1:])
