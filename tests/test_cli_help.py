"""Help pages, the manual page and the completions: complete, short, and true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pagecage.cli.main import RENAMED, split_verbosity
from pagecage.cli.manual import files, verbs
from tests.checkout import freshly, pagecage
from tests.verbs import VERBS

TWO_SCREENS = 100


def shown(top: Path, *words: str) -> str:
    done = pagecage(top, *words)
    assert done.status == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_two_screens_and_has_each_heading_once(
    top: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    text = shown(top, *verb.split(), "--help")
    headings = re.findall(r"(?m)^(\S[^:\n]*):$", text)
    assert len(headings) == len(set(headings)), headings
    assert len(text.splitlines()) <= TWO_SCREENS


def test_help_is_a_word_too(top: Path) -> None:
    assert shown(top, "help", "cage", "show") == shown(top, "cage", "show", "--help")
    assert shown(top, "help") == shown(top, "--help") == shown(top)


def test_the_overview_has_every_verb_with_the_first_line_of_its_page(top: Path) -> None:
    overview = " ".join(shown(top, "--help").split())
    for verb in (verb for verb in VERBS if " " not in verb):
        first = shown(top, verb, "--help").split("\n\n")[1]
        assert f"{verb} {' '.join(first.split()).removesuffix('.')}" in overview


def test_no_verb_lists_cages_that_it_refuses(top: Path) -> None:
    for verb in ("sweep", "memory", "shell"):
        text = shown(top, verb, "--help")
        assert "--cage" not in text
        assert "--no-control" not in text
        assert "--instance" in text


def test_one_option_means_one_thing() -> None:
    """The metavar of an option is the same for every verb that has it."""
    found: dict[str, set[object]] = {}
    for verb in VERBS.values():
        if verb.default_command is None:
            continue
        for argument in verb.assemble_argument_collection():
            for name in {"--size", "--disk", "--cage", "--time"} & set(argument.names):
                found.setdefault(name, set()).add(argument.parameter.metavar)
    words = {"--size": "SIZE", "--disk": "NAME=DIR", "--cage": "CAGE", "--time": "TIME"}
    assert found == {name: {word} for name, word in words.items()}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_ends_with_the_new_one(top: Path, old: str) -> None:
    done = pagecage(top, *old.split(), "x")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith(f"pagecage: pagecage {old} has a new name: pagecage ")
    new = RENAMED[old].split()
    verb = " ".join(new[: 2 if new[0] in ("articles", "cage", "volume") else 1])
    assert verb in VERBS, f"{old} names {verb}"


def test_verbosity_is_taken_from_anywhere_before_the_command() -> None:
    assert split_verbosity(["run", "-q", "x"]) == (["run", "x"], -1)
    assert split_verbosity(["--verbose", "run", "x"]) == (["run", "x"], 1)
    words = ["replay", "c", "--", "grep", "-q"]
    assert split_verbosity(words) == (words, 0)


def test_quiet_prints_results_and_errors_alone(top: Path) -> None:
    loud, quiet = pagecage(top, "runs"), pagecage(top, "runs", "-q")
    assert "0 runs" in loud.stderr
    assert quiet.stderr == ""
    assert "there is no run 'x'" in pagecage(top, "-q", "show", "x").stderr


def test_the_manual_and_the_completions_have_every_verb_and_option() -> None:
    made = files()
    page = made.pop("share/man/man1/pagecage.1")
    assert page.startswith(".TH PAGECAGE 1")
    for words in verbs():
        assert f".SS pagecage {' '.join(words)}\n" in page
        verb = VERBS[" ".join(words)]
        for argument in verb.assemble_argument_collection() if verb.default_command else ():
            for name in argument.names if argument.show and not argument.children else ():
                if name.startswith("--") and not name.startswith(("--no-", "--empty-")):
                    assert name.replace("-", r"\-") in page, (words, name)
    assert not re.search(r"(?m)^\.(?!TH|SH|SS|nf|fi|TP|PP)", page), "a line begins with a request"
    for path, completion in made.items():
        assert "replay" in completion, path
        assert "fail-if" in completion, path


@pytest.mark.parametrize("words", [("--help",), ("help", "run"), ("list",)])
def test_a_new_process_answers_too(top: Path, words: tuple[str, ...]) -> None:
    assert freshly(top, *words).stdout == pagecage(top, *words).stdout
