"""The table of page faults and read-ahead by treatment."""

from __future__ import annotations

from pathlib import Path

from analysis.articles.evaluate import traced_words
from analysis.data.events import UNTRACED, fault_event_table
from analysis.data.frames import fault_frame
from analysis.data.load import load_run
from analysis.views.notebook import notices_html
from pagecage.model.json_codec import Json
from tests.builders.record_changes import updated
from tests.builders.run_edits import edit
from tests.fixtures.records import START
from tests.fixtures.runs import Change, build_run

UNAVAILABLE = [
    *(f"filemap_fault.{key}" for key in ("vm_flags", "fault_flags", "ra_pages")),
    "filemap_fault_return",
]
CAGED = "tenth-unloaded-random"


def number_of(row: Json) -> int:
    """Return the number of a row: there are two per second, from one second before the trial."""
    return round(2 * (float(row["t"]) - START + 1))


def edit_traces(folder: Path, trials: str, change: Change) -> None:
    for file in folder.glob(f"trials/{trials}/bpftrace.jsonl"):
        edit(file, change)


def test_each_treatment_has_the_values_of_its_events(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run")
    growing = {"returned": 1028, "returned_names": ["VM_FAULT_MAJOR", "VM_FAULT_RETRY"]}
    frequent = {"vm_flags": 0x80000D1, "fault_flags": 0x1254, "ra_pages": 32}
    rare = {**frequent, "vm_flags": 1}

    def counted(row: Json) -> None:
        count = {"count": 1000 * number_of(row)}
        row["filemap_fault"] = [{**frequent, **count}, {**rare, "count": number_of(row)}]
        row["filemap_fault_return"] = [{**growing, **count}]
        row["page_cache_ra_order"] = [{"pages": 32, "order": 0, **count}]

    edit_traces(folder, f"*{CAGED}*", counted)
    table = fault_event_table(load_run(folder)).set_index("treatment")
    [name] = [name for name in table.index if "tenth" in name and "random" in name]
    assert list(table.loc[name]) == ["80000D1", "1254", "32", "1028", "32", "0"]


def test_an_older_trace_has_no_order_and_no_returned_value(tmp_path: Path) -> None:
    table = fault_event_table(load_run(build_run(tmp_path / "run")))
    assert len(table) > 0
    assert set(table["read-ahead order"]) == set(table["returned"]) == {""}
    assert "" not in set(table["vm_flags"])


def test_a_run_without_traces_has_an_empty_table(tmp_path: Path) -> None:
    run = load_run(build_run(tmp_path / "run", updated(traces={})))
    assert fault_event_table(run).empty


def by_tracepoints(folder: Path, windows: list[dict[str, int]]) -> Path:
    """Write a run whose faults have no arguments, with these read-aheads in the measured part."""

    def told(record: Json) -> None:
        entry = {"status": "ok", "reason": None, "lost_events": 0, "unavailable": UNAVAILABLE}
        record["collectors"] = {**record["collectors"], "bpftrace": entry}

    build_run(folder, told)

    def without_arguments(row: Json) -> None:
        number = number_of(row)
        row.pop("filemap_fault_return", None)
        row["filemap_fault"] = [{"count": 100 * number}]
        row["page_cache_ra_order"] = [{**one, "count": 10 * number} for one in windows]

    edit_traces(folder, "*", without_arguments)
    return folder


def test_what_tracepoints_cannot_tell_is_named_and_not_zero(tmp_path: Path) -> None:
    window = {"pages": 31, "order": 2, "ra_pages": 64}
    run = load_run(by_tracepoints(tmp_path / "run", [window]))
    table = fault_event_table(run)
    assert len(table) > 0
    for row in table.itertuples(index=False):
        assert list(row)[1:] == [UNTRACED, UNTRACED, "64", UNTRACED, "31", "2"]
    assert set(fault_frame(run)["vm_flags"]) == {UNTRACED}
    notice = (
        f"<code>filemap_fault.ra_pages</code>, <code>filemap_fault_return</code> are {UNTRACED}"
    )
    assert notice in notices_html(run)


def test_claims_about_them_have_no_data(tmp_path: Path) -> None:
    window = {"pages": 31, "order": 2, "ra_pages": 64}
    run = load_run(by_tracepoints(tmp_path / "run", [window]))
    assert traced_words(run, run.trials, "vm_flags") == UNTRACED
    words = [traced_words(run, run.trials, name) for name in ("ra_pages", "page_cache_ra_order")]
    assert [list(one[0]) for one in words if not isinstance(one, str)] == [[64], [31]]
    never = load_run(by_tracepoints(tmp_path / "never", []))
    assert traced_words(never, never.trials, "ra_pages") == UNTRACED, "no read-ahead told it"
    assert traced_words(never, never.trials, "page_cache_ra_order") == ({}, {})
