"""The table of page faults and read-ahead by treatment."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.data.fault_events import fault_event_table
from analysis.data.load import load_run
from tests.fixtures.runs import build_run

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
