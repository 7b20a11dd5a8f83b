"""Variation of real figures between repeats, and the verdicts of gates on them.

`python -m reliability.variation RUN...` reads runs with many repeats of each treatment, stores
their figures in docs/trust/variation.json, and writes the page. The pairs of a treatment are drawn
from its own repeats: three trials against three others.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from analysis.cells import included_values, noise_of, treatments
from analysis.data.load import Run, Treatment, load_run
from analysis.formatting import treatment_label
from analysis.stats import evaluate_gate, median_ratio, parse_gate
from pagecage.checkout import RUNS
from pagecage.report.model import markdown_table
from pagecage.runner.run_folder import find_run
from reliability.campaign import RESULTS, read_results, write_results

COUNTS = ("device_read_bytes", "device_reads", "major_faults")
REPEATS, PAIRS, REGRESSION = 3, 100, 1.2
FEWEST = 4 * REPEATS
"""Trials of a treatment, below which the pairs are too much alike."""
STORED = "variation.json"
_SEED = 20261123
_NAMES = {"device_read_bytes": "bytes", "device_reads": "I/Os", "major_faults": "faults"}


@dataclass(frozen=True)
class Variation:
    """A response of one treatment, over its repeats.

    `spread` is the range of the middle 95 % of the trials over their median. The rest counts the
    verdicts of the gate `> +5%` over pairs of equal samples (`alarms`, `undecided`), and over pairs
    of which the second was made 20 % larger (`found`).
    """

    experiment: str
    emulated: bool
    treatment: str
    response: str
    trials: int
    median: float
    spread: float
    pairs: int
    alarms: int
    undecided: int
    found: int


def variations(run: Run) -> Iterator[Variation]:
    """Yield the variation of each response of a run's treatments with enough included trials."""
    for treatment in treatments(run):
        for response in (*COUNTS, run.response):
            values = included_values(run, treatment, response)
            if len(values) >= FEWEST and min(values) > 0:
                yield _variation(run, treatment, response, values)


def _variation(run: Run, treatment: Treatment, response: str, values: Sequence[float]) -> Variation:
    source = random.Random(f"{_SEED} {treatment} {response}")
    pairs = [_pair(source, values) for _ in range(PAIRS)]
    equal = [_verdict(response, first, second) for first, second in pairs]
    larger = [
        _verdict(response, first, [value * REGRESSION for value in second])
        for first, second in pairs
    ]
    ordered = sorted(values)
    left_out = int(len(ordered) * 0.025)
    return Variation(
        experiment=run.plan["experiment"],
        emulated=run.is_emulated,
        treatment=treatment_label(treatment),
        response=response,
        trials=len(values),
        median=median(values),
        spread=(ordered[-1 - left_out] - ordered[left_out]) / median(values),
        pairs=PAIRS,
        alarms=equal.count("failed"),
        undecided=equal.count("undecided"),
        found=larger.count("failed"),
    )


def _pair(source: random.Random, values: Sequence[float]) -> tuple[list[float], list[float]]:
    drawn = source.sample(list(values), 2 * REPEATS)
    return drawn[:REPEATS], drawn[REPEATS:]


def _verdict(response: str, first: Sequence[float], second: Sequence[float]) -> str:
    floors = [floor.share for floor in map(noise_of, (first, second)) if floor]
    gate = parse_gate(f"{response} > +5%")
    verdict, _ = evaluate_gate(gate, median_ratio(second, first), max(floors, default=0.0))
    return verdict


def variation_section(results: Path) -> Iterator[str]:
    rows = read_results(results / STORED)["variations"]
    by_figure: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_figure.setdefault(_NAMES.get(row["response"], "time"), []).append(row)
    yield "## Variation of real trials\n"
    yield (
        "Treatments were run many times in the same state of one host. The spread is that of the"
        f" middle 95 % of the trials, over their median. {PAIRS} pairs of {REPEATS} and {REPEATS}"
        " trials were drawn from each treatment. A gate `> +5%` judged them unchanged, and"
        f" with the second made {100 * (REGRESSION - 1):.0f} % larger.\n"
    )
    head = ["figure", "treatments", "trials", "spread", "false alarms", "undecided", "found"]
    yield markdown_table(head, [_row(name, found) for name, found in by_figure.items()])


_COUNTED = ("alarms", "undecided", "found")


def _row(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    spreads, pairs = [row["spread"] for row in rows], sum(row["pairs"] for row in rows)
    return [
        name,
        str(len(rows)),
        str(sum(row["trials"] for row in rows)),
        f"{100 * min(spreads):.2g} to {100 * max(spreads):.2g} %",
        *(f"{sum(row[key] for row in rows)} of {pairs}" for key in _COUNTED),
    ]


def main(names: Sequence[str]) -> None:
    runs = [load_run(find_run(RUNS, name).path) for name in names]
    found = [asdict(one) for run in runs for one in variations(run)]
    write_results(RESULTS / STORED, {"variations": found})


if __name__ == "__main__":
    main(sys.argv[1:])
