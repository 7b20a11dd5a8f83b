"""`pagecage cage import` and `pagecage probe` as typed, including those in the documents."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest

from pagecage.process import run, spawn
from tests.checkout import environment, pagecage
from tests.tree import ROOT

FIXTURES = ROOT / "tests/fixtures/imports"
GUIDE = (ROOT / "docs/SUPPORT.md").read_text().replace("\\\n", " ")
SHOWN = sorted(set(re.findall(r"pagecage cage import [^`\n]+", GUIDE)))


@pytest.fixture
def files(top: Path) -> Path:
    """A checkout in which the customer's files lie."""
    for path in FIXTURES.iterdir():
        shutil.copy(path, top / path.name)
    return top


@pytest.mark.parametrize("command", SHOWN)
def test_every_import_that_the_guide_shows_is_done(files: Path, command: str) -> None:
    done = pagecage(files, *shlex.split(command)[1:])
    assert done.ok, done.stderr
    assert "imported" in done.stdout


def test_the_guide_shows_every_format() -> None:
    named = {
        word
        for command in SHOWN
        for word in command.split()
        if word in {p.name for p in FIXTURES.iterdir()}
    }
    assert named == {p.name for p in FIXTURES.iterdir()} - {
        "README.md",
        "kubectl-deployment.yaml",
        "kubectl-deployment.json",
    }


def test_three_lists_for_people(files: Path) -> None:
    done = pagecage(files, "cage", "import", "docker-inspect.json")
    assert [line for line in done.stdout.splitlines() if line and not line.startswith(" ")] == [
        "docker inspect",
        "imported",
        "not imported",
        "ignored, not limits",
    ]
    assert "MemoryMax" in done.stdout
    assert "a share binds only against neighbours" in done.stdout


def test_the_same_as_data(files: Path) -> None:
    found = json.loads(
        pagecage(
            files,
            "cage",
            "import",
            "describe-volumes.json",
            "--pick",
            "vol-0000000000000001b",
            "--json",
        ).stdout
    )
    assert found["volume"]["command"] == "pagecage cage show aws-gp2 --size 100GiB"
    assert set(found) == {
        "origin",
        "cage",
        "understood",
        "not_carried_over",
        "ignored",
        "volume",
        "saved",
    }


def test_what_is_saved_is_a_cage_like_any_other(files: Path) -> None:
    assert pagecage(files, "cage", "import", "probe.json", "--save", "acme").ok
    text = (files / "cgroups/acme.toml").read_text()
    assert "IOReadIOPSMax = 500" in text
    assert pagecage(
        files, "plan", "smoke", "--cage", "acme", "--host", "local", "--size", "smoke", "--json"
    ).ok
    again = pagecage(files, "cage", "import", "probe.json", "--save", "acme")
    assert (again.status, "already" in again.stderr) == (2, True)
    assert pagecage(
        files, "cage", "import", "probe.json", "--save", "acme", "--force", "--digits", "3"
    ).ok
    assert (files / "cgroups/acme.toml").read_text() != text


def test_a_volume_is_saved_with_what_the_catalogue_says_of_it(files: Path) -> None:
    words = (
        "cage",
        "import",
        "describe-volumes.json",
        "--pick",
        "vol-0000000000000001a",
        "--instance",
        "m7i.large",
    )
    done = pagecage(files, *words, "--save", "acme")
    assert done.ok, done.stderr
    shown = json.loads(pagecage(files, "cage", "show", "acme", "--json").stdout)
    same = pagecage(
        files,
        "cage",
        "show",
        "aws-gp3",
        "--size",
        "500GiB",
        "--iops",
        "6000",
        "--throughput",
        "250",
        "--instance",
        "m7i.large",
        "--save",
        "other",
    )
    assert same.ok, same.stderr
    assert (files / "cgroups/acme.toml").read_text() == (files / "cgroups/other.toml").read_text()
    assert shown["name"] == "acme"


def test_standard_input_is_read(files: Path) -> None:
    argv = [sys.executable, "-m", "pagecage.cli.main", "cage", "import", "-"]
    text = (FIXTURES / "pod.yaml").read_text()
    done = run(argv, input_text=text, check=False, cwd=files, env=environment(files))
    assert done.status == 2
    assert "--pick db" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere.json",), "nowhere.json cannot be read"),
        (("README.md",), "pagecage can read the output of kubectl get pod"),
        (("pod.yaml",), "2 containers: db, exporter"),
        (("probe.json", "--instance", "m7i.large"), "applies only to a cloud volume"),
        (("probe.json", "--save", "aws-gp3"), "is a volume type of the catalogue"),
        (("compose.yaml", "--pick", "worker", "--save", "x"), "no limit to save"),
        (("probe.json", "--save", "../x"), "is not a valid name for a cage"),
    ],
)
def test_bad_input_is_a_sentence_with_its_mend(
    files: Path, words: tuple[str, ...], says: str
) -> None:
    done = pagecage(files, "cage", "import", *words)
    assert (done.status, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_text_is_refused(files: Path) -> None:
    (files / "binary").write_bytes(b"\xff\xfe\x00")
    assert "is not text" in pagecage(files, "cage", "import", "binary").stderr


def program(top: Path, script: str) -> Path:
    path = top / "build/host/bin/pcprobe"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_probe_is_named_where_it_lies(top: Path) -> None:
    path = program(top, "exit 1")
    assert pagecage(top, "probe", "--print-path").stdout.strip() == str(path)
    path.unlink()
    missing = pagecage(top, "probe", "--print-path")
    assert (missing.status, "make build" in missing.stderr) == (3, True)


@pytest.mark.parametrize(("status", "ours"), [(0, 0), (1, 1), (2, 2), (77, 3), (130, 130)])
def test_the_probes_exit_status_becomes_one_of_ours(top: Path, status: int, ours: int) -> None:
    program(top, f'echo "$@" > {top}/told/words; exit {status}')
    assert pagecage(top, "probe", str(top), "--yes", "--seconds", "30").status == ours
    words = (top / "told/words").read_text().split()
    assert words == [str(top), "--size", "1024MiB", "--seconds", "30", "--engine", "auto", "--yes"]


def test_whoever_ends_the_command_ends_the_probe(top: Path) -> None:
    """SIGTERM is passed on, and the probe's own answer to it is waited for."""
    program(top, f"trap 'exit 130' TERM\ntouch {top}/told/began\nwhile :; do sleep 0.05; done")
    argv = [sys.executable, "-m", "pagecage.cli.main", "probe", str(top), "--yes"]
    process = spawn(argv, env=environment(top), cwd=top)
    deadline = time.monotonic() + 30
    while not (top / "told/began").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    assert process.wait(30) == 130


def test_a_probe_needs_a_folder(top: Path) -> None:
    program(top, "exit 0")
    done = pagecage(top, "probe")
    assert (done.status, "no directory" in done.stderr) == (2, True)
