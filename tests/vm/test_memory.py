"""A known working set, which `pagecage memory` finds: of page cache, and of anonymous memory."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.run_files import read_lines
from pagecage.model.trial import CommandSpec, Workload
from pagecage.process import run
from pagecage.units import MIB
from pagecage.verdicts.evaluate import evaluate
from tests.builders.command_line import CommandLine, verdicts
from tests.builders.guest_runs import one_trial, run_in_guest
from tests.builders.known import known
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow]
_WORKING_SET_BYTES = 40 * MIB
_FILE_BYTES = 96 * MIB
_TOLERANCE = 0.05
_LOOPS = 20


@dataclass(frozen=True)
class Search:
    """A finished search: what `show --json` has of it, and its records."""

    memory: dict[str, Any]
    records: list[Record]
    made: CommandLine

    def needed(self, criterion: str) -> int:
        needs = {need["criterion"]: need for need in self.memory["answer"]["needs"]}
        return int(needs[criterion]["needed_bytes"])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program, whose own pages are few, beside a file larger than its working set."""
    folder = tmp_path_factory.mktemp("program")
    compiler = shutil.which("gcc")
    assert compiler, "there is no gcc: make setup"
    path = folder / "pctouch"
    run([compiler, "-O1", "-static", "-o", path, ROOT / "tests/vm/touch.c"], timeout_seconds=60)
    with (folder / "data").open("wb") as file:
        for _ in range(_FILE_BYTES // MIB):
            file.write(os.urandom(MIB))
    return path


def searched(program: Path, runs: Path, target: str, *options: str) -> Search:
    made = CommandLine(runs, "replay-pctouch")
    words = ("--", str(program), target, str(_WORKING_SET_BYTES // MIB), str(_LOOPS))
    host = ("--host", "vm", "--copy-program", "--precision", "3%")
    made.succeed("memory", "uncaged", *host, *options, *words)
    shown = run(made.argv("show", str(made.folder()), "--json"), timeout_seconds=60)
    return Search(json.loads(shown.stdout)["memory"], made.records(), made)


@pytest.fixture(scope="module")
def of_file(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Search:
    data = str(program.parent / "data")
    return searched(program, tmp_path_factory.mktemp("file"), data, "--copy", data, "--cold", data)


@pytest.fixture(scope="module")
def of_anonymous(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Search:
    return searched(program, tmp_path_factory.mktemp("anonymous"), "-")


def test_the_working_set_of_a_mapped_file_is_found(of_file: Search) -> None:
    """The rest of the file, which was read once, is page cache that is not needed."""
    needed = of_file.needed("refaults")
    assert needed >= _WORKING_SET_BYTES
    assert needed == pytest.approx(_WORKING_SET_BYTES, rel=_TOLERANCE)
    assert of_file.memory["answer"]["used_bytes"] > _FILE_BYTES


def test_a_smaller_limit_was_tried_and_made_it_read_again(of_file: Search) -> None:
    needed = of_file.needed("refaults")
    below = [step for step in of_file.memory["steps"] if (step["limit_bytes"] or needed) < needed]
    assert below
    for step in below:
        assert step["refaults_file"] > _WORKING_SET_BYTES / 4096
    assert max(step["limit_bytes"] for step in below) > needed / 1.07


def test_every_limit_of_the_search_is_proven(of_file: Search) -> None:
    for record in of_file.records:
        judged = verdicts(of_file.made, record)
        assert {limit.verdict for limit in judged.limits} <= {"enforced"}, judged.limits
        assert judged.cache_state_reached.verdict == "reached"


@pytest.mark.long
def test_anonymous_memory_is_needed_or_the_program_is_killed(of_anonymous: Search) -> None:
    """Without swap there is nothing between enough and an OOM kill."""
    answer = of_anonymous.memory["answer"]
    assert of_anonymous.needed("refaults") == pytest.approx(_WORKING_SET_BYTES, rel=_TOLERANCE)
    assert all(need["is_killed_below"] for need in answer["needs"])
    assert "the OOM killer ends it" in " ".join(of_anonymous.memory["sentences"])


@pytest.mark.long
def test_damon_sees_the_same_working_set(program: Path, tmp_path: Path) -> None:
    """It watches a run that is long enough for some of its intervals of half a second."""
    data = str(program.parent / "data")
    made = CommandLine(tmp_path)
    options = ("--no-control", "--host", "vm", "--copy-program", "--collectors", "damon")
    words = ("--cold", data, "--copy", data, "--", str(program), data, "40", "1500")
    made.succeed("replay", "uncaged", *options, *words)
    [record] = made.records()
    assert record.collectors["damon"]["status"] == "ok", record.collectors
    rows = read_lines(made.folder(), record, "damon")
    touched = median(row["bytes"] for row in rows if row["bytes"])
    assert touched == pytest.approx(_WORKING_SET_BYTES, rel=_TOLERANCE)


@pytest.mark.long
def test_an_interrupted_search_goes_on_where_it_ended(of_file: Search, tmp_path: Path) -> None:
    """The records alone decide which trial comes next: without the last one, it is run again."""
    folder = tmp_path / of_file.made.folder().name
    shutil.copytree(of_file.made.folder(), folder)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:-1]))
    CommandLine(tmp_path).succeed("run", str(folder), "--resume")
    names = [json.loads(line)["trial_id"] for line in (folder / "records.jsonl").open()]
    assert names == [json.loads(line)["trial_id"] for line in lines]


_HIGH_BYTES = 24 * MIB
_FILL = "b = bytearray(b'1') * (26 << 20); print(len(b))"
_DRIVERS = ["systemd-scope", pytest.param("docker-api", marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=_DRIVERS)
def record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A program that needs a little more memory than the limit from which it is throttled."""
    fill = ("-I", "-c", _FILL)
    trial = one_trial(
        request.param.replace("-", "_"),
        workload=Workload("python3", fill, "command", command=CommandSpec(is_literal=True)),
        cage=Cage("throttled", {"MemoryHigh": _HIGH_BYTES, "MemorySwapMax": 0}),
        timeout_seconds=120.0,
        driver=request.param,
    )
    folder = run_in_guest(tmp_path_factory.mktemp("throttled"), "throttled-vm", trial)
    [found] = folder.records()
    return found


def test_the_program_ends_by_itself_above_the_limit(record: Record) -> None:
    """The kernel throttles and never kills, where MemoryMax would."""
    assert (record.outcome, record.error) == ("ok", None)
    cgroup = known(record.counters.totals)["cgroup"]
    assert cgroup["memory.events"]["high"] > 0
    assert cgroup["memory.events"]["oom_kill"] == 0
    assert cgroup["memory.peak"] > _HIGH_BYTES


def test_the_limit_is_read_back_and_proven(record: Record) -> None:
    assert known(record.cage.read_back)["memory.high"] == str(_HIGH_BYTES)
    limits = {limit.property: limit for limit in evaluate(record).limits}
    assert limits["MemoryHigh"].verdict == "enforced", limits["MemoryHigh"].reason


def test_the_diagnosis_names_it(record: Record) -> None:
    found = evaluate(record)
    assert found.binding_limit.verdict == "memory", found.binding_limit
    assert found.diagnosis.sentence.startswith("The MemoryHigh of 24 MiB held the program back")
