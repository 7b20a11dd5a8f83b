"""Tables, verdicts and claims of every stored run, compared with their stored results."""

from __future__ import annotations

import pytest

from tests.fixtures.small_runs import NAMES
from tests.fixtures.stored_results import FOLDER, leaves, texts


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return dict(texts(tmp_path_factory.mktemp("runs")))


@pytest.mark.parametrize("name", [*NAMES, "scorecard"])
def test_results_of_stored_runs_stay_as_they_are(computed: dict[str, str], name: str) -> None:
    """`python -m tests.fixtures.stored_results` stores them again; the commit message gives the
    reason.
    """
    stored = (FOLDER / f"{name}.json").read_text()
    changed = [
        pair
        for pair in zip(stored.splitlines(), computed[name].splitlines(), strict=False)
        if pair[0] != pair[1]
    ]
    assert computed[name] == stored, changed[:3]


def test_no_result_is_stored_without_its_run(computed: dict[str, str]) -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(computed)


def test_leaves_are_numbers_and_words_without_sentences() -> None:
    value = {
        "a": [1, 2.5, None],
        "because": "the disk was busy",
        "verdict": "enforced",
        "b": {"c": True},
    }
    assert list(leaves(value)) == [1, 2.5, None, "enforced", True]
