"""Ends of a command that fails, and the fixes that it names."""

from __future__ import annotations

import ast
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.cli import failures, listing, main
from pagecage.cli.failures import fix_here
from pagecage.errors import EXIT_HOST, NO_THREAD, RUNNERS, HostError, PagecageError
from pagecage.process import spawn
from tests.tree import ROOT, files

HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Restore what main() changes of this process, as it was afterwards; and a log that is no
    checkout's.
    """
    before = {number: signal.getsignal(number) for number in HANDLED}
    monkeypatch.setattr(failures, "LOG", tmp_path / "log/defect.log")
    monkeypatch.delenv(failures.SHOW, raising=False)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["pagecage", *words])
    return main.main()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("rnu smoke", "pagecage has no verb 'rnu'\n  fix: did you mean \"run\"?"),
        ("cage shw", "pagecage cage has no verb 'shw'\n  fix: did you mean \"show\"?"),
        ("qqqq", "pagecage has no verb 'qqqq'\n  fix: pagecage --help"),
        ("export x --zzz", "Unknown option: --zzz\n  fix: pagecage export --help"),
        ("export x --format q", "Unknown option: --format\n  fix: pagecage export --help"),
        (
            "replay --cage customer -- true",
            "pagecage replay requires CAGE before --\n  fix: pagecage replay --help",
        ),
        (
            "memory -- true",
            "pagecage memory requires CAGE before --\n  fix: pagecage memory --help",
        ),
        (
            "sweep --vary IOReadIOPSMax=1 -- true",
            "pagecage sweep requires CAGE before --\n  fix: pagecage sweep --help",
        ),
        ("run", "pagecage run requires NAME\n  fix: pagecage run --help"),
        ("replay", "pagecage replay requires CAGE\n  fix: pagecage replay --help"),
        ("sweep customer smoke", "pagecage sweep requires --vary\n  fix: pagecage sweep --help"),
        ("list x", "pagecage list takes no argument 'x'\n  fix: pagecage list --help"),
        ("run smoke --hots vm", "Unknown option: --hots\n  fix: did you mean --host?"),
        (
            "run smoke --repeats 0",
            'Invalid value "0" for --repeats: must be >= 1\n  fix: pagecage run --help',
        ),
        (
            "run x --fresh q",
            'Invalid value "q" for --fresh\n  fix: choose from: "never", "run", "block", "trial"',
        ),
        ("run x --fresh bloc", 'Invalid value "bloc" for --fresh\n  fix: did you mean "block"?'),
        (
            "run x --size",
            'Command "run" parameter --size requires an argument\n  fix: pagecage run --help',
        ),
    ],
)
def test_a_mistake_in_the_words_is_told_as_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, says: str
) -> None:
    status = 125 if words.split()[0] in RUNNERS else 2
    assert ended(monkeypatch, *words.split()) == status
    assert capsys.readouterr() == ("", f"pagecage: {says}\n")


@pytest.mark.parametrize(
    "error", [PagecageError("a\nb \x1b[2J", "ls\tx"), HostError("no \udcff :smile: [red]x[/]", "y")]
)
def test_whatever_stands_in_a_sentence_it_is_one_line(
    capsys: pytest.CaptureFixture[str], error: PagecageError
) -> None:
    assert failures.report(error) == error.exit_code
    out, said = capsys.readouterr()
    assert out == ""
    assert said in (
        "pagecage: a\\nb \\x1b[2J\n  fix: ls\\tx\n",
        "pagecage: no \\udcff :smile: [red]x[/]\n  fix: y\n",
    )


def defect(monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*_: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr(listing, "_summary_row", fail)
    return ended(monkeypatch, "list")


def test_a_defect_is_told_as_one_and_its_traceback_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert defect(monkeypatch) == 1
    said = capsys.readouterr().err
    assert said.startswith("pagecage: internal error: KeyError: ")
    assert said.count("\n") == 2
    assert (
        f"  fix: report this defect with {failures.LOG} (PAGECAGE_TRACEBACK=1 prints the traceback)"
        in said
    )
    kept = failures.LOG.read_text()
    assert kept.startswith("Traceback")
    assert "in list_experiments" in kept


@pytest.mark.parametrize("why", ["asked for", "no log can be written"])
def test_the_traceback_of_a_defect_can_be_had_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str, tmp_path: Path
) -> None:
    if why == "asked for":
        monkeypatch.setenv(failures.SHOW, "1")
    else:
        (tmp_path / "log").write_text("a file where the folder should be")
    assert defect(monkeypatch) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith("  fix: report this defect with the traceback above\n")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device", "/runs/a"), "/runs/a: No space left on device"),
        (OSError(5, "Input/output error"), "pagecage: Input/output error"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "fix: end other processes"),
        (FileNotFoundError(2, "No usable temporary directory found in ['/x']"), "fix: set TMPDIR"),
        (RuntimeError(NO_THREAD), "no further thread can be started"),
    ],
)
def test_a_refusal_of_the_system_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, says: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", refuse)
    assert ended(monkeypatch, "list") == EXIT_HOST
    printed = capsys.readouterr().err
    assert says in printed
    assert "internal error" not in printed


@pytest.mark.parametrize("words", [["list"], ["lost"]])
def test_output_that_cannot_be_written_has_a_status_of_its_own(words: list[str]) -> None:
    argv = [sys.executable, "-m", "pagecage.cli.main", *words]
    with Path("/dev/full").open("wb") as full:
        process = spawn(argv, stdout=full, stderr=full, cwd=ROOT)
    assert process.wait() == EXIT_HOST


TARGETS = re.findall(r"(?m)^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text())
COMMAND = re.compile(rf"\bmake ({'|'.join(TARGETS)})\b")


def hints() -> Iterator[str]:
    """Yield strings of the code, besides docstrings, and messages of roles that name a target."""
    for path in files(ROOT / "pagecage", ".py"):
        tree = ast.parse(path.read_text())
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if id(node) not in told and path.name != "fixes.py":
                yield node.value
    for path in files(ROOT / "ansible/roles", ".yml"):
        yield from re.findall(r"Fix: ([^\n]*)", path.read_text())


def test_an_installed_package_names_commands_that_it_has() -> None:
    found = {text for text in hints() if COMMAND.search(text)}
    assert "make setup" in found
    assert any("make build" in text for text in found)
    assert [hint for hint in found if COMMAND.search(fix_here(hint, is_installed=True))] == []
    assert [hint for hint in found if fix_here(hint, is_installed=False) != hint] == []
