"""The predictions of `pagecage predict` as data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pagecage.cli.predict_page import TreatmentPrediction
from pagecage.cli.service_rate import Goal, ServiceRate
from pagecage.cloud.comparison import VolumeQuestion, VolumeRow
from pagecage.cloud.demand_walk import Cause
from pagecage.cloud.instance_comparison import InstanceRow
from pagecage.cloud.run_prediction import COVERED, VolumePrediction


def print_json(
    run_id: str,
    predictions: Sequence[TreatmentPrediction],
    question: VolumeQuestion,
    goal: Goal,
) -> None:
    """Print the predictions as one JSON object (docs/FORMAT.md)."""
    document = {
        "run_id": run_id,
        "under_seconds": goal.under_seconds,
        "at_least": goal.at_least,
        "start": question.options.start,
        "scale": float(question.options.scale),
        "range_coverage": COVERED,
        "treatments": [_treatment(one) for one in predictions],
    }
    print(json.dumps(document))


def _treatment(one: TreatmentPrediction) -> dict[str, Any]:
    source = one.treatment.source
    return {
        "treatment": dict(one.treatment.levels),
        "reason": one.treatment.reason or None,
        "source": None
        if source is None
        else {
            "trial_id": source.record.trial_id,
            "seconds": source.seconds,
            "rate": None
            if source.rate is None
            else {"name": source.rate.name, "value": source.rate.value},
            "trials": source.count,
            "is_counted": source.is_counted,
            "emulated": source.record.emulated,
            "free_seconds": source.demand.free_seconds,
            "capped_share": source.demand.capped_share,
            "latency_seconds": source.demand.latency_seconds,
            "depth": source.demand.depth,
        },
        "volumes": [_volume(row, one.rate) for row in one.rows],
        "instances": [_instance(row, one.rate) for row in one.instances],
        "left_out": [asdict(left_out) for left_out in one.left_out],
    }


def _volume(row: VolumeRow, rate: ServiceRate | None) -> dict[str, Any]:
    volume = row.profile.volume
    return {
        "name": row.kind.name,
        "volume": None if volume is None else asdict(volume),
        "latency_seconds": asdict(row.latency),
        **_times(row.prediction, rate),
        "answer": row.answer,
    }


def _instance(row: InstanceRow, rate: ServiceRate | None) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "names": list(row.names),
        "types": list(row.types),
        **_times(row.prediction, rate),
        "answer": row.answer,
    }


def _times(found: VolumePrediction, rate: ServiceRate | None) -> dict[str, Any]:
    return {
        "seconds": found.seconds,
        "rate": None if rate is None else rate.within(found.seconds),
        "low": found.low,
        "high": found.high,
        "bound_by": _cause(found.cause),
        "share": found.share,
        "held_share": found.held_share,
        "drained": [
            {**_cause(cause), "after_seconds": seconds} for cause, seconds in found.drained.items()
        ],
    }


def _cause(cause: Cause) -> dict[str, str | None]:
    return {"limit": cause.limit, "by": cause.by or None}
