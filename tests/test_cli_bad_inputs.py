"""Bad input over every verb: one sentence, exit status 2 or 3, nothing of Python's, and nothing
written anywhere.
"""

from __future__ import annotations

import shlex

import pytest

from tests.bad_inputs import (
    ARCHIVES,
    CAGES,
    EXPERIMENTS,
    FILES,
    GOOD,
    PLANS,
    RECORDS,
    BadCheckout,
    bad,
    complaint,
)
from tests.checkout import PLAIN
from tests.tree import ROOT
from tests.verbs import VERBS

__all__ = ["bad"]
ODD = {
    "{long}": "x" * 5000,
    "{nul}": "a\0b",
    "{bytes}": "\udcff\udcfe",
    "{lines}": "a\nb",
    "{good}": GOOD,
}
TABLE = (ROOT / "tests/fixtures/bad-inputs.txt").read_text()


def rows() -> list[tuple[tuple[str, ...], str]]:
    """The table, and a command for everything bad that lies in the checkout."""
    typed = [line.rpartition(" -> ") for line in TABLE.splitlines() if not line.startswith("#")]
    found = [(tuple(shlex.split(command)), says) for command, _, says in typed]
    for run in [*PLANS, *RECORDS]:
        reading = (("show", run), ("predict", run), ("compare", GOOD, run))
        found += [(words, run) for words in (*reading, ("publish", run, "--out", "never"))]
    found += [(("run", run, "--resume"), run) for run in PLANS]
    exported = ("p-deep", "p-list", "p-definition")
    found += [(("export", run, "--out", "never"), run) for run in exported]
    planned = ("--dry-run", "--host", "local", "--dataset", "full")
    found += [(("run", f"bad-{name}", *planned), f"bad-{name}") for name in EXPERIMENTS]
    shown = [f"bad-{name}" for name in CAGES if name != "little"]
    found += [(("cage", "show", name), name) for name in shown]
    dry = ("run", "smoke", "--dry-run", *PLAIN, "--cage")
    found += [((*dry, f"bad-{name}"), "") for name in CAGES]
    found += [(("cage", "import", f"bad/{name}"), "") for name in FILES]
    return found + [(("import", f"bad/{name}"), name) for name in ARCHIVES]


ROWS = rows()


def odd(word: str) -> str:
    for name, text in ODD.items():
        word = word.replace(name, text)
    return word


def test_the_table_is_long_and_covers_every_verb() -> None:
    commands = {words for words, _ in ROWS}
    assert len(commands) == len(ROWS) >= 150
    for verb in VERBS:
        assert any(words[: len(verb.split())] == tuple(verb.split()) for words in commands), verb


@pytest.mark.parametrize(("words", "says"), ROWS, ids=[" ".join(words)[:70] for words, _ in ROWS])
def test_it_is_one_sentence_and_nothing_is_done(
    bad: BadCheckout, words: tuple[str, ...], says: str
) -> None:
    before = bad.written()
    done = bad.run(*map(odd, words))
    assert complaint(done) is None, done.stderr
    assert says in done.stderr
    assert bad.written() == before
