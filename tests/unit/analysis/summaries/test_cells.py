"""A trial's figure: the totals of a device are those of the whole work."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.cells import response_value
from analysis.data.load import JudgedTrial
from pagecage.verdicts.evaluate import evaluate
from tests.fixtures.records import make_record


@pytest.mark.parametrize(
    ("coverage", "value"),
    [
        ({"covered_fraction": 1.0}, 4096.0),
        ({"covered_fraction": 0.5}, 8192.0),
        ({"covered_fraction": 0.0}, None),
        ({"covered_fraction": None}, 4096.0),
        ({}, 4096.0),
        ({"covered_fraction": None, "covered_times": 24.0}, None),
    ],
    ids=["whole", "half", "nothing", "command", "server", "fio over and over"],
)
def test_bytes_are_scaled_by_the_share_that_was_covered(
    coverage: dict[str, Any], value: float | None
) -> None:
    record = make_record(response={"device_read_bytes": 4096.0, "read_seconds": 2.0, **coverage})
    trial = JudgedTrial(record, evaluate(record), ())
    assert response_value(trial, "device_read_bytes") == value
    assert response_value(trial, "read_seconds") == 2.0
