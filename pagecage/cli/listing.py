"""`pagecage list`: the experiments."""

from __future__ import annotations

import json

from pagecage.checkout import PROJECT, TOP
from pagecage.cli.output import Json
from pagecage.definitions.experiment import Experiment
from pagecage.errors import EXIT_OK
from pagecage.model.json_codec import JsonView
from pagecage.planning.options import definitions
from pagecage.planning.plan import selected
from pagecage.planning.size import LOAD_SECONDS, expected_trial_seconds
from pagecage.terminal import notify
from pagecage.units import format_seconds


def list_experiments(*, as_json: Json = False) -> int:
    """List the experiments with their questions."""
    defined = definitions()
    custom = defined.experiments.own_names()
    names = [*custom, *(name for name in defined.experiment_names() if name not in custom)]
    rows = [_summary_row(defined.experiment(name), name in custom) for name in names]
    if as_json:
        print(json.dumps(rows))
        return EXIT_OK
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        origin = f"{row['origin']:<8} " if custom else ""
        print(
            f"{origin}{row['name']:<{width}} {row['treatments']:>3} treatments, {row['about']:<14}"
            f" {row['question']}"
        )
    if PROJECT not in (None, TOP) and not custom:
        notify(f"{PROJECT} defines no experiments\n  fix: pagecage init -- COMMAND makes one")
    return EXIT_OK


def _summary_row(experiment: Experiment, is_custom: bool) -> JsonView:
    count = len(selected(experiment, "emulated"))
    size = experiment.sizes["emulated"]
    load_seconds = LOAD_SECONDS if experiment.workload.kind == "service" else 0.0
    trial_seconds = expected_trial_seconds(size.max_seconds, load_seconds=load_seconds)
    seconds = count * (size.repeats or experiment.repeats) * trial_seconds
    return {
        "name": experiment.name,
        "origin": "project" if is_custom else "pagecage",
        "question": experiment.question,
        "treatments": count,
        "factors": {name: list(levels) for name, levels in experiment.factors.items()},
        "about": f"about {format_seconds(seconds)}",
        "expected_seconds": seconds,
    }
