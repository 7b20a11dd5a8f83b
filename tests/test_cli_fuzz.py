"""Random option values for every verb: a refusal is one sentence, with exit status 2 or 3.

Verbs, options and their types are read from cyclopts, so that new ones are tested at once. Hosts
refuse (tests/refusing.py), and no value names a writable path outside the checkout.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from cyclopts import App
from cyclopts.argument import Argument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bad_inputs import GOOD, BadCheckout, bad, complaint
from tests.verbs import VERBS

__all__ = ["bad"]
_EXAMPLES = 12
LEAVES = {verb: app for verb, app in VERBS.items() if app.default_command is not None}
KNOWN = (
    *("smoke", "prefault", "customer", "tenth", "uncaged", "aws-gp3", "azure-p10", "auto", "local"),
    *("vm", "rack", "r1", "p-list", "r-none", "fleet", "latest-gone", "limits", "host_quiet"),
    *("1GiB", "64MiB", "5%", "200MB", "none", "m7i.large", "iostat,sar", "read_seconds > +10%"),
    *("IOReadIOPSMax=1,2", "MemoryMax=64MiB,128MiB", "pattern=random", "bad", "bad/unit"),
    *("bad/empty", "bad/cut.zip", "nowhere/x", "/dev/null", "/etc/passwd", "/etc/passwd/x", "-"),
)
ODD = (
    "",
    " ",
    "\n",
    "-1",
    "0",
    "1.5",
    "nan",
    "inf",
    "1e309",
    "9" * 30,
    "x" * 300,
    "é",
    "\udcff",
    "a\0b",
    "²",
    "[",
    "%s",
    "{}",
)
RUNS_COMMANDS = {"--each-query"}
"""Options whose values are commands for a shell, and decide about the exit status."""
SAFE = st.text(max_size=8).filter(lambda text: not text.startswith("/") and ".." not in text)
WORDS = st.sampled_from(KNOWN) | st.sampled_from(ODD) | SAFE
NUMBERS = (
    st.integers(-10, 200).map(str)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(ODD)
)


def kinds(hint: Any) -> Iterator[Any]:
    """Return strategies for one value of an argument: the parts of a union, the items of a tuple or
    a list.
    """
    if get_origin(hint) is Literal or not get_args(hint):
        yield hint
    else:
        for part in get_args(hint):
            if part not in (type(None), ...):
                yield from kinds(part)


def values(argument: Argument) -> st.SearchStrategy[str]:
    """Return strategies for the words typed for an argument: valid ones and others."""
    strategies: list[st.SearchStrategy[str]] = []
    for kind in kinds(argument.hint):
        if get_origin(kind) is Literal:
            strategies.append(st.sampled_from([str(choice) for choice in get_args(kind)]))
        elif kind in (int, float):
            strategies.append(NUMBERS)
    return st.one_of(*strategies, WORDS) if strategies else WORDS


def typed(argument: Argument) -> st.SearchStrategy[list[str]]:
    """An option with its value, in either of its two forms; a flag alone or with a value that it
    may not have.
    """
    name = st.sampled_from([name for name in argument.names if name.startswith("--")])
    if argument.hint is bool:
        return name.map(lambda flag: [flag]) | st.builds(
            lambda flag, value: [f"{flag}={value}"], name, WORDS
        )
    value = values(argument)
    return st.builds(lambda key, text: [key, text], name, value) | st.builds(
        lambda k, t: [f"{k}={t}"], name, value
    )


@st.composite
def commands(draw: st.DrawFn, verb: str, app: App) -> list[str]:
    """A verb with some of its options, and for its positional words anything."""
    arguments = [
        each for each in app.assemble_argument_collection() if each.parse and not each.children
    ]
    options = [
        each
        for each in arguments
        if any(name.startswith("--") and name not in RUNS_COMMANDS for name in each.names)
    ]
    placed = [each for each in arguments if each.index is not None]
    words = [draw(values(each)) for each in placed if draw(st.integers(0, 9)) < 9]
    for option in draw(st.lists(st.sampled_from(options), max_size=4)) if options else []:
        words += draw(typed(option))
    if verb in ("replay", "sweep", "memory"):
        words += draw(st.sampled_from([[], ["--"], ["--", "true"], ["--", "cat", "bad/unit"]]))
    return [*verb.split(), *words]


def test_every_verb_that_does_something_is_tried() -> None:
    assert set(VERBS) - set(LEAVES) == {"articles", "cage", "host", "volume"}
    options = {
        name
        for app in LEAVES.values()
        for each in app.assemble_argument_collection()
        for name in each.names
    }
    assert {
        *("--repeats", "--cold", "--vary", "--slowdown", "--data-dir", "--disk", "--fail-if"),
        *("--min-iops", "--password-file"),
    } < options


@pytest.fixture(scope="module")
def ground(bad: BadCheckout) -> BadCheckout:
    """The checkout with whole definitions, so that verbs go on, and without the whole run, whose
    report takes long.
    """
    for path in [*(bad.top / "experiments").glob("bad-*"), *(bad.top / "cgroups").glob("bad-*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(bad.top / "runs" / GOOD)
    return bad


@pytest.mark.parametrize("verb", LEAVES)
def test_no_value_of_an_option_is_answered_by_a_traceback(ground: BadCheckout, verb: str) -> None:
    @settings(max_examples=_EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(words=commands(verb, LEAVES[verb]))
    def tried(words: list[str]) -> None:
        before = {path.name for path in (ground.top / "runs").iterdir()}
        done = ground.run(*words)
        assert "Traceback" not in done.stderr
        assert done.status == 0 or complaint(done) is None, (
            f"{words}: {complaint(done)}: {done.stderr}"
        )
        assert {path.name for path in (ground.top / "runs").iterdir()} == before

    tried()
