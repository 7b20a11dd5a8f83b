"""fio's job file, which keeps the cache state, and its report over all jobs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.programs.fio import (
    JOB,
    end_of,
    fio_command,
    job_text,
    latency_bins_ns,
    may_overlap,
    missing_engine,
    options_of,
    percentile_us,
    read_report,
)
from pagecage.agent.responses import STANDARD_RESPONSES, wrong_response
from tests.builders.known import known
from tests.builders.programs import install

FILES = [Path("/data/a.bin"), Path("/data/b:c.bin")]


def job(**read: Any) -> dict[str, Any]:
    """Return one job of fio's report."""
    latency = {"clat_ns": {"bins": {"1000": 9, "50000": 1}}}
    read = {"io_bytes": 4096 * 10, "total_ios": 10, "runtime": 500, **latency, **read}
    return {"jobname": "trial", "error": 0, "majf": 3, "minf": 5, "read": read}


def report_of(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"fio version": "fio-3.39", "jobs": list(jobs)}


def test_the_cache_state_survives_fios_start() -> None:
    """By default fio invalidates the files' pages before it begins (fio(1), invalidate)."""
    lines = job_text(FILES, ["rw=randread"], Path("/spool"), 5.0).splitlines()
    assert "invalidate=0" in lines
    assert lines.index("invalidate=0") < lines.index("[trial]")
    assert not any(line.startswith("group_reporting") for line in lines)


def test_the_job_reads_the_trials_files_for_its_time_and_logs() -> None:
    lines = job_text(FILES, ["rw=randread", "bs=4k"], Path("/spool"), 5.0).splitlines()
    assert "filename=/data/a.bin:/data/b\\:c.bin" in lines
    assert "runtime=5" in lines
    assert {"write_bw_log=/spool/fio", "write_lat_log=/spool/fio", "log_avg_msec=100"} <= set(lines)
    assert lines[-3:] == ["[trial]", "rw=randread", "bs=4k"]
    assert "runtime=5" not in job_text(FILES, [], Path("/spool"), None)


def test_fio_may_not_write_and_reports_where_it_is_looked_for(tmp_path: Path) -> None:
    command = fio_command("[trial]\n", tmp_path)
    assert "--readonly" in command
    assert f"--output={tmp_path / 'fio.json'}" in command
    assert (tmp_path / JOB).read_text() == "[trial]\n"


@pytest.fixture
def fake_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "#!/bin/sh\nprintf 'Available IO engines:\\n\\tmmap\\n\\tpsync\\n'\n"
    install(tmp_path / "fio", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("fake_fio")
def test_a_missing_ioengine_is_reported() -> None:
    assert missing_engine(["ioengine=mmap"]) is None
    assert missing_engine(["rw=read"]) is None
    assert missing_engine(["ioengine=io_uring"]) == "this fio has no ioengine io_uring"


def test_without_fio_there_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert missing_engine([]) == "fio is not installed"


def test_figures_are_all_jobs_together_over_the_longest() -> None:
    report = report_of(job(), job(runtime=1000, io_bytes=4096 * 30, total_ios=30))
    end = end_of(report, ["offset_increment=50%"], 4096 * 40)
    figures = {"seconds": 1.0, "bytes": 4096 * 40, "blocks": 40, "covered_fraction": 1.0}
    assert {key: end[key] for key in figures} == figures
    response = {
        "fio_reads_per_second": 40,
        "fio_read_bytes_per_second": 4096 * 40,
        "fio_p50_us": 1,
        "fio_p99_us": 50,
        "covered_times": None,
    }
    assert {key: end["response"][key] for key in response} == response
    assert sum(thread["major_faults"] for thread in end["threads"]) == 6
    assert end["fio_version"] == "fio-3.39"


@pytest.mark.parametrize(
    ("options", "overlap"),
    [
        ([], False),
        (["numjobs=1"], False),
        (["numjobs=4"], True),
        (["numjobs=4", "offset_increment=25%"], False),
        (["ioengine=mmap", "numjobs=4", "offset_increment=25%"], True),
        (["time_based"], True),
        (["loops=2"], True),
        (["norandommap"], True),
    ],
)
def test_jobs_that_may_overlap_have_no_covered_fraction(options: list[str], overlap: bool) -> None:
    assert may_overlap(options) is overlap
    end = end_of(report_of(job()), options, 4096 * 20)
    assert end["covered_fraction"] == (None if overlap else 0.5)
    assert end["response"]["covered_times"] == (0.5 if overlap else None)


def test_repeated_reads_have_no_covered_fraction() -> None:
    assert end_of(report_of(job()), [], 4096 * 5)["covered_fraction"] is None


@pytest.mark.parametrize(
    ("error", "word"), [(1, "not permitted"), (38, "not implemented"), (5, None)]
)
def test_an_engine_that_the_kernel_refuses_is_no_failure(error: int, word: str | None) -> None:
    refused = end_of(report_of({**job(), "error": error}), [], 4096 * 10)["refused"]
    assert (word in refused) if word else refused is None


def test_own_figures_take_no_standard_name() -> None:
    own = end_of(report_of(job()), [], 4096 * 10)["response"]
    assert wrong_response(own) is None
    assert not STANDARD_RESPONSES & set(own)


@pytest.mark.parametrize(
    "own", [{"bytes_per_second": 1.0, "major_faults": 0}, {"ready_seconds": 1}]
)
def test_figures_of_the_end_line_and_the_readiness_may_be_reported(own: Any) -> None:
    assert wrong_response(own) is None


@pytest.mark.parametrize(
    "own",
    [
        *([], {"read_seconds": 1.0}, {"Speed": 1}, {"p 1": 2}),
        *({"rate": "fast"}, {"is_on": True}, {"nested": {}}),
    ],
)
def test_a_wrong_response_is_reported(own: Any) -> None:
    assert wrong_response(own)


@pytest.mark.parametrize("text", ["", "{", "fio: io_u error\n", '{"jobs": []}', "[1]"])
def test_no_report_is_no_end(tmp_path: Path, text: str) -> None:
    (tmp_path / "fio.json").write_text(text)
    assert end_of(read_report(tmp_path), [], 4096) == {}


def test_notes_before_the_json_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "fio.json").write_text("fio: a note\n" + json.dumps(report_of(job())))
    assert end_of(read_report(tmp_path), [], 4096 * 10)["blocks"] == 10


@given(
    st.dictionaries(st.integers(1, 10**9), st.integers(1, 1000), min_size=1), st.floats(0.01, 1.0)
)
def test_a_percentile_leaves_that_share_below(counts: dict[int, int], share: float) -> None:
    bins = Counter(counts)
    found = known(percentile_us(bins, share))
    below = sum(n for ns, n in bins.items() if ns / 1000 <= found)
    under = sum(n for ns, n in bins.items() if ns / 1000 < found)
    assert below >= share * bins.total() - 1e-6
    assert under < share * bins.total() + 1e-6


def test_bins_of_jobs_are_added() -> None:
    assert latency_bins_ns([job()["read"], job()["read"]]) == {1000: 18, 50000: 2}
    assert percentile_us(Counter(), 0.5) is None


@given(st.lists(st.text(alphabet="abc=1%", max_size=8)))
def test_any_options_are_parsed(arguments: list[str]) -> None:
    assert all("=" not in name for name in options_of(arguments))
