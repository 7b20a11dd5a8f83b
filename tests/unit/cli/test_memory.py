"""`pagecage memory`, as it is typed, up to its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.memory_search.need import SearchRule
from pagecage.memory_search.rounds import rule_of
from pagecage.model.cage import Cage
from pagecage.model.plan import Plan
from pagecage.planning.memory import MemoryOptions, plan_of, search_lines
from pagecage.planning.options import ReplayOptions
from pagecage.units import MIB


def planned(base: str = "customer", words: tuple[str, ...] = ("cat", "x"), **more: Any) -> Plan:
    own = {name: more.pop(name) for name in ("slowdown", "precision", "floor") if name in more}
    shared = ReplayOptions(host="local", seed=3, **more)
    return plan_of(base, words, MemoryOptions(**own), shared, "memory", lambda _: None)[0]


def test_the_plan_is_the_reference_and_the_rule() -> None:
    plan = planned("every-limit")
    assert {trial.cage.name for trial in plan.trials} == {"every-limit"}
    assert {trial.cage.properties["MemoryMax"] for trial in plan.trials} == {40 * MIB}
    assert len(plan.trials) == 3
    assert rule_of(plan.document) == SearchRule(4 * MIB, 0.05, 0.02, 1, 3)
    question = plan.document["definition"]["question"]
    assert question == "How much memory does `cat x` need in every-limit?"


def test_more_repeats_are_those_of_the_reference_as_well() -> None:
    plan = planned(repeats=5, slowdown="10%", precision="0.5%", floor="16MiB")
    assert rule_of(plan.document) == SearchRule(16 * MIB, 0.1, 0.005, 5, 5)
    assert [trial.repeat for trial in plan.trials] == [1, 2, 3, 4, 5]


def test_a_cage_without_limits_has_a_cgroup_and_no_swap() -> None:
    """Without any limit a trial might run without a cgroup, which counts no memory."""
    plan = planned("uncaged")
    assert all(trial.cage.properties == {"MemorySwapMax": 0} for trial in plan.trials)
    assert {trial.driver for trial in plan.trials} <= {"systemd-scope", "cgroupfs"}


def test_the_programs_output_is_not_shown() -> None:
    for trial in planned().trials:
        assert trial.workload.command is not None
        assert not trial.workload.command.streams_output


def test_a_dry_run_tells_the_most_trials() -> None:
    plan = planned("every-limit")
    told = " ".join(search_lines(plan, LocalHost(None)))
    assert "3 trials with all of the memory" in told
    assert "between 4MiB and 40MiB, with 1 trial each" in told
    most = plan.document["memory_search"]["most_trials"]
    assert f"at most {most} trials" in told
    assert 3 + 4 < most < 3 + 20


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"words": ()}, "there is no command"),
        ({"cold": ("x",), "cache": "resident"}, "are charged to pagecage"),
        ({"driver": "process"}, "has no cgroup"),
        ({"slowdown": "5"}, "is not a percentage"),
        ({"slowdown": "0.0%"}, "is not a percentage"),
        ({"precision": "0.05%"}, "finer than the kernel counts"),
        ({"floor": "1kB"}, "too small for any program"),
        ({"base": "every-limit", "floor": "40MiB"}, "not above the floor"),
    ],
)
def test_what_is_refused_is_a_sentence_with_its_mend(more: dict[str, Any], word: str) -> None:
    with pytest.raises(PagecageError, match=word) as caught:
        planned(**more)
    assert (caught.value.exit_code, bool(caught.value.hint)) == (2, True)


def test_a_cage_that_throttles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = Cage("customer", {"MemoryHigh": 40 * MIB})
    monkeypatch.setattr(Definitions, "cage", lambda *_: throttled)
    with pytest.raises(PagecageError, match="the MemoryHigh of customer throttles"):
        planned()


def test_a_share_of_the_data_is_the_memory_of_the_reference(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * (100 * MIB))
    plan = planned("tenth", cold=(str(tmp_path / "data"),))
    assert {trial.cage.properties["MemoryMax"] for trial in plan.trials} == {10 * MIB}
