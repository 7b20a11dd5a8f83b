"""Tests of latency histograms and their figures."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.data.events import decode
from analysis.data.frames import trial_frame
from analysis.data.load import load_run
from analysis.figures.latencies import COLUMNS, latency_figures, latency_frame, tail_distribution
from analysis.figures.style import COLOURS, TreatmentStyle, treatment_styles
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from tests.fixtures.records import START
from tests.fixtures.runs import ROOT, build_run

HDR = (ROOT / "tests/fixtures/hdr-v2.b64").read_text().strip()
"""Output of Rust's hdrhistogram 7.6 for the values 1000, 2000 ... 100,000,000, with three digits.
"""
STYLES = {
    name: TreatmentStyle(name, "#0072B2", "o", "-", 0, "cold", name, 0)
    for name in ("quick", "slow")
}


def quantile(counts: Counter[int], share: float) -> int:
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 1e-6:
            return value
    raise AssertionError


def test_a_histogram_has_the_count_and_the_quantiles_that_went_into_it() -> None:
    counts = decode(HDR)
    assert counts.total() == 100_000
    for share in (0.5, 0.9, 0.99, 0.999):
        assert quantile(counts, share) == pytest.approx(share * 1e8, rel=1e-3)
    assert max(counts) == pytest.approx(1e8, rel=1e-3)


# The same text, decoded by the reference implementation (hdrhistogram 0.10.8 for Python).
@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50_003_967), (0.9, 90_046_463), (0.99, 99_024_895), (1, 100_007_935)]
)
def test_its_buckets_are_those_of_the_reference(share: float, value: int) -> None:
    assert quantile(decode(HDR), share) == value


@pytest.mark.parametrize(
    "text",
    ["", "HIST", "no base64!", HDR[:60], b64encode(b"\x1c\x84\x93\x14\0\0\0\x04abcd").decode()],
)
def test_an_invalid_histogram_is_an_error_message(text: str) -> None:
    with pytest.raises(PagecageError, match="not an HdrHistogram"):
        decode(text)


def buckets(**counts: dict[int, int]) -> pd.DataFrame:
    """Return the frame of a trial per name, with its counts by microseconds."""
    rows = [
        (name, name, True, "beat", float(us), count)
        for name, by_us in counts.items()
        for us, count in by_us.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_each_latency_stands_at_the_share_that_takes_at_least_so_long() -> None:
    values, shares = tail_distribution(buckets(quick={10: 90, 20: 9, 500: 1}))
    assert list(values) == [10, 20, 500]
    assert list(shares) == pytest.approx([1.0, 0.1, 0.01])


def test_trials_of_one_treatment_are_added_up() -> None:
    twice: pd.DataFrame = pd.concat([buckets(quick={10: 1}), buckets(quick={10: 1, 30: 2})])
    values, shares = tail_distribution(twice)
    assert (list(values), list(shares)) == ([10, 30], [1.0, 0.5])


def test_a_figure_has_the_histogram_where_there_is_one_and_percentiles_elsewhere() -> None:
    names = {"treatment": ["quick", "slow"], "is_included": True}
    trial_df = pd.DataFrame({**names, "beat_p50_us": [10, 70], "beat_p99_us": [20, 700]})
    drawn = latency_figures(trial_df, buckets(quick={10: 90, 20: 9, 500: 1}), STYLES)
    assert list(drawn) == ["beat"]
    axes = drawn["beat"].axes[0]
    quick, slow = (
        next(line for line in axes.lines if line.get_label() == name) for name in ("quick", "slow")
    )
    assert np.array_equal(quick.get_ydata(), [10, 20, 500])
    assert np.array_equal(slow.get_ydata(), [70, 700])
    assert np.asarray(slow.get_xdata()) == pytest.approx([0.5, 0.01])
    assert axes.get_xlim()[0] > axes.get_xlim()[1], "the rarest stand at the right"


def test_excluded_trials_are_not_in_a_latency_figure() -> None:
    counts = buckets(quick={10: 1}).assign(is_included=False)
    trials = pd.DataFrame({"treatment": ["quick"], "is_included": False})
    assert latency_figures(trials, counts, STYLES) == {}


def test_a_frame_has_the_histograms_of_end_lines_fio_and_the_block_layer(tmp_path: Path) -> None:
    def with_histograms(record: Json) -> None:
        if record["trial_id"].startswith("000-") and record["measured"]:
            record["workload"]["end"]["heartbeat_hdr_v2_base64"] = HDR
            jobs = [{"read": {"clat_ns": {"bins": {"1500": count}}}} for count in (3, 1)]
            lines = (
                {"t": START + t, "bio_write_us": [{"us": 4, "count": n}]}
                for t, n in ((-1, 5), (9, 12))
            )
            texts = {
                "fio": ("fio.json", f"fio: a note\n{json.dumps({'jobs': jobs})}"),
                "blocklat": ("blocklat.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines)),
            }
            folder = tmp_path / "run/trials/histograms.1"
            folder.mkdir(parents=True, exist_ok=True)
            for collector, (name, text) in texts.items():
                (folder / name).write_text(text)
                record["traces"][collector] = f"trials/histograms.1/{name}"

    run = load_run(build_run(tmp_path / "run", with_histograms))
    first = next(t for t in run.trials if t.record.trial_id.startswith("000-"))
    assert first.record.measured, "the fixture's first trial must be one that ran"
    frame = latency_frame(run)
    counted = frame.groupby("what")["count"].sum().to_dict()
    assert counted == {"heartbeat": 100_000, "fio": 4, "bio_write": 7}
    assert frame[frame["what"] == "fio"]["us"].tolist() == [1.5]
    assert set(latency_figures(trial_frame(run), frame, treatment_styles(run))) == set(counted)


def test_lines_of_one_colour_in_a_panel_differ() -> None:
    """Sixteen treatments, whose colour is the program's, have a panel for each cache state."""
    cells = [
        (program, io, cache)
        for program in ("a", "b", "c", "d")
        for io in ("mmap", "read")
        for cache in ("cold", "warm")
    ]
    styles = {
        " · ".join(cell): TreatmentStyle(
            " · ".join(cell), COLOURS["abcd".index(cell[0])], "o", "-",
            "abcd".index(cell[0]), cell[2], " · ".join(cell[:2]), ("mmap", "read").index(cell[1]),
        )
        for cell in cells
    }  # fmt: skip
    rows = [("1", name, True, "x", us, 9) for name in styles for us in (1.0, 5.0)]
    counts = pd.DataFrame(rows, columns=list(COLUMNS))
    trials = pd.DataFrame({"treatment": list(styles), "is_included": True})
    panels = latency_figures(trials, counts, styles)["x"].axes
    assert [axes.get_title(loc="left") or axes.get_title() for axes in panels] == ["cold", "warm"]
    for axes in panels:
        looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
        assert len(looks) == len(axes.lines) == 8
    legend = panels[-1].get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {" · ".join(c[:2]) for c in cells}
