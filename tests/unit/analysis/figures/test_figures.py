"""Tests of figures: their data, the style of treatments, and alternative texts."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from analysis.cells import treatments
from analysis.data.frames import trial_frame
from analysis.data.load import Run, load_run
from analysis.figures import charts
from analysis.figures.charts import curve_figure, curve_lines
from analysis.figures.style import COLOURS, INK, drawing_style, svg, treatment_styles
from analysis.views.notebook import Results
from pagecage.bundle.unpack import unpack
from tests.builders.swept_runs import swept
from tests.fixtures.runs import build_run
from tests.tree import ROOT


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(build_run(tmp_path_factory.mktemp("figures") / "run"))


def luminance(colour: str) -> float:
    """Return the luminance of a colour, 0 to 1 (Rec. 709 weights)."""
    return float(np.dot((0.2126, 0.7152, 0.0722), to_rgb(colour)))


def curve(run: Run, response: str = "full_pass_seconds") -> Figure:
    figure = curve_figure(run, trial_frame(run), response, treatment_styles(run))
    assert figure is not None
    return figure


def test_every_curve_has_its_own_colour_and_marker_and_its_name_at_its_end(tmp_path: Path) -> None:
    (bundle,) = (ROOT / "docs/runs").glob("*lazy-start*")
    unpack(bundle, tmp_path / "run")
    run = load_run(tmp_path / "run")
    with drawing_style():
        figure = curve(run, run.response)
        svg(figure, "x")
    [axes] = figure.axes
    looks = [(line.get_color(), line.get_marker()) for line in axes.lines]
    assert len(looks) == len(set(looks)) > 7
    names = [text.get_text() for text in axes.texts]
    assert sorted(names) == sorted(str(line.get_label()) for line in axes.lines)
    assert axes.get_legend() is None
    places = sorted(text.get_position()[1] for text in axes.texts)
    assert all(after - before > 0.03 for before, after in itertools.pairwise(places))
    assert 0 <= places[0] < places[-1] <= 1


def test_a_treatment_has_one_colour_in_every_figure(tmp_path: Path) -> None:
    run = swept(tmp_path)
    styles, trial_df = treatment_styles(run), trial_frame(run)
    lines = curve_lines(run, trial_df, "full_pass_seconds", "pattern")
    colours = {line.get_label(): line.get_color() for line in curve(run).axes[0].lines}
    for name, rows in lines.items():
        assert {styles[treatment].colour for treatment in rows["treatment"]} == {colours[name]}
    strip = charts.strip_figure(trial_df, "full_pass_seconds", styles).axes[0]
    names = [tick.get_text() for tick in strip.get_yticklabels()]
    colour_of = {one.name: one.colour for one in styles.values()}
    for line in strip.lines:
        place = round(np.asarray(line.get_ydata()).mean())
        assert line.get_color() == colour_of[names[place]]


def test_neighbours_differ_in_colour_and_in_grey(run: Run) -> None:
    found = treatment_styles(run)
    assert {one.colour for one in found.values()} <= set(COLOURS)
    pairs = {(one.colour, one.marker, one.line) for one in found.values()}
    assert len(pairs) == len(found) == len(list(treatments(run)))
    pairs_of_grey = itertools.pairwise(map(luminance, COLOURS))
    assert all(abs(one - other) > 0.02 for one, other in pairs_of_grey)


def test_a_block_size_curve_is_logarithmic_and_goes_through_the_medians(tmp_path: Path) -> None:
    run = swept(tmp_path)
    trial_df, axes = trial_frame(run), curve(run).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    line = next(line for line in axes.lines if line.get_label() == "uncaged · unloaded")
    rows = trial_df[trial_df["treatment"].str.startswith("uncaged · unloaded")]
    medians = rows.groupby("pattern")["full_pass_seconds"].median()
    assert np.array_equal(line.get_ydata(), [medians["4KiB"], medians["64KiB"]])


def residency_axes(times: list[float], bars: list[str]) -> Axes:
    """Draw bars of vmtouch at these times around a measured second."""
    pages = range(len(bars))
    rows = {"seconds": times, "bar": bars, "measured_seconds": 1.0, "resident_pages": pages}
    with drawing_style():
        axes = Figure().subplots()
        charts.draw_residency(axes, pd.DataFrame(rows), COLOURS[0])
    return axes


def heights(axes: Axes) -> list[float]:
    """Return where the lines of the axes begin."""
    return [float(np.asarray(line.get_ydata())[0]) for line in axes.lines]


def test_few_bars_stand_one_below_the_other_with_their_times() -> None:
    bars = [" " * 60, " " * 60, "O" * 60, "O" * 60, " " * 60]
    axes = residency_axes([-9.0, -0.5, 0.2, 5.0, 9.0], bars)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["-0.5", "0.2", "5"]
    picture = np.asarray(axes.collections[0].get_array()).reshape(5, 60)
    assert [picture[row].max() for row in (0, 2, 4)] == [0.0, 1.0, 1.0]
    assert heights(axes) == [1.0, 2.0]


def test_many_bars_stand_at_their_times() -> None:
    axes = residency_axes([place / 10 for place in range(-2, 13)], ["o" * 60] * 15)
    assert axes.get_ylim() == (1.1, -0.1)
    assert heights(axes) == [0.0, 1.0]


def test_alternative_texts_have_the_extremes(run: Run) -> None:
    strip = charts.strip_alt_text(trial_frame(run), "amplification", treatment_styles(run))
    assert strip.endswith("most tenth · unloaded · random 28.4×")


def test_the_alternative_text_of_a_curve_has_its_ends(tmp_path: Path) -> None:
    run = swept(tmp_path)
    lines = curve_lines(run, trial_frame(run), "amplification", "pattern")
    text = charts.curve_alt_text(lines, "pattern", ["4KiB", "64KiB"], "amplification")
    assert "tenth · unloaded: 1× at 4KiB, 28.4× at 64KiB" in text
    assert "uncaged · unloaded: 1× at 4KiB, 1× at 64KiB" in text


def test_every_figure_of_a_report_has_an_alternative_text(tmp_path: Path) -> None:
    results = Results(build_run(tmp_path / "run"))
    names = ("figure", "amplification", "timelines", "residency", "kernel")
    pages = "".join(getattr(results, name).text for name in names)
    alt_texts = re.findall(r'<svg role="img" aria-label="([^"]+)"', pages)
    assert len(alt_texts) == len(set(alt_texts)) == 6
    assert all(re.search(r"\d", one) for one in alt_texts), "a finding has a figure in it"
    assert any("32 pages in 98%" in one for one in alt_texts)


def test_figures_use_no_colour_that_a_background_hides(run: Run) -> None:
    with drawing_style():
        figure = charts.strip_figure(trial_frame(run), "amplification", treatment_styles(run))
        text = svg(figure, "x")
    assert INK not in text
    assert "currentColor" in text


def test_the_points_of_a_line_are_one_line_of_text() -> None:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot(range(50), [number % 7 for number in range(50)])
    text = svg(figure, "x")
    assert max(line.count("L") for line in text.splitlines()) >= 49
    assert not re.search(r"^\s*L ", text, re.MULTILINE)


@pytest.mark.parametrize("layout", ["constrained", None])
def test_a_picture_is_placed_and_cropped_as_matplotlib_does_it_in_two_drawings(
    layout: Literal["constrained"] | None,
) -> None:
    out = io.StringIO()
    with drawing_style():
        wide_figure(layout).savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
        ours = svg(wide_figure(layout), "x")
    theirs = out.getvalue().replace(INK, "currentColor").replace(" \nL ", "L")
    boxes = [re.findall(r'viewBox="[^"]*"', text)[0] for text in (ours, theirs)]
    assert boxes[0] == boxes[1]
    assert drawn(ours) == drawn(theirs)


def wide_figure(layout: Literal["constrained"] | None) -> Figure:
    """Build a figure that exceeds its panels: long labels, a side legend, a two-line title."""
    figure = Figure(figsize=(4, 2), layout=layout)
    for axes in figure.subplots(1, 2):
        axes.plot([0, 1e6], [0, 1e-3], label="a label")
        axes.set_title("one\ntwo")
        axes.set_ylabel("a label that is longer than the axis is high")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def drawn(text: str) -> str:
    """Return the text after the head, without ids."""
    return re.sub(r"\b[a-z]+[0-9a-f]{10}\b", "", text[text.index('<g id="figure_1"') :])
