"""perf mem: its report, the reasons why it is missing, and a recording that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.collectors.perf_mem import (
    LOAD_RESPONSES,
    LoadRow,
    PerfMem,
    find_obstacle,
    parse_lost_samples,
    parse_report,
    record_command,
    responses_of,
)
from tests.builders.collector_contexts import collector_context
from tests.builders.known import known
from tests.builders.programs import install

FIXTURES = Path(__file__).parents[3] / "fixtures/perf"
TRIAL = Path("/sys/fs/cgroup/pagecage.slice/trial.slice")
AMD, OLDER = ((FIXTURES / f"report-{name}.txt").read_text() for name in ("amd", "older"))
PERF = """#!/bin/sh
# perf: `mem record` writes its file and waits for SIGINT, `report` prints a fixture.
if [ "$1" = mem ]; then
    while [ "$1" != -o ]; do shift; done
    %s
    echo PERFILE2 > "$2"
    trap 'exit 0' INT
    while :; do sleep 0.02; done
fi
%s
"""


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectorContext:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("pagecage.agent.collectors.perf_mem.find_obstacle", lambda: None)
    return collector_context(tmp_path, TRIAL)


def write_perf(
    directory: Path, record: str = "", report: str = f"cat {FIXTURES}/report-amd.txt"
) -> None:
    install(directory / "bin/perf", PERF % (record, report))


def recorded(context: CollectorContext) -> tuple[PerfMem, CollectorResult]:
    collector = PerfMem(context)
    collector.start()
    collector.wait_until_recording()
    return collector, collector.stop()


def test_a_report_has_share_and_samples_of_each_level() -> None:
    found = responses_of(parse_report(AMD))
    assert set(found) == LOAD_RESPONSES
    assert (found["loads_ram_percent"], found["loads_ram_samples"]) == (31.20, 903)
    assert (found["loads_unknown_percent"], found["loads_unknown_samples"]) == (25.02, 210441)
    assert (found["loads_l1_samples"], found["loads_l2_samples"]) == (180233, 12210)
    assert found["loads_peer_cache_percent"] == 8.55
    assert found["loads_fill_buffer_samples"] == 1302
    assert (found["loads_uncached_percent"], found["loads_uncached_samples"]) == (0.0, 41)
    assert parse_lost_samples(AMD) == 0


def test_a_level_that_perf_did_not_see_had_no_sample_and_older_labels_are_known() -> None:
    found = responses_of(parse_report(OLDER))
    assert (found["loads_peer_cache_percent"], found["loads_peer_cache_samples"]) == (0, 0)
    assert (found["loads_ram_samples"], found["loads_fill_buffer_samples"]) == (903, 1302)
    assert parse_lost_samples(OLDER) == 17


def test_without_a_row_every_figure_is_unknown() -> None:
    assert set(responses_of([]).values()) == {None}
    assert parse_lost_samples("") is None


labels = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).map(
    lambda text: f"L{text} hit"
)
load_rows = st.builds(
    LoadRow,
    st.integers(0, 10_000).map(lambda hundredths: hundredths / 100),
    st.integers(0, 10**12),
    labels,
)


@given(st.lists(load_rows, max_size=12), st.text())
def test_what_perf_prints_is_what_is_read(rows: list[LoadRow], noise: str) -> None:
    lines = [f"{row.percent:9.2f}%{row.samples:>14}  {row.label:<40}" for row in rows]
    comments = "".join(f"# {line}\n" for line in noise.splitlines())
    assert parse_report(comments + "\n".join(lines) + "\n") == rows


@given(st.integers(0, len(AMD)))
def test_a_report_that_is_cut_off_has_a_prefix_of_its_rows(length: int) -> None:
    rows, whole = parse_report(AMD[:length]), parse_report(AMD)
    seen, before = ([(row.percent, row.samples) for row in some] for some in (rows[:-1], whole))
    assert seen == before[: len(seen)]


def test_the_report_is_limited_to_the_measured_part(context: CollectorContext) -> None:
    arguments = context.directory / "arguments"
    report = f'echo "$@" > {arguments}; cat {FIXTURES}/report-older.txt'
    write_perf(context.directory, report=report)
    collector, recording = recorded(context)
    assert recording.status == "ok"
    result, figures = known(collector.report(12.5, 13.25))
    assert "--time 12.500000000,13.250000000" in arguments.read_text()
    assert (result.status, result.lost_events) == ("partial", 17)
    assert figures["loads_ram_samples"] == 903
    assert [path.name for path in result.files] == ["perf-mem.txt"]
    assert not (context.directory / "perf-mem.data").exists()


def test_only_loads_of_the_slice_are_recorded(context: CollectorContext) -> None:
    words = " ".join(record_command(context.directory / "perf.data", TRIAL))
    assert words.startswith("perf mem -t load record -a ")
    assert words.endswith(" -G pagecage.slice/trial.slice")


def test_a_perf_that_cannot_open_its_event_reports_its_own_words(
    context: CollectorContext,
) -> None:
    write_perf(context.directory, record="echo 'failed: no such event' >&2; exit 1")
    _, result = recorded(context)
    assert result.status == "failed"
    assert result.reason == "perf died while the trial ran: failed: no such event"


@pytest.mark.parametrize("report", ["echo 'broken file' >&2; exit 1", "echo '# no samples'"])
def test_a_report_without_rows_is_a_failure(context: CollectorContext, report: str) -> None:
    write_perf(context.directory, report=report)
    collector, _ = recorded(context)
    result, figures = known(collector.report(0.0, 1.0))
    assert result.status == "failed"
    assert set(figures.values()) == {None}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with perf, PEBS and a strict kernel, whose agent has CAP_PERFMON."""
    monkeypatch.setattr("pagecage.agent.collectors.perf_mem.find_tool", lambda _: "/usr/bin/perf")
    (tmp_path / "bus/event_source/devices/cpu/events").mkdir(parents=True)
    (tmp_path / "bus/event_source/devices/cpu/events/mem-loads").touch()
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/perf_event_paranoid").write_text("2\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text(f"Name:\tx\nCapEff:\t{1 << 38:016x}\n")
    return tmp_path


def test_a_host_with_everything_has_no_obstacle(host: Path) -> None:
    assert find_obstacle(host, host) is None


def test_amd_samples_loads_with_ibs(host: Path) -> None:
    (host / "bus/event_source/devices/cpu/events/mem-loads").unlink()
    assert "PEBS or IBS" in str(find_obstacle(host, host))
    (host / "bus/event_source/devices/ibs_op").mkdir()
    assert find_obstacle(host, host) is None


def test_without_the_capability_the_kernels_setting_decides(host: Path) -> None:
    (host / "self/status").write_text("CapEff:\t0000000000000000\n")
    assert "perf_event_paranoid is 2" in str(find_obstacle(host, host))
    (host / "sys/kernel/perf_event_paranoid").write_text("0\n")
    assert find_obstacle(host, host) is None


def test_without_perf_it_is_missing(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagecage.agent.collectors.perf_mem.find_tool", lambda _: None)
    assert find_obstacle(host, host) == "perf is not installed"


def test_on_this_machine_it_records_or_names_its_obstacle(tmp_path: Path) -> None:
    """The real host: a virtual CPU has no such event."""
    _, result = recorded(collector_context(tmp_path, Path("/sys/fs/cgroup")))
    assert (result.status == "missing") == (find_obstacle() is not None)
    assert (result.reason is None) == (result.status == "ok")
