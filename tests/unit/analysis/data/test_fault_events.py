"""The table of page faults and read-ahead by treatment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.articles.evaluate import traced_words
from analysis.data.events import UNTRACED
from analysis.data.frames import fault_frame
from analysis.data.load import load_run
from analysis.views.evidence_tables import fault_event_table
from analysis.views.notebook import notices_html
from tests.fixtures.runs import build_run

UNAVAILABLE = [
    *(f"filemap_fault.{key}" for key in ("vm_flags", "fault_flags", "ra_pages")),
    "filemap_fault_return",
]
CAGED = "tenth-unloaded-random"


def test_each_treatment_has_the_values_of_its_events(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run")
    for file in folder.glob(f"trials/*{CAGED}*/bpftrace.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        growing = {"returned": 1028, "returned_names": ["VM_FAULT_MAJOR", "VM_FAULT_RETRY"]}
        for number, row in enumerate(rows):
            frequent = {"vm_flags": 0x80000D1, "fault_flags": 0x1254, "ra_pages": 32}
            row["filemap_fault"] = [
                {**frequent, "count": 1000 * number},
                {**frequent, "vm_flags": 1, "count": number},
            ]
            row["filemap_fault_return"] = [{**growing, "count": 1000 * number}]
            row["page_cache_ra_order"] = [{"pages": 32, "order": 0, "count": 1000 * number}]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = fault_event_table(load_run(folder)).set_index("treatment")
    [name] = [name for name in table.index if "tenth" in name and "random" in name]
    assert list(table.loc[name]) == ["80000D1", "1254", "32", "1028", "32", "0"]


def test_an_older_trace_has_no_order_and_no_returned_value(tmp_path: Path) -> None:
    table = fault_event_table(load_run(build_run(tmp_path / "run")))
    assert len(table) > 0
    assert set(table["read-ahead order"]) == set(table["returned"]) == {""}
    assert "" not in set(table["vm_flags"])


def test_a_run_without_traces_has_an_empty_table(tmp_path: Path) -> None:
    def untraced(record: dict[str, object]) -> None:
        record["traces"] = {}

    assert fault_event_table(load_run(build_run(tmp_path / "run", untraced))).empty


def by_tracepoints(folder: Path, windows: list[dict[str, int]]) -> Path:
    """Write a run whose faults have no arguments, with these read-aheads in the measured part."""

    def told(record: dict[str, Any]) -> None:
        entry = {"status": "ok", "reason": None, "lost_events": 0, "unavailable": UNAVAILABLE}
        record["collectors"] = {**record["collectors"], "bpftrace": entry}

    build_run(folder, told)
    for file in folder.glob("trials/*/bpftrace.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for number, row in enumerate(rows):
            row.pop("filemap_fault_return", None)
            row["filemap_fault"] = [{"count": 100 * number}]
            row["page_cache_ra_order"] = [{**one, "count": 10 * number} for one in windows]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
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
