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


def test_a_kernel_that_cannot_watch_processes_is_told_so(tmp_path: Path) -> None:
    """That stays so, whether or not another process uses DAMON now."""
    context = tmp_path / "0/contexts/0"
    context.mkdir(parents=True)
    (tmp_path / "nr_kdamonds").write_text("1\n")
    (tmp_path / "0/state").write_text("on\n")
    (context / "avail_operations").write_text("paddr\n")
    assert "CONFIG_DAMON_VADDR" in str(refusal(tmp_path))
    (context / "avail_operations").write_text("vaddr\nfvaddr\npaddr\n")
    assert refusal(tmp_path) == "another process uses DAMON"
    assert (tmp_path / "nr_kdamonds").read_text() == "1\n", "another's monitor is left alone"


def test_a_context_is_made_for_the_question_and_removed(tmp_path: Path) -> None:
    (tmp_path / "nr_kdamonds").write_text("0\n")
    (tmp_path / "0/contexts/0").mkdir(parents=True)
    (tmp_path / "0/contexts/0/avail_operations").write_text("paddr\n")
    assert "CONFIG_DAMON_VADDR" in str(refusal(tmp_path))
    assert (tmp_path / "0/contexts/nr_contexts").read_text() == "1\n"
    assert (tmp_path / "nr_kdamonds").read_text() == "0\n"


def test_a_trial_without_processes_has_no_estimate(
    around: CollectorContext, tmp_path: Path
) -> None:
    (tmp_path / "nr_kdamonds").write_text("0\n")
    collector = Damon(around, tmp_path)
    collector.start()
    result = collector.stop()
    assert result.status == "partial"
    assert "ended within DAMON's interval" in str(result.reason)
