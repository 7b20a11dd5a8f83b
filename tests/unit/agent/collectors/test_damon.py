"""DAMON's collector where it cannot be used; tests/vm/test_memory.py has it on a real kernel."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext
from pagecage.agent.collectors.damon import Damon, refusal


def test_a_kernel_without_damon_is_told_so(around: CollectorContext, tmp_path: Path) -> None:
    collector = Damon(around, tmp_path / "none")
    collector.start()
    collector.wait_until_recording()
    result = collector.stop()
    assert result.status == "missing"
    assert "CONFIG_DAMON_SYSFS" in str(result.reason)


def test_another_process_keeps_its_monitor(tmp_path: Path) -> None:
    (tmp_path / "nr_kdamonds").write_text("1\n")
    (tmp_path / "0").mkdir()
    (tmp_path / "0/state").write_text("on\n")
    assert refusal(tmp_path) == "another process uses DAMON"
    (tmp_path / "0/state").write_text("off\n")
    assert refusal(tmp_path) is None


def test_a_trial_without_processes_has_no_estimate(
    around: CollectorContext, tmp_path: Path
) -> None:
    (tmp_path / "nr_kdamonds").write_text("0\n")
    collector = Damon(around, tmp_path)
    collector.start()
    result = collector.stop()
    assert result.status == "partial"
    assert "ended within DAMON's interval" in str(result.reason)
