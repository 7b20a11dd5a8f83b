"""`pagecage predict`: the time or rate of a run on another volume."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Annotated, Any

from cyclopts import Parameter

from pagecage.cli.cage_choice import cage_options, offers
from pagecage.cli.options import CandidateOptions, Duration, Positive, Treatments
from pagecage.cli.output import COMMON, Json
from pagecage.cli.predict_page import (
    Goal,
    ServiceRate,
    SourceTrial,
    TreatmentPrediction,
    TreatmentSource,
    show,
    stored_treatments,
)
from pagecage.cli.run_plan import parse_treatment
from pagecage.cloud.catalogue import offered_providers
from pagecage.cloud.comparison import ANSWERS, VolumeQuestion, compare_instances, compare_volumes
from pagecage.cloud.prediction import COVERED, VolumePrediction, greatest_published_us
from pagecage.cloud.volume_request import parse_throughput
from pagecage.errors import EXIT_GATE_FAILED, EXIT_GATE_UNDECIDED, EXIT_OK, PagecageError
from pagecage.units import parse_size_bytes


def predict(
    name: str,
    /,
    *,
    under: Duration | None = None,
    at_least: Annotated[Positive | None, Parameter(metavar="RATE")] = None,
    treatment: Annotated[Treatments, Parameter(group=COMMON)] = (),
    options: CandidateOptions = CandidateOptions(),  # noqa: B008 - frozen
    as_json: Json = False,
) -> int:
    """Predict the time of a stored run on cloud volumes.

    The table has the time of each volume as a range, and the limit that would bind; for a service,
    its rate. With --under or --at-least it has the smallest size and rates that are enough; the
    exit status is 5 if nothing is, and 6 if that is not certain.

    Parameters
    ----------
    name
        Run: id, path, an experiment's name for its newest run, or a bundle
    under
        Target, for example 2min or 90s
    at_least
        Target of a service, in the unit of its rate, for example 500
    treatment
        Only treatments with this level; by default all that allow a prediction
    """
    question = _question(options)
    goal = Goal(under, at_least)
    stored = stored_treatments(name, parse_treatment(treatment))
    predictions = [_prediction(one, question, goal) for one in stored.treatments]
    _require_rows(predictions, stored.run_id, name)
    if as_json:
        print(json.dumps(_to_json(stored.run_id, predictions, question, goal)))
    else:
        show(stored.run_id, predictions)
    return _exit_code(predictions) if goal.is_set else EXIT_OK


def _question(options: CandidateOptions) -> VolumeQuestion:
    catalogue = offers()
    providers = offered_providers(catalogue, options.provider)
    if options.throughput is not None:
        parse_throughput(options.throughput, providers[0].types[0])
    return VolumeQuestion(
        providers,
        cage_options(options),
        greatest_published_us(catalogue),
        options.type or "",
        options.instance,
        None if options.size is None else parse_size_bytes(options.size, "--size"),
        None if options.iops is None else Fraction(options.iops),
        options.throughput,
    )


def _prediction(
    treatment: TreatmentSource, question: VolumeQuestion, goal: Goal
) -> TreatmentPrediction:
    if treatment.source is None:
        return TreatmentPrediction(treatment)
    demand, files = treatment.source.demand, treatment.source.record.cache.file_bytes
    seconds = goal.seconds_for(treatment.source.rate)
    asked = replace(question, least_bytes=files or 0, under_seconds=seconds)
    rows, left_out = compare_volumes(demand, asked)
    instances = compare_instances(demand, asked) if question.instance is None else []
    return TreatmentPrediction(treatment, tuple(rows), tuple(instances), tuple(left_out), seconds)


def _require_rows(predictions: Sequence[TreatmentPrediction], run_id: str, name: str) -> None:
    if any(one.rows for one in predictions):
        return
    for one in predictions:
        for left_out in one.left_out:
            raise PagecageError(left_out.reason, left_out.hint)
    reason = predictions[0].treatment.reason
    raise PagecageError(f"{run_id} allows no prediction: {reason}", f"pagecage show {name}")


def _exit_code(predictions: Sequence[TreatmentPrediction]) -> int:
    best = [
        min(ANSWERS.index(row.answer or "no") for row in one.rows)
        for one in predictions
        if one.rows
    ]
    worst = max(best)
    if worst == ANSWERS.index("no"):
        return EXIT_GATE_FAILED
    return EXIT_OK if worst == 0 else EXIT_GATE_UNDECIDED


def _to_json(
    run_id: str, predictions: Sequence[TreatmentPrediction], question: VolumeQuestion, goal: Goal
) -> dict[str, Any]:
    """Return the predictions as plain data (docs/FORMAT.md)."""
    return {
        "run_id": run_id,
        "under_seconds": goal.under_seconds,
        "at_least": goal.at_least,
        "start": question.options.start,
        "scale": float(question.options.scale),
        "range_coverage": COVERED,
        "treatments": [
            {
                "treatment": dict(one.treatment.levels),
                "reason": one.treatment.reason or None,
                "source": one.treatment.source and _source_to_json(one.treatment.source),
                **_rows_to_json(one),
                "left_out": [asdict(left_out) for left_out in one.left_out],
            }
            for one in predictions
        ],
    }


def _source_to_json(source: SourceTrial) -> dict[str, Any]:
    rate, demand = source.rate, source.demand
    return {
        "trial_id": source.record.trial_id,
        "seconds": source.seconds,
        "rate": rate and {"name": rate.name, "value": rate.value},
        "trials": source.count,
        "is_counted": source.is_counted,
        "emulated": source.record.emulated,
        "free_seconds": demand.free_seconds,
        "capped_share": demand.capped_share,
        "latency_seconds": demand.latency_seconds,
        "depth": demand.depth,
    }


def _rows_to_json(one: TreatmentPrediction) -> dict[str, Any]:
    volumes = [
        {
            "name": row.kind.name,
            "volume": row.profile.volume and asdict(row.profile.volume),
            "latency_seconds": asdict(row.latency),
            **_times_to_json(row.prediction, one.rate),
            "answer": row.answer,
        }
        for row in one.rows
    ]
    instances = [
        {
            "provider": row.provider,
            "names": list(row.names),
            "types": list(row.types),
            **_times_to_json(row.prediction, one.rate),
            "answer": row.answer,
        }
        for row in one.instances
    ]
    return {"volumes": volumes, "instances": instances}


def _times_to_json(found: VolumePrediction, rate: ServiceRate | None) -> dict[str, Any]:
    return {
        "seconds": found.seconds,
        "rate": None if rate is None else rate.within(found.seconds),
        "low": found.low,
        "high": found.high,
        "bound_by": {"limit": found.cause.limit, "by": found.cause.by or None},
        "share": found.share,
        "held_share": found.held_share,
        "drained": [
            {"limit": cause.limit, "by": cause.by or None, "after_seconds": seconds}
            for cause, seconds in found.drained.items()
        ],
    }
