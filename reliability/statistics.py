"""Measurement of the statistics: `python -m reliability.statistics [--before COMMIT]`.

The first form measures the present rules, the second one those of an earlier commit with the same
samples. Either stores its results and writes docs/TRUST.md.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scipy.stats import mannwhitneyu

from analysis.cells import noise_of
from analysis.comparison import change_word
from analysis.stats import FEWEST, MedianSummary, evaluate_gate, median_ratio, parse_gate, summarise
from pagecage.process import run
from pagecage.report.model import markdown_table
from reliability.campaign import RESULTS, measured_with, tell, write_page
from tests.tree import ROOT

Draw = Callable[[random.Random], float]
_LONG_TAIL = 0.05


def normal(spread: float) -> Draw:
    """Return a bell around 1."""
    return lambda source: source.gauss(1, spread)


def skewed(spread: float) -> Draw:
    """Return a log-normal distribution with the median 1, whose tail is on the right."""
    return lambda source: source.lognormvariate(0, spread)


def two_peaked(spread: float) -> Draw:
    """Return peaks at 1 and 1.3 with 60 and 40 % of the values: a cache that is warm or not."""
    return lambda source: source.gauss(1.0 if source.random() < 0.6 else 1.3, spread)


def long_tailed(spread: float) -> Draw:
    """Return a bell of which one value in 20 takes 1.5 to 4 times as long."""

    def draw(source: random.Random) -> float:
        value = source.gauss(1, spread)
        return value * source.uniform(1.5, 4) if source.random() < _LONG_TAIL else value

    return draw


SHAPES: Mapping[str, Draw] = {
    "normal, 2 %": normal(0.02),
    "normal, 10 %": normal(0.10),
    "skewed, 20 %": skewed(0.20),
    "two peaks": two_peaked(0.02),
    "long tail": long_tailed(0.03),
}
"""Shapes that times were seen to have, by name."""

Host = Callable[[random.Random, int], list[float]]
"""A function that returns by what factor a host is slower at each of so many trials in a row."""


def steady(source: random.Random, trials: int) -> list[float]:
    return [1.0] * trials


def sloping(source: random.Random, trials: int) -> list[float]:
    """Return a host that is slower by 1 % at each trial."""
    return [1 + 0.01 * place for place in range(trials)]


def state_per_block(source: random.Random, trials: int) -> list[float]:
    """Return a host that starts anew before each two trials, and is then a fifth slower or not."""
    factors = (source.choice((1.0, 1.2)) for _ in range(0, trials, 2))
    return [factor for factor in factors for _ in range(2)]


def two_states(source: random.Random, trials: int) -> list[float]:
    """Return a host that is a fifth slower in one of two states, which one trial in ten ends."""
    factors, is_slow = [], source.random() < 0.5
    for _ in range(trials):
        is_slow ^= source.random() < 0.1
        factors.append(1.2 if is_slow else 1.0)
    return factors


HOSTS: Mapping[str, Host] = {
    "none": steady,
    "1 % a trial": sloping,
    "a state per block": state_per_block,
    "two states": two_states,
}
"""Hosts by how they drift."""


REPEATS = (3, 5, 10, 30)
SLOWDOWNS = (1.02, 1.05, 1.10, 1.20)
BLOCKS = (5, 10, 30)
"""Repeats of two treatments of one run. With fewer, blocks are not compared."""
SLOWDOWNS_WITHIN = (1.02, 1.05, 1.10)
GATE = parse_gate("read_seconds > +5%")
_LEVEL = 0.05
_POPULATION = 200_001
_NOISE = normal(0.02)
Sample = list[float]


@dataclass(frozen=True)
class Alarms:
    """Pairs of samples of one kind of noise, and how many of them a comparison calls different.

    `slowdown` is what the second sample was multiplied by. `gate_failed` counts the pairs for which
    a gate at +5 % fails. `test_higher` and `test_lower` count those of which scipy's test of Mann
    and Whitney (two-sided, 5 %) says so.
    """

    noise: str
    repeats: int
    slowdown: float
    pairs: int
    higher: int
    lower: int
    gate_failed: int
    test_higher: int
    test_lower: int


def compare_pairs(
    shapes: Mapping[str, Draw],
    pairs: int,
    seed: int,
    slowdown: float = 1.0,
    repeats: Sequence[int] = REPEATS,
) -> Iterator[Alarms]:
    """Yield the alarms of samples of two runs, by shape and number of repeats."""
    for shape, draw in shapes.items():
        for count in repeats:
            source = random.Random(f"{seed} {shape} {count} {slowdown}")
            drawn = [
                (
                    [draw(source) for _ in range(count)],
                    [draw(source) * slowdown for _ in range(count)],
                )
                for _ in range(pairs)
            ]
            judged = [_judge(first, second) for first, second in drawn]
            words, gates = [word for word, _ in judged], [gate for _, gate in judged]
            yield Alarms(
                shape,
                count,
                slowdown,
                pairs,
                words.count("higher"),
                words.count("lower"),
                gates.count("failed"),
                *_tested(drawn),
            )


def _judge(first: Sample, second: Sample) -> tuple[str, str]:
    floors = [floor for floor in map(noise_of, (first, second)) if floor]
    floor = max(floors, key=lambda one: one.share, default=None)
    ratio = median_ratio(second, first)
    gate, _ = evaluate_gate(GATE, ratio, floor.share if floor else 0.0)
    return change_word(ratio, floor), gate


def _tested(drawn: Sequence[tuple[Sample, Sample]]) -> tuple[int, int]:
    first, second = ([pair[side] for pair in drawn] for side in (0, 1))
    found = mannwhitneyu(second, first, axis=1, method="exact")
    is_more = found.statistic > len(first[0]) * len(second[0]) / 2
    differs = found.pvalue <= _LEVEL
    return int((differs & is_more).sum()), int((differs & ~is_more).sum())


Compare = Callable[[Sample, Sample], MedianSummary]
"""The ratio of the second treatment's figures to the first's, each in the order of the blocks."""


def in_blocks(first: Sample, second: Sample) -> MedianSummary:
    from analysis.stats import blocked_ratio

    return blocked_ratio([second, first], list(zip(second, first, strict=True)))


def without_blocks(first: Sample, second: Sample) -> MedianSummary:
    """Compare as reports did before, without the blocks."""
    return median_ratio(second, first)


def compare_treatments(
    hosts: Mapping[str, Host],
    pairs: int,
    seed: int,
    slowdown: float = 1.0,
    repeats: Sequence[int] = BLOCKS,
    compare: Compare = in_blocks,
) -> Iterator[Alarms]:
    """Yield the alarms of two treatments of one run, by host and number of blocks.

    A treatment differs if the interval does not contain 1, which is the rule for claims.
    """
    for name, host in hosts.items():
        for count in repeats:
            source = random.Random(f"{seed} {name} {count} {slowdown}")
            drawn = [_run(source, host, count, slowdown) for _ in range(pairs)]
            ratios = [compare(first, second) for first, second in drawn]
            higher = sum(ratio.low > 1 for ratio in ratios)
            lower = sum(ratio.high < 1 for ratio in ratios)
            yield Alarms(name, count, slowdown, pairs, higher, lower, 0, *_tested(drawn))


def _run(source: random.Random, host: Host, blocks: int, slowdown: float) -> tuple[Sample, Sample]:
    factors = host(source, 2 * blocks)
    sides: tuple[Sample, Sample] = [], []
    for block in range(blocks):
        for place, side in enumerate(source.sample((0, 1), 2)):
            figure = _NOISE(source) * factors[2 * block + place]
            sides[side].append(figure * slowdown if side else figure)
    return sides


@dataclass(frozen=True)
class Coverage:
    """The number of intervals around a median that contain the median of the distribution.

    `kind` is the name that a table gives the interval, `95 %` or `range`.
    """

    noise: str
    repeats: int
    kind: str
    intervals: int
    covering: int
    ratios_covering: int


def cover(
    shapes: Mapping[str, Draw], count: int, seed: int, repeats: Sequence[int] = REPEATS
) -> Iterator[Coverage]:
    """Yield the coverage of intervals of medians, and of ratios of two equal distributions."""
    for shape, draw in shapes.items():
        truth = median(draw(random.Random(f"{seed} {n}")) for n in range(_POPULATION))
        for size in repeats:
            source = random.Random(f"{seed} {shape} {size} coverage")
            samples = [[draw(source) for _ in range(size)] for _ in range(count)]
            summaries = [summarise(sample) for sample in samples]
            ratios = (
                median_ratio(one, other)
                for one, other in zip(samples[::2], samples[1::2], strict=True)
            )
            yield Coverage(
                shape,
                size,
                summaries[0].kind,
                count,
                sum(one.low <= truth <= one.high for one in summaries),
                sum(one.low <= 1 <= one.high for one in ratios),
            )


def as_json(rows: Iterator[Any]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


NOW, BEFORE = "statistics.json", "statistics-before.json"
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

    def text(part: Any) -> str:
        if not isinstance(part, list):
            return json.dumps(part)
        return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in part) + "\n ]"

    parts = (f" {json.dumps(key)}: {text(part)}" for key, part in found.items())
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


Row = Mapping[str, Any]
Share = Callable[[Row], float]
_ALARMS = """Pairs of samples from equal distributions were compared by the method of `pagecage
compare` for two runs. The distributions are {kinds}. A cell has the least and the greatest share
over the distributions, in %: first by the rule of commit `{commit}`, then by the present rule. An
interval of a median should contain the distribution's median; an interval of a ratio should contain
1. An interval of fewer than six values is called `range`, and has no confidence level.
"""
_POWER = """The second sample was made slower. A cell has the share of pairs that is called higher,
in %, as the median over the distributions: by the earlier rule, by the present rule, and in
brackets by the test of Mann and Whitney (two-sided, 5 %, exact, by scipy). From {fewest} repeats
on, the present rule finds {least:+.1f} to {most:+.1f} points more than the test.
"""
_WITHIN = """Two treatments of one run are compared by the differences within its blocks. A block
has a trial of each treatment, in random order, with noise of 2 %. A cell has the share that is
called higher if the second treatment is {slowdown} slower, in the notation above. The test of Mann
and Whitney does not use the blocks. For equal treatments, {least:.1f} to {most:.1f} % are called
different.
"""


def statistics_summary(results: Path) -> Iterator[str]:
    """Yield the summary of false alarms and power."""
    now, _ = _read(results)
    equal = [_different(row) for row in _trusted(now["between"], 1)]
    least, most = _beyond_the_test(now["between"])
    yield (
        f"**Comparisons** call {min(equal):.1f} to {max(equal):.1f} % of equal runs different, from"
        f" {FEWEST} repeats on, and find {least:+.1f} to {most:+.1f} points more slow-downs than"
        " the test of Mann and Whitney."
    )


def statistics_sections(results: Path) -> Iterator[str]:
    now, before = _read(results)
    between = now["between"]
    kinds = ", ".join(dict.fromkeys(f"`{row['noise']}`" for row in between))
    yield "## False alarms\n"
    yield _ALARMS.format(kinds=kinds, commit=before["commit"])
    parts: Mapping[str, tuple[str, float | None, Share]] = {
        "called different": ("between", 1, _different),
        "a gate `> +5%` fails": ("between", 1, _gate_failed),
        "medians in their interval": ("coverage", None, _covering),
        "ratios in their interval": ("coverage", None, _ratios_covering),
    }
    counts = sorted({row["repeats"] for row in now["between"]})
    rows = []
    for title, (part, slowdown, share) in parts.items():
        sides = [_of(found[part], slowdown) for found in (before, now)]
        cells = [" → ".join(_range(side, share, count) for side in sides) for count in counts]
        rows.append([title, *cells])
    yield markdown_table(["", *(f"{count} repeats" for count in counts)], rows)
    yield "## Slow-downs that are found\n"
    least, most = _beyond_the_test(between)
    yield _POWER.format(fewest=FEWEST, least=least, most=most)
    slowdowns = sorted({row["slowdown"] for row in between} - {1})
    yield _power(between, before["between"], {f"{one - 1:+.0%}": one for one in slowdowns})
    yield "## Treatments of one run on a host that drifts\n"
    equal = [_different(row) for row in _of(now["within"], 1)]
    yield _WITHIN.format(slowdown=f"{_DRIFTING - 1:.0%}", least=min(equal), most=max(equal))
    yield _drifts(now["within"], before["within"])


_DRIFTING = 1.05


def _read(results: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    now, before = (json.loads((results / name).read_text()) for name in (NOW, BEFORE))
    return now, before


def _of(rows: Sequence[Row], slowdown: float | None) -> list[Row]:
    return [row for row in rows if row.get("slowdown") == slowdown]


def _trusted(rows: Sequence[Row], slowdown: float) -> list[Row]:
    return [row for row in _of(rows, slowdown) if row["repeats"] >= FEWEST]


def _percent(*keys: str, of: str = "pairs", times: int = 1) -> Share:
    """Return the share of these counts of a row, in percent."""
    return lambda row: 100 * times * sum(float(row[key]) for key in keys) / float(row[of])


_different, _higher = _percent("higher", "lower"), _percent("higher")
_test_higher, _gate_failed = _percent("test_higher"), _percent("gate_failed")
_covering = _percent("covering", of="intervals")
_ratios_covering = _percent("ratios_covering", of="intervals", times=2)


def _beyond_the_test(rows: Sequence[Row]) -> tuple[float, float]:
    """Return by how many points the present rule finds more than the test, at least and at most."""
    trusted = [row for row in rows if row["slowdown"] > 1 and row["repeats"] >= FEWEST]
    found = [_higher(row) - _test_higher(row) for row in trusted]
    return min(found), max(found)


def _range(rows: Sequence[Row], share: Share, repeats: int) -> str:
    found = [share(row) for row in rows if row["repeats"] == repeats]
    return f"{min(found):.1f} to {max(found):.1f}"


def _power(now: Sequence[Row], before: Sequence[Row], slowdowns: Mapping[str, float]) -> str:
    counts = sorted({row["repeats"] for row in now})
    rows = [
        [title, *(_shares(_of(now, one), _of(before, one), {"repeats": count}) for count in counts)]
        for title, one in slowdowns.items()
    ]
    return markdown_table(["slower by", *(f"{count} repeats" for count in counts)], rows)


def _drifts(now: Sequence[Row], before: Sequence[Row]) -> str:
    sides = _of(now, _DRIFTING), _of(before, _DRIFTING)
    counts = sorted({row["repeats"] for row in now})
    rows = [
        [name, *(_shares(*sides, {"noise": name, "repeats": count}) for count in counts)]
        for name in dict.fromkeys(row["noise"] for row in now)
    ]
    return markdown_table(["the host drifts by", *(f"{count} repeats" for count in counts)], rows)


def _shares(now: Sequence[Row], before: Sequence[Row], wanted: Mapping[str, Any]) -> str:
    """Return the median shares before and now, and that of the test, of the rows with a value."""
    present, earlier = (
        [row for row in rows if all(row[key] == value for key, value in wanted.items())]
        for rows in (now, before)
    )
    figures = [median(map(_higher, earlier)), median(map(_higher, present))]
    return f"{figures[0]:.1f} → {figures[1]:.1f} ({median(map(_test_higher, present)):.1f})"


if __name__ == "__main__":
    main(sys.argv[1:])
