"""Foreign programs in the cages of four clouds: each diagnosis agrees with iostat."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pagecage.model.record import Record
from pagecage.process import run
from pagecage.units import MIB
from pagecage.verdicts.evaluate import Verdicts
from pagecage.verdicts.limits import requested_caps
from tests.builders.command_line import CommandLine, pagecage_in, verdicts
from tests.builders.known import known

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(2400)]
CAGES = ("aws-gp3-tenth", "aws-gp2-tenth", "azure-p10-tenth", "gcp-pd-balanced-tenth")
WITHIN = 0.12
"""iostat's seconds begin before the program and end after it, and the first lacks what went
before.
"""
MOST_OF_THE_TIME = 0.9
POINTS = """WITH RECURSIVE r(i, x) AS (
SELECT 1, 1 UNION ALL SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM r WHERE i < 500)
SELECT count(*), sum(length(body)) FROM r CROSS JOIN t ON t.id = 1 + x % 200000"""


@dataclass(frozen=True)
class Program:
    """A program with data of its own making, and the kind of cap that is expected to hold it in
    every cage.
    """

    name: str
    make: Callable[[Path], Path]
    command: Callable[[str], tuple[str, ...]]
    status: int = 0


def database(folder: Path) -> Path:
    """Make 96 MiB of rows, more than the 64 MiB of memory in the cages."""
    path, words = folder / "big.db", random.Random(1)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
        rows = ((number, words.randbytes(200).hex()) for number in range(1, 220_001))
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    assert path.stat().st_size > 80 * MIB
    return path


def repository(folder: Path) -> Path:
    """Make a history of 200 commits with incompressible contents, in one pack of 20 MiB."""
    path, words = folder / "big.git", random.Random(2)
    run(["git", "init", "--quiet", "--bare", "--initial-branch=main", path])
    blocks = []
    for number in range(200):
        body = words.randbytes(50_000).hex()
        head = (
            f"commit refs/heads/main\ncommitter A <a@b> {1_700_000_000 + number} +0000\ndata 2\nx\n"
        )
        blocks.append(f"{head}M 100644 inline file{number % 40}\ndata {len(body)}\n{body}\n")
    stream = folder / "history"
    stream.write_text("".join(blocks))
    run(["sh", "-c", f"git -C '{path}' fast-import --quiet < '{stream}'"])
    run(["git", "-C", path, "repack", "-adq", "--depth=0", "--window=0"])
    return path


def tree(folder: Path) -> Path:
    """Make 1500 files of up to 24 KiB, like a source tree."""
    words, path = random.Random(3), folder / "tree"
    for number in range(1500):
        file = path / f"{number % 30}" / f"{number}.c"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(words.randbytes(30).hex() for _ in range(words.randrange(400))))
    return path


PROGRAMS = (
    Program(
        "sqlite3", database, lambda db: ("sqlite3", db, "SELECT count(*), sum(length(body)) FROM t")
    ),
    Program("sqlite3", database, lambda db: ("sqlite3", db, POINTS)),
    Program("git", repository, lambda git: ("git", "--git-dir", git, "log", "--stat", "main")),
    Program("grep", tree, lambda folder: ("grep", "-rc", "no such word", folder), status=1),
)


class Replayed(CommandLine):
    """One program in all four cages and without, with iostat."""

    def __init__(self, runs: Path, program: Program) -> None:
        super().__init__(runs, f"replay-{program.name}")
        data = program.make(runs.parent)
        options = [word for cage in CAGES[1:] for word in ("--cage", cage)]
        options += ["--host", "vm", "--copy", str(data), "--cold", str(data), "--copy-program"]
        options += ["--collectors", "iostat", "--", *program.command(str(data))]
        self.status, self.printed = self.end("replay", CAGES[0], *options)

    def iostat(self, record: Record) -> list[Mapping[str, Any]]:
        text = (self.folder() / record.traces["iostat"]).read_text()
        return [one["disk"][0] for one in json.loads(text)["sysstat"]["hosts"][0]["statistics"]]


@pytest.fixture(scope="module", params=PROGRAMS, ids=["scan", "points", "log", "grep"])
def replayed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    runs = tmp_path_factory.mktemp("real") / "runs"
    made = Replayed(runs, request.param)
    assert made.status == request.param.status, made.printed
    return made


def caged(replayed: Replayed) -> list[tuple[Record, Verdicts, list[Mapping[str, Any]]]]:
    found = [(one, verdicts(replayed, one), replayed.iostat(one)) for one in replayed.records()]
    return [each for each in found if requested_caps(each[0])]


def test_a_failure_of_its_own_is_told_as_its_own(replayed: Replayed) -> None:
    """grep without a match exits with 1; every trial still has its times and its diagnosis."""
    records = replayed.records()
    assert {record.treatment["cage"] for record in records} == {"uncaged", *CAGES}
    assert {record.exit.status for record in records} == {replayed.status}
    assert ("the program failed in 5 of 5 trials" in replayed.printed) == (replayed.status == 1)
    assert all(record.is_programs_own_failure == (replayed.status == 1) for record in records)


def test_every_limit_held(replayed: Replayed) -> None:
    for record, judged, _ in caged(replayed):
        words = {limit.verdict for limit in judged.limits}
        assert words == {"enforced"}, (record.trial_id, judged.limits)
        assert judged.cache_state_reached.verdict == "reached"


def test_what_went_through_is_what_iostat_counted(replayed: Replayed) -> None:
    """iostat counts requests after merging; with the merged ones added, they are the count of
    io.max.
    """
    for record, judged, seconds in caged(replayed):
        counted = sum(one["r/s"] + one["rrqm/s"] for one in seconds)
        read = known(judged.diagnosis.read)
        sentence = judged.diagnosis.sentence
        print(record.trial_id, f"{counted:.0f} in iostat, {read.ios:.0f}:", sentence)
        most = max(one["r/s"] + one["rrqm/s"] for one in seconds)
        assert counted == pytest.approx(read.ios, rel=WITHIN, abs=most)
        sizes = [one["rkB/s"] * 1024 for one in seconds]
        assert sum(sizes) == pytest.approx(read.bytes, rel=WITHIN, abs=max(sizes))


def test_the_cap_that_is_named_is_the_one_that_iostat_shows_as_full(replayed: Replayed) -> None:
    """Full by the cap in force: unused base returns as credits, which raise the cap."""
    for record, judged, seconds in caged(replayed):
        read, inner = known(judged.diagnosis.read), seconds[1:-1] or seconds
        in_force = {
            "IOReadIOPSMax": read.iops_cap or 0.0,
            "IOReadBandwidthMax": read.bandwidth_cap or 0.0,
        }
        rates = {
            "IOReadIOPSMax": sum(one["r/s"] + one["rrqm/s"] for one in inner) / len(inner),
            "IOReadBandwidthMax": sum(one["rkB/s"] for one in inner) / len(inner) * 1024,
        }
        shown = (record.trial_id, rates, judged.diagnosis.sentence)
        fullest = max(rates, key=lambda prop: rates[prop] / in_force[prop])
        if judged.diagnosis.property is None:  # no cap was near
            assert rates[fullest] < 0.9 * in_force[fullest], shown
            continue
        assert judged.diagnosis.property == fullest, shown
        if (judged.diagnosis.share or 0.0) > MOST_OF_THE_TIME:
            assert rates[fullest] == pytest.approx(in_force[fullest], rel=0.25)
        asked = requested_caps(record)[fullest]
        assert named_cap(judged.diagnosis.sentence) == pytest.approx(asked, rel=0.01), shown


def named_cap(sentence: str) -> float:
    """The cap that a sentence names, in I/Os or bytes a second."""
    reported = re.search(r"[Tt]he ([\d.,]+) (IOPS|MB/s|kB/s) cap on reads", sentence)
    assert reported, sentence
    return float(reported[1].replace(",", "")) * {"IOPS": 1, "MB/s": 1e6, "kB/s": 1e3}[reported[2]]


_IOPS = 500
_WITHIN = 0.05
_REPEATS = 2
_CAGE = f"""
about = "{_IOPS} I/Os per second each way, and less memory than the data need."
MemoryMax = "64MiB"
IOReadIOPSMax = {_IOPS}
IOWriteIOPSMax = {_IOPS}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "cgroups").mkdir()
    (folder / "cgroups/pg-500.toml").write_text(_CAGE)
    (folder / "experiments").mkdir()
    return folder


