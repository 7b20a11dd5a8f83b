"""Tests of the columns of published figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import pytest

from analysis.articles import tables
from analysis.articles.pages import scorecard_page
from analysis.articles.ratios import HostedScorecard
from analysis.articles.scorecard import Deviation, Scorecard, ScoredClaim, what_decides
from analysis.articles.tables import format_scored_measurement, row_texts
from pagecage.model.json_codec import Json
from pagecage.report.model import to_markdown

ROW = ScoredClaim("003-1", "a", "x;y", 2.0, "s", 1.5, 1.25, 1.75, 3, "held", "because", "", None)
TITLES = {"003": {"title": "a tour", "remark": "It counts bits."}}


@dataclass(frozen=True)
class DatedClaim(ScoredClaim):
    """A row with the date of its rule."""

    rule_changed: str | None = None


def scored(row: ScoredClaim) -> HostedScorecard:
    return HostedScorecard(Scorecard((row,), TITLES), {})


def test_a_row_has_its_figures_with_the_interval_and_no_host_without_a_run() -> None:
    shown = row_texts(scored(ROW), ROW)
    expected = {
        "figure": "003-1",
        "experiment": "a",
        "statement": "x, y",
        "published": "2 s",
        "measured": "1.5 s (1.25 – 1.75 s, n 3)",
        "verdict": "✓ held",
        "host": "–",
        "run": "–",
        "reason": "because",
    }
    assert {heading: shown[heading] for heading in expected} == expected


def test_the_date_of_a_rule_is_shown_where_rows_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ScoredClaim", DatedClaim)
    dated = DatedClaim(**{**asdict(ROW), "rule_changed": "2026-11-20"})
    shown = row_texts(scored(dated), dated)
    assert shown["rule changed"] == "2026-11-20"


def test_a_figure_of_excluded_trials_is_in_brackets() -> None:
    row = replace(ROW, verdict="no_data", n=1)
    assert format_scored_measurement(row) == "(1.5 s (n 1)) †"


def test_a_row_about_the_set_up_is_counted_apart_from_measured_ones() -> None:
    page = to_markdown(scorecard_page(scored(ROW)))
    assert "0 of 1 rows have a measured figure, from 0 runs. 1 more are compared with" in page
    assert "* 003: It counts bits.\n" in page


def failing(number: int) -> ScoredClaim:
    return replace(ROW, id=f"003-{number}", verdict="not_held")


def test_what_does_not_hold_is_grouped_by_cause_tested_causes_first() -> None:
    card = Scorecard((failing(1), failing(2), failing(3), failing(4)), TITLES)
    deviations = (
        Deviation(("003-1",), "memory", ("a",), untested="a slower memory"),
        Deviation(("003-2", "003-3"), "the disk gives {003-2}", ("a",), tested="two jobs"),
    )
    page = to_markdown(scorecard_page(HostedScorecard(card, {}), deviations))
    tested, untested = page.index("could have refuted"), page.index("Plausible causes, not tested")
    disk = "| 003-2 to 003-3 | 2 | the disk gives 1.5 s (1.25 – 1.75 s, n 3) (`a`) | two jobs |"
    assert tested < page.index(disk) < untested
    assert untested < page.index("| 003-1 | 1 | memory (`a`) | a slower memory |")
    assert "Without a cause so far: 003-4." in page
    assert page.count("memory (`a`)") == 1


def test_what_is_undecided_is_named_with_a_machine_and_a_command() -> None:
    row = replace(ROW, verdict="undecided", machine="a real CPU", command="make experiment NAME=a")
    page = to_markdown(scorecard_page(scored(row)))
    assert "| 003-1 | 1 | a real CPU | `make experiment NAME=a` |" in page


@pytest.mark.parametrize(
    ("claim", "verdict", "machine", "command"),
    [
        ({"response": "loads_ram_percent"}, "no_data", "perf mem", "SIZE=full"),
        ({"over_boot": True}, "no_data", "restarted", "RESUME=1"),
        ({"response": "lower_device_reads_per_second"}, "no_data", "stacked disk", "SIZE=full"),
        ({"rule": "decoded", "response": "vm_flags"}, "no_data", "traced", "HOST=vm"),
        ({}, "undecided", "more repeats", "REPEATS=10"),
        ({"n": 1}, "undecided", "more repeats", "REPEATS=3"),
        ({}, "not_run", "memory and disk for 2 x 1GiB", "SIZE=full"),
    ],
)
def test_a_machine_follows_from_the_response_and_the_verdict(
    claim: Json, verdict: str, machine: str, command: str
) -> None:
    definition = {"sizes": {"full": {"files": 2, "dataset": "1GiB"}}}
    n = claim.pop("n", 3)
    found = what_decides("a", {"rule": "absolute", **claim}, definition, verdict, n)
    assert machine in found[0]
    assert found[1].startswith("make experiment NAME=a ")
    assert found[1].endswith(command)
