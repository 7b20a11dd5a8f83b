"""`pagecage cold` as a user meets it: certificates, commands and queries on real files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builders.mapped import mapped
from tests.checkout import pagecage
from tests.order.conftest import on_disk

__all__ = ["on_disk"]
PAGES = 32


@pytest.fixture
def data(on_disk: Path) -> Path:
    """A folder with two files that are in the page cache."""
    folder = on_disk / "some data"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_bytes(os.urandom(PAGES * 4096))
    os.sync()
    return folder


def certificate(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_certificate_for_people_and_for_programs(top: Path, data: Path) -> None:
    done = pagecage(top, "cold", str(data))
    assert (done.status, done.stderr) == (0, "")
    first, *rows = done.stdout.splitlines()
    assert first.startswith(
        f"cold: 2 files, 256 KiB: 0 pages in the page cache, {2 * PAGES} before"
    )
    assert rows[:2] == ["    before     after  file", f"        {PAGES}         0  {data}/a"]
    done = pagecage(top, "cold", str(data), "--json")
    found = certificate(done.stdout)
    assert abs(found["unix_seconds"] - time.time()) < 60
    assert (found["pages_before"], found["pages_after"], found["is_cold"]) == (0, 0, True)


def test_a_command_runs_on_cold_files(top: Path, data: Path, on_disk: Path) -> None:
    target = on_disk / "certificate.json"
    words = ("cold", str(data), "--certificate", str(target), "--", "sh", "-c")
    done = pagecage(top, *words, 'wc -l < "$0"/a; exit 7', str(data))
    assert done.status == 7
    assert done.stdout.strip().isdigit(), "the command's output is its own"
    assert "exit status 7; 0 pages at its start" in done.stderr
    run = certificate(target.read_text())["run"]
    assert (run["pages_at_start"], run["pages_at_end"], run["exit_status"]) == (0, PAGES, 7)
    assert run["command"].startswith("sh -c ")


def test_options_after_two_dashes_are_the_commands(top: Path, data: Path) -> None:
    done = pagecage(top, "cold", str(data / "a"), "--json", "--", "wc", "--bytes", str(data / "a"))
    found = certificate(done.stdout)
    assert done.status == 0
    assert found["run"]["command"].startswith("wc --bytes ")
    assert str(PAGES * 4096) in done.stderr, "with --json the command's output is not on stdout"


def test_a_signal_is_reported_as_a_shell_does(top: Path, data: Path) -> None:
    done = pagecage(top, "cold", str(data), "--", "sh", "-c", "kill -TERM $$")
    assert done.status == 128 + 15
    assert "ended by signal 15" in done.stderr


def test_each_query_starts_cold_and_the_first_failure_ends_them(top: Path, data: Path) -> None:
    read = f"cat '{data}/a' > /dev/null"
    queries = [word for query in (read, read, "exit 3", read) for word in ("--each-query", query)]
    done = pagecage(top, "cold", str(data), *queries, "--json")
    assert done.status == 3
    found = certificate(done.stdout)
    runs = [query["run"] for query in found["queries"]]
    assert [run["command"] for run in runs] == [read, read, "exit 3"]
    assert [run["pages_at_start"] for run in runs] == [0, 0, 0]
    assert [run["pages_at_end"] for run in runs] == [PAGES, PAGES, 0]
    assert [query["pages_before"] for query in found["queries"]][1:] == [PAGES, PAGES]


def test_pages_that_stay_are_named_and_no_command_is_started(
    top: Path, data: Path, on_disk: Path
) -> None:
    target = on_disk / "certificate.json"
    command = ("--", "touch", str(on_disk / "started"))
    with mapped(data / "a"), mapped(data / "a") as process:
        words = ("cold", str(data), "--certificate", str(target))
        done = pagecage(top, *words, *command)
        allowed = pagecage(top, "cold", str(data), "--allow-pages", str(PAGES))
    assert done.status == 125
    assert f"(pid {process.pid})" in done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"  fix: end what holds them, or allow them: --allow-pages {PAGES}"
    )
    assert not (on_disk / "started").exists()
    found = certificate(target.read_text())
    assert (found["is_cold"], found["pages_after"], found["run"]) == (False, PAGES, None)
    assert (allowed.status, f"{PAGES} pages in the page cache" in allowed.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no file was given"),
        (("--", "true"), "no file was given"),
        (("{data}", "--"), "there is no command after --"),
        (("{data}", "--", "nope-program"), "there is no program 'nope-program'"),
        (("{data}", "--each-query", "true", "--", "true"), "are mutually exclusive"),
        (("{data}/nope",), "nope does not exist"),
        (("{data}", "--certificate", "/proc/x"), "/proc/x cannot be written"),
    ],
)
def test_bad_input_starts_nothing(top: Path, data: Path, words: tuple[str, ...], says: str) -> None:
    done = pagecage(top, "cold", *(word.format(data=data) for word in words))
    status = 127 if "no program" in says else 125
    assert (done.status, says in done.stderr) == (status, True), done.stderr
