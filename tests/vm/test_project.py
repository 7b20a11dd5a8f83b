"""A user's project in the guest: copies of its files, its own collectors, scripts and sections."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command_line import pagecage_in
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow]
EXAMPLE = ROOT / "examples/record-search"
DEFINITION = """question = "What do my own collectors see?"
response = "queue_max_inflight"
collectors.queue = { command = ["./sample.sh", "0.05"], period_seconds = 0.05, required = true }
bpftrace.scripts = ["./reads.bt"]
sections = ["mine.py"]
repeats = 1

[workload]
kind = "command"
program = "dd"
arguments = ["if={file}", "of=/dev/null", "bs=64k"]

[factors]
cage = ["uncaged", "old-laptop"]
[levels.cage.uncaged]
cache = "cold"
[levels.cage.old-laptop]
cache = "cold"

[sizes.full]
dataset = "64MiB"
[sizes.default]
dataset = "64MiB"
[sizes.emulated]
dataset = "64MiB"
[sizes.smoke]
dataset = "64MiB"
"""
SAMPLE = """#!/bin/sh
while :; do
  read reads merged sectors rest </sys/dev/block/$PAGECAGE_DISK_NUMBER/stat
  read inflight writes </sys/dev/block/$PAGECAGE_DISK_NUMBER/inflight
  echo "{\\"inflight\\": $inflight, \\"read_bytes\\": $((sectors * 512))}"
  sleep "$1"
done
"""
READS = """tracepoint:syscalls:sys_enter_read /cgroup == $1/ { @reads = count(); }
tracepoint:block:block_rq_issue /args.dev == $2/ { @issued = count(); @size = hist(args.bytes); }
interval:ms:500 { print(@reads); print(@issued); }
"""
SECTION = """# %% [markdown]
# ## Issued requests, by my own script
# %%
results.trial_df[["treatment", "reads_last_issued", "queue_max_inflight"]]
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("runs")
    return shutil.copytree(EXAMPLE, tmp_path / "example", ignore=ignored)


def test_the_example_runs_in_its_own_cage(example: Path) -> None:
    done = pagecage_in(example, "run", "search", "--host", "vm", "--dataset", "smoke", "--yes")
    assert done.status == 0, done.stderr
    folder = (example / "runs/latest-search").resolve()
    assert (folder / "report.html").exists()
    records = records_of(example, "search")
    assert {record["outcome"] for record in records} == {"ok"}
    assert {record["treatment"]["cage"] for record in records} == {"uncaged", "old-laptop"}
    caged = [record for record in records if record["treatment"]["cage"] == "old-laptop"]
    assert all("/replay/search.py" in " ".join(record["workload"]["argv"]) for record in caged)
    shown = json.loads(pagecage_in(example, "show", "search", "--json").stdout)
    assert shown["experiment"] == "search"


@pytest.fixture
def project(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in {
        "own.toml": DEFINITION,
        "sample.sh": SAMPLE,
        "reads.bt": READS,
        "mine.py": SECTION,
        "broken.toml": DEFINITION.replace("reads.bt", "broken.bt"),
        "broken.bt": "tracepoint:syscalls:sys_enter_nope { @x = count(); }\n",
    }.items():
        (example / "experiments" / name).write_text(text)
    return example


def records_of(project: Path, name: str) -> list[dict[str, Any]]:
    """Return the last record of each trial: one that is not prepared is repeated."""
    lines = (project / f"runs/latest-{name}/records.jsonl").read_text().splitlines()
    return list({one["trial_id"]: one for one in map(json.loads, lines)}.values())


def test_collectors_scripts_and_sections_of_a_project(project: Path) -> None:
    refused = pagecage_in(project, "run", "own", "--host", "vm", "--dataset", "smoke")
    assert refused.status == 2
    assert "'{programs}/reads.bt' (bpftrace script reads)" in refused.stderr
    done = pagecage_in(project, "run", "own", "--host", "vm", "--dataset", "smoke", "--yes")
    assert done.status == 0, done.stderr
    for record in records_of(project, "own"):
        assert record["outcome"] == "ok"
        own = {name: record["collectors"][name] for name in ("queue", "reads")}
        assert [entry["status"] for entry in own.values()] == ["ok", "ok"], own
        assert record["response"]["reads_last_reads"] >= 64 * 16, (
            "dd reads 64 MiB in pieces of 64 KiB"
        )
        assert record["response"]["reads_last_issued"] > 50
        assert record["response"]["queue_delta_read_bytes"] > 0
        assert own["queue"]["cpus"] == [1], "on the last of two CPUs"
        assert (project / "runs/latest-own" / record["traces"]["reads"]).exists()
    page = (project / "runs/latest-own/report.html").read_text()
    assert "Collectors of this definition" in page
    assert "<h2>Issued requests, by my own script</h2>" in page
    assert "2 of 2 trials" in page


def test_a_broken_script_is_named_before_the_first_trial(project: Path) -> None:
    words = ("--host", "vm", "--dataset", "smoke", "--yes", "--treatment", "cage=uncaged")
    pagecage_in(project, "run", "broken", *words)
    [record] = records_of(project, "broken")
    assert record["outcome"] == "requirement_missed"
    assert "bpftrace cannot run broken.bt: " in record["error"]
    assert "sys_enter_nope" in record["error"]
    assert len(record["error"].splitlines()) == 1
