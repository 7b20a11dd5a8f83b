"""Figures as text: the digits that an interval deserves, and units of metrics."""

from __future__ import annotations

import pytest

from analysis.formatting import format_interval, format_quantity, format_summary
from analysis.stats import MedianSummary


@pytest.mark.parametrize(
    ("response", "figures", "texts"),
    [
        ("amplification", (84.3, 82.1, 86.6), ("84×", "82 – 87×")),
        ("amplification", (1.08, 1.03, 1.13), ("1.08×", "1.03 – 1.13×")),
        ("amplification", (1.08, 0.909, 1.11), ("1.08×", "0.91 – 1.11×")),
        ("amplification", (84.34, 84.2, 84.5), ("84.3×", "84.2 – 84.5×")),
        ("amplification", (98.3, 97.2, 104.0), ("98×", "97 – 104×")),
        ("amplification", (31.0, 12.0, 52.0), ("31×", "12 – 52×")),
        ("read_seconds", (31.2, 30.9, 31.5), ("31.2 s", "30.9 – 31.5 s")),
        ("read_seconds", (0.0119, 0.0112, 0.016), ("12 ms", "11 – 16 ms")),
        ("read_seconds", (104.0, 83.0, 140.0), ("1 min 44 s", "83 s – 2 min 20 s")),
        ("tps", (559.0, 540.0, 566.0), ("560 tps", "540 – 570 tps")),
        ("device_read_bytes", (2**20, 2**20, 2**20), ("1 MiB", "1 – 1 MiB")),
        ("major_faults", (31342.0, 31340.0, 31349.0), ("31,342", "31,340 – 31,349")),
        ("major_faults", (0.0, 0.0, 3.0), ("0", "0 – 3")),
    ],
)
def test_a_figure_has_the_digits_that_its_interval_deserves(
    response: str, figures: tuple[float, float, float], texts: tuple[str, str]
) -> None:
    assert format_interval(response, MedianSummary(3, *figures, "range")) == texts


def test_one_trial_has_no_interval_and_all_its_digits() -> None:
    one = MedianSummary(1, 31342.0, 31342.0, 31342.0, "range")
    assert format_interval("major_faults", one) == ("31,342", "")
    assert format_summary("major_faults", one, is_ratio=False) == "31,342"


def test_transactions_have_their_unit() -> None:
    assert format_quantity("tps", 559.3) == "559 tps"
    assert format_quantity("records_per_second", 559.3) == "559/s"
