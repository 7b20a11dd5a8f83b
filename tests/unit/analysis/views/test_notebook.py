"""Tests of the notebook's parts: all that have data, in order, and no empty ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.views.notebook import Results
from pagecage.model.json_codec import Json
from tests.fixtures.runs import DEFINITION, ROOT, build_run

OPTIONAL = (
    *("answer", "figure", "latencies", "claims", "amplification", "timelines", "residency"),
    *("kernel", "facts"),
)


def bare(record: Json) -> None:
    """Change a record to that of a program without traces."""
    record["traces"], record["collectors"] = {}, {}
    if record["response"]:
        record["response"] = {"read_seconds": 1.0 + record["position"]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(build_run(tmp_path_factory.mktemp("whole") / "run"))


def there(results: Results) -> set[str]:
    return {name for name in OPTIONAL if getattr(results, name) is not None}


def test_parts_without_data_are_left_out(tmp_path: Path) -> None:
    definition = {**DEFINITION, "claims": [], "response": "read_seconds"}
    folder = build_run(tmp_path / "run", bare, definition=definition, experiment="other")
    results = Results(folder)
    assert there(results) == {"figure", "facts"}
    assert "Nothing" not in results.evidence.text


def test_parts_with_data_are_all_there(whole: Results) -> None:
    assert there(whole) == set(OPTIONAL) - {"answer", "latencies"}


def test_a_strip_is_drawn_without_a_numeric_factor(whole: Results) -> None:
    assert whole.figure is not None
    assert whole.figure.text.count("<svg") == 1
    assert "one point per trial" in whole.figure.text


def test_claims_come_with_those_that_no_run_tests_folded(tmp_path: Path) -> None:
    claims = Results(build_run(tmp_path / "run", experiment="random-memory")).claims
    assert claims is not None
    text = claims.text
    assert text.index("003-196") < text.index("published figures that cannot be tested here")
    assert "003-169" in text
    assert "a remainder for each byte" in text


def test_a_claim_that_the_run_says_nothing_about_is_folded(tmp_path: Path) -> None:
    claims = [dict(DEFINITION["claims"][0], response="no_such_seconds"), *DEFINITION["claims"][1:]]
    definition = {**DEFINITION, "claims": claims}
    html = Results(build_run(tmp_path / "run", definition=definition)).claims
    assert html is not None
    shown, _, folded = html.text[1:].partition("<details>")
    assert "published figures without a figure from this run (1)" in folded
    assert "003-177<" in folded
    assert "003-177<" not in shown


def test_the_notebook_shows_every_part_of_the_results_once() -> None:
    source = (ROOT / "analysis/notebooks/report.py").read_text()
    parts = [name for name in vars(Results) if isinstance(vars(Results)[name], property)]
    missing = [name for name in parts if f"\nresults.{name}\n" not in source]
    assert missing == ["strips"]
    order = ["heading", "answer", "cells", "figure", "diagnosis", "claims", "story", "evidence"]
    order += ["trials", "making"]
    places = [source.index(f"results.{name}\n") for name in order]
    assert places == sorted(places)
