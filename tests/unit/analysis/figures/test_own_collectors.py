"""Series and figures of the collectors that a definition brings along."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.data.frames import own_collector_names, own_frame
from analysis.data.load import Run, load_run
from analysis.figures.style import treatment_styles
from analysis.figures.traces import MOST_FIELDS, own_alt_text, own_figure
from analysis.views.notebook import Results
from pagecage.model.json_codec import Json
from tests.builders.run_edits import edit
from tests.fixtures.records import START
from tests.fixtures.runs import build_run

SPECS = [{"name": "queue"}, {"name": "reads", "is_script": True}]


def write_trace(folder: Path, record: Json, name: str, lines: Sequence[object]) -> None:
    trace = folder / f"trials/{record['trial_id']}.1/{name}.jsonl"
    trace.parent.mkdir(parents=True, exist_ok=True)
    trace.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "cut off")
    record["traces"][name] = str(trace.relative_to(folder))


def own_run(folder: Path) -> Path:
    def with_own(record: Json) -> None:
        record.setdefault("traces", {})
        lines = [
            {"arrived": START + n, "line": {"depth_bytes": 1000 * n, "left": -n, "t": START + n}}
            for n in range(-1, 4)
        ]
        write_trace(folder, record, "queue", [*lines, {"arrived": START, "text": "x"}, 5, {}])
        maps = [{"type": "map", "data": {"@reads": n}} for n in range(3)]
        lines = [{"arrived": START + n, "line": line} for n, line in enumerate(maps)]
        write_trace(folder, record, "reads", lines)
        for name in ("queue", "reads"):
            status = {"status": "ok", "reason": None, "lost_events": None, "required": False}
            times = {"seconds": 4.0, "cpu_seconds": 0.1, "start_monotonic_seconds": START - 2}
            record["collectors"][name] = {**status, "lines": 5, "gaps": 0, **times}

    return planned(build_run(folder, with_own, repeats=1))


def planned(folder: Path) -> Path:
    """Let the plan of a run have both collectors."""
    collectors = {"own_collectors": SPECS}
    edit(folder / "plan.json", lambda plan: [one.update(collectors) for one in plan["trials"]])
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run(tmp_path_factory.mktemp("own") / "run")


@pytest.fixture(scope="module")
def data(folder: Path) -> Run:
    return load_run(folder)


def test_numbers_have_the_time_since_go(data: Run) -> None:
    assert own_collector_names(data) == ["queue", "reads"]
    frame = own_frame(data)
    one = frame[(frame["trial_id"] == frame["trial_id"].iloc[0]) & (frame["field"] == "left")]
    assert list(one["seconds"]) == pytest.approx([-1, 0, 1, 2, 3])
    assert list(one["value"]) == [1, 0, -1, -2, -3]
    scripted = frame[frame["collector"] == "reads"]
    assert set(scripted["field"]) == {"reads"}


def test_fields_are_below_one_another_and_treatments_side_by_side(data: Run) -> None:
    frame, styles = own_frame(data), treatment_styles(data)
    queue = frame[frame["collector"] == "queue"]
    figure = own_figure(queue, styles)
    assert figure is not None
    labels = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    assert labels[:2] == ["depth bytes", "left"]
    assert min(axes.get_ylim()[0] for axes in figure.axes if axes.get_visible()) < -3
    assert "depth_bytes of" in own_alt_text(queue, styles)
    assert own_figure(queue.iloc[:0], styles) is None


def test_the_section_has_a_table_and_a_figure_each(folder: Path) -> None:
    shown = Results(folder).own_collectors
    assert shown is not None
    assert shown.text.count("<svg") == 2
    assert "12 of 12 trials" in shown.text
    assert "2.5 %" in shown.text


def test_a_run_without_own_collectors_has_no_section(tmp_path: Path) -> None:
    assert Results(build_run(tmp_path / "run", repeats=1)).own_collectors is None


def test_a_collector_without_numbers_says_so(tmp_path: Path) -> None:
    shown = Results(planned(build_run(tmp_path / "run", repeats=1))).own_collectors
    assert shown is not None
    assert shown.text.count("no numbers to draw") == 2


def test_further_fields_are_counted(data: Run) -> None:
    frame = own_frame(data)
    many = frame[frame["field"] == "left"].copy()
    many["field"] = [f"f{number % (MOST_FIELDS + 3)}" for number in range(len(many))]
    figure = own_figure(many, treatment_styles(data))
    assert figure is not None
    assert len({axes.get_ylabel() for axes in figure.axes} - {""}) == MOST_FIELDS
