"""A command as one text: nothing of it is executed outside of the cage."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cli.replay import command_words, needs_shell
from pagecage.errors import PagecageError
from tests.tree import ROOT

WORDS = {
    "grep -r needle data": ("grep", "-r", "needle", "data"),
    "grep 'a b' \"c d\" e\\ f": ("grep", "a b", "c d", "e f"),
    "grep 'a|b' 'x && y' \"p;q\" a\\;b": ("grep", "a|b", "x && y", "p;q", "a;b"),
    r"echo '$(id)' '`id`' '*' \$HOME": ("echo", "$(id)", "`id`", "*", "$HOME"),
    "awk '{print $1}' f": ("awk", "{print $1}", "f"),
    "a b=c d#e x~": ("a", "b=c", "d#e", "x~"),
    "  spaced\tout  ": ("spaced", "out"),
    "sh -c 'a && b'": ("sh", "-c", "a && b"),
}
SHELL = (
    *("a && b", "a | b", "a; b", "a & b", "a > b", "a < b", "echo $(id)", 'echo "$(id)"'),
    *("echo `id`", 'echo "`id`"', "echo $HOME", 'echo "x $HOME"', "ls *.txt", "ls a?", "ls [ab]"),
    *("(a)", "a\nb", "ls ~", "ls ~/x", "A=1 b", r'echo "a\$b"', "a \\\nb", "! a", "a # b"),
)


@pytest.mark.parametrize("text", WORDS)
def test_a_program_with_arguments_needs_no_shell(text: str) -> None:
    words, said = command_words(text)
    assert words == WORDS[text]
    assert "a program with arguments" in said


@pytest.mark.parametrize("text", SHELL)
def test_signs_of_a_shell_are_for_a_shell_in_the_cage(text: str) -> None:
    words, said = command_words(text)
    assert words == ("sh", "-c", text)
    assert "by a shell: sh -c" in said


@pytest.mark.parametrize("text", ["", "   ", "''", "'a", 'a "b', "a\\", "a\0b"])
def test_a_text_that_names_no_program_is_refused(text: str) -> None:
    with pytest.raises(PagecageError, match="--command"):
        command_words(text)


@given(st.text("ab'\"\\$`|&;*?[]~#!= \n", max_size=12))
def test_what_needs_no_shell_is_split_as_a_shell_splits_it(text: str) -> None:
    try:
        words, _ = command_words(text)
    except PagecageError:
        return
    if needs_shell(text):
        assert words == ("sh", "-c", text)
        return
    script = f"set -f; printf '%s\\0' {text}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert tuple(done.stdout.decode().split("\0")[:-1]) == words


@pytest.mark.parametrize(
    "text",
    [
        *("true && touch outside", "true | touch outside", "true; touch outside"),
        *("echo $(touch outside)", "echo `touch outside`", 'echo "$(touch outside)" \''),
        *("a'; touch outside; '", "$(touch outside)", "$(shell touch outside)", "echo $HOME $$"),
    ],
)
def test_make_replay_passes_the_text_on_and_runs_nothing_of_it(tmp_path: Path, text: str) -> None:
    recorder = tmp_path / "pagecage"
    recorder.write_text('#!/bin/sh\nprintf "%s\\0" "$@" > "$RECORDED"\n')
    recorder.chmod(0o755)
    environment = {**os.environ, "RECORDED": str(tmp_path / "got")}
    argv: list[str | Path] = [
        "make",
        "-s",
        "-f",
        ROOT / "Makefile",
        "replay",
        f"pagecage={recorder}",
    ]
    argv += ["--old-file=ready", "-C", tmp_path, "CAGE=customer", f"CMD={text}"]
    subprocess.run(argv, env=environment, check=True, capture_output=True, timeout=60)
    got = (tmp_path / "got").read_text().split("\0")[:-1]
    assert got == ["replay", "customer", "--host", "auto", "--command", text]
    assert not (tmp_path / "outside").exists()