def transactions(project: Path, driver: str, mode: str) -> list[float]:
    """Return the transactions per second of the included trials."""
    treatment = ("--treatment", "cage=pg-500", "--treatment", f"mode={mode}")
    how = ("--dataset", "emulated", "--repeats", str(_REPEATS), "--driver", driver, "--seed", "1")
    words = ("run", "postgres-gp3", "--host", "vm", "--cage", "pg-500", *treatment, *how)
    done = pagecage_in(project, *words, timeout_seconds=1500)
    assert done.status == 0, done.stderr
    return tps_of(json.loads(pagecage_in(project, "show", "postgres-gp3", "--json").stdout))


def tps_of(shown: dict[str, Any]) -> list[float]:
    included = [trial for trial in shown["trials"] if trial["is_included"]]
    assert included, [trial["verdicts"] for trial in shown["trials"]]
    return [trial["response"]["tps"] for trial in included]


@pytest.mark.parametrize("mode", ["select", "tpcb"])
def test_the_kernel_and_qemu_leave_equally_many_transactions(project: Path, mode: str) -> None:
    """blk-throttle counts requests before they are merged, QEMU after: both are random here."""
    by_kernel = transactions(project, "systemd-scope", mode)
    by_qemu = transactions(project, "qemu-throttle", mode)
    print(f"{mode}: io.max {by_kernel}, QEMU {by_qemu}")
    assert median(by_kernel) == pytest.approx(median(by_qemu), rel=_WITHIN)
