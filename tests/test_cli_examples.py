"""Each verb's help ends with examples of its own, and each of them is a command that the parser
takes.
"""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from pagecage.cli.main import app
from tests.verbs import VERBS

_TERMINAL = 80


def shown(verb: str) -> list[str]:
    """The lines below `Examples:` in what `pagecage VERB --help` prints on a terminal of 80
    columns.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        app([*verb.split(), "--help"], exit_on_error=False, result_action="return_value")
    _, _, below = out.getvalue().partition("\nExamples:\n\n")
    return below.partition("\n\n")[0].rstrip().splitlines()


def examples(verb: str) -> list[str]:
    """The commands; a line that ends with a backslash goes on in the next."""
    return "\n".join(shown(verb)).replace("\\\n", " ").splitlines()


def complaint(command: str) -> str | None:
    """Why the parser refuses the words after `pagecage`; what stands before a pipe or after `>` is
    the shell's.
    """
    words = shlex.split(command)
    words = words[words.index("|") + 1 :] if "|" in words else words
    words = words[: words.index(">")] if ">" in words else words
    if words[0] != "pagecage":
        return None
    own = ["data" if word == "/data" else word for word in words[1:]]
    try:
        app.parse_args(own, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def what_examples_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which the files exist that examples name; options refuse files that are not
    there.
    """
    for name in ("run.pagecage.zip", "sudo-password"):
        (tmp_path / name).touch()
    for folder in ("data", "docs/runs"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


def test_the_verbs_are_all_there() -> None:
    assert {"run", "replay", "cage import", "host up", "host inventory", "probe"} < set(VERBS)
    assert len(VERBS) > 25


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_examples_of_its_own_that_parse(verb: str) -> None:
    found = examples(verb)
    own = [line for line in found if f"pagecage {verb}" in line]
    assert own, found
    assert {line: complaint(line) for line in found if complaint(line)} == {}
    for line in shown(verb):
        assert len(line) < _TERMINAL, "a terminal would break the line"
        assert line.startswith("  ")


def test_no_two_verbs_show_the_same() -> None:
    by_examples: dict[tuple[str, ...], str] = {}
    for verb in VERBS:
        found = tuple(examples(verb))
        assert found not in by_examples, f"{verb} and {by_examples[found]}"
        by_examples[found] = verb


@pytest.mark.parametrize(
    "command", ["pagecage run smoke --hots vm", "pagecage host up mv", "x | pagecage cage imprt -"]
)
def test_an_example_that_does_not_parse_is_seen(command: str) -> None:
    assert complaint(command)
