"""Tests of a report's thumbnail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.cells import make_cell, treatments
from analysis.data.load import Run, load_run
from analysis.figures.panels import MOST_BARS, bars, thumbnail_svg
from analysis.site import headline
from tests.fixtures.small_runs import unpacked


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Six treatments, of which one was killed and two are excluded."""
    return load_run(unpacked("constrained-sequential", tmp_path / "run"))


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_it_is_drawn_at_480_by_270_pixels(run: Run) -> None:
    svg = thumbnail_svg(run)
    assert 'width="360pt" height="202.5pt" viewBox="0 0 360 202.5"' in svg  # 3 points are 4 pixels
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:\w+ )?([\d.]+)px", svg)]
    assert sizes
    assert min(sizes) >= 9


def test_every_treatment_has_a_bar_with_its_figure_or_its_end(run: Run) -> None:
    found = bars(run)
    assert [bar.label for bar in found if bar.value is None] == ["tenth · heap"]
    assert [bar.text for bar in found] == [
        "43.4 ms",
        "44.3 ms",
        "1.52 s",
        "killed",
        "44.2 ms",
        "1.01 s",
    ]
    assert [bar.is_included for bar in found] == [True, True, False, True, True, False]
    assert {"killed", "1.52 s", "hollow: excluded"} < set(texts(thumbnail_svg(run)))


def test_of_many_treatments_the_least_and_the_greatest_are_shown(tmp_path: Path) -> None:
    run = load_run(unpacked("append-fsync", tmp_path / "run"))
    summaries = [make_cell(run, treatment, run.response).summary for treatment in treatments(run)]
    values = [summary.middle for summary in summaries if summary]
    shown = [bar.value for bar in bars(run)]
    assert len(shown) == MOST_BARS < len(values)
    assert {min(values), max(values)} <= set(shown)
    assert any(text.startswith("log scale") for text in texts(thumbnail_svg(run)))


def test_the_headline_is_the_ratio_of_the_cards_sentence_beside_the_published_one(run: Run) -> None:
    assert headline(run) == ("0.999×", "1×")
    assert {"0.999×", "published 1×"} <= set(texts(thumbnail_svg(run, *headline(run))))


def test_a_figure_that_is_no_ratio_is_no_headline(tmp_path: Path) -> None:
    run = load_run(unpacked("cache-burst", tmp_path / "run"))
    assert headline(run) == ("", "")
