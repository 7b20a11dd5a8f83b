"""A trial compared with the other repeats of its treatment: disk speed, output, settings."""

from __future__ import annotations

from typing import Any

import pytest

from pagecage.model.record import Record, record_from_json
from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.quiet import judge_disk_speed
from pagecage.verdicts.repeats import judge_output, others_by_trial, setting_differences
from tests.fixtures.records import plain_record


def served(ms: float, *, requests: int = 1500, size: int = 131_072, depth: float = 1.0) -> Record:
    """Return a trial whose disk took this time for each of its requests."""
    trial_id = f"t{ms}-{size}-{depth}".replace(".", "_")
    data = plain_record(trial_id=trial_id, exit={"status": 0, "oom_kill": 0})
    moved = requests * size
    for moment, factor in (("before", 0), ("after", 1)):
        data["counters"][moment]["device"] |= {
            "reads": factor * requests,
            "sectors_read": factor * moved // 512,
            "read_ms": round(factor * requests * ms),
            "write_ms": 0,
            "io_ticks": round(factor * requests * ms / depth),
        }
        counted = {"254:16": {"rbytes": moved, "wbytes": 0, "rios": requests, "wios": 0}}
        data["counters"][moment]["cgroup"]["io.stat"] = counted if factor else {}
    return record_from_json(data)


USUAL = [served(0.9), served(1.0), served(1.1)]


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (served(5.0), "slow"),
        (served(1.2), "usual"),
        (served(2.5), "usual"),
        (served(0.2), "usual"),
        (served(5.0, requests=40), "unknown"),
        (served(5.0, size=4096), "unknown"),
        (served(5.0, depth=5.0), "usual"),
        (served(20.0, depth=4.0), "slow"),
        (served(3.2, requests=100), "usual"),
    ],
)
def test_a_disk_is_slow_if_a_request_takes_several_times_the_usual(
    record: Record, word: str
) -> None:
    assert judge_disk_speed(record, USUAL).verdict == word


def test_a_slow_disk_excludes_the_trial_as_noise() -> None:
    found = evaluate(served(5.0), repeats=USUAL)
    assert found.host_quiet.verdict == "not_quiet"
    [reason] = [one for one in found.reasons if one.startswith("host not quiet")]
    assert "the disk took 5 ms per request of 128 KiB, and 1 ms in 3 other repeats" in reason
    assert evaluate(served(1.1), repeats=USUAL).host_quiet.verdict == "quiet"


@pytest.mark.parametrize("others", [[], USUAL[:1]])
def test_a_disk_without_two_other_repeats_is_not_judged(others: list[Record]) -> None:
    found = evaluate(served(5.0), repeats=others)
    assert (found.disk_speed.verdict, found.host_quiet.verdict) == ("unknown", "quiet")


def printed(text: str, size: int = 10, **changes: Any) -> Record:
    stdout = {"bytes": size, "hashed_bytes": size, "sha256": text * 64}
    data = plain_record(trial_id=f"t{text}", **changes)
    return record_from_json({**data, "exit": {"status": 0, "oom_kill": 0, "stdout": stdout}})


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [
        (printed("a"), [printed("a")], "same"),
        (printed("a"), [printed("a"), printed("b")], "same"),
        (printed("b", 4), [printed("a"), printed("a")], "differs"),
        (printed("a"), [printed("b")], "differs"),
        (printed("a"), [], "unknown"),
        (served(1.0), [printed("a")], "unknown"),
    ],
)
def test_the_output_of_most_repeats_is_the_one_to_have(
    own: Record, others: list[Record], word: str
) -> None:
    assert judge_output(own, others).verdict == word


def test_another_output_excludes_only_where_it_must_be_the_same() -> None:
    others = [printed("a"), printed("a")]
    assert evaluate(printed("b", 4), repeats=others).reasons == ()
    [reason] = evaluate(printed("b", 4, conditions=["same-output"]), repeats=others).reasons
    assert reason == "output differs: It printed 4 bytes to standard output, and the others 10."
    assert evaluate(printed("a", conditions=["same-output"]), repeats=others).reasons == ()
    same_size = evaluate(printed("b", conditions=["same-output"]), repeats=others)
    assert "of other content" in same_size.reasons[0]


def test_repeats_are_trials_of_one_treatment_with_an_answer() -> None:
    made = [
        record_from_json(plain_record(trial_id=name, treatment={"cage": cage}, outcome=outcome))
        for name, cage, outcome in (
            ("a", "tenth", "ok"),
            ("b", "tenth", "ok"),
            ("c", "tenth", "failed"),
            ("d", "half", "ok"),
        )
    ]
    found = others_by_trial(made)
    assert {name: [one.trial_id for one in others] for name, others in found.items()} == {
        "a": ["b"],
        "b": ["a"],
        "c": ["a", "b"],
        "d": [],
    }


def test_settings_that_differ_between_repeats_are_named() -> None:
    moments = ({"nice": 0, "frequencies_khz": [1, 2]}, {"nice": 19, "frequencies_khz": [3, 4]})
    records = [record_from_json(plain_record(machine={"before": one})) for one in moments]
    assert list(setting_differences(records)) == ["different nice values: 1 × 0, 1 × 19"]
    assert list(setting_differences(records[:1])) == []
