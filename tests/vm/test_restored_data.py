"""Data that trials write to, in the guest: every repeat reads the same, by the same I/Os."""

from __future__ import annotations

import hashlib
import random
import time

import pytest

from pagecage.checkout import TOP
from pagecage.definitions.reader import Definitions
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import UNCAGED
from pagecage.model.record import Record
from pagecage.planning.plan import PlanOptions, make_plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import KIB, MIB
from tests.builders.command_line import CommandLine
from tests.builders.plans import HARNESS

pytestmark = [pytest.mark.vm, pytest.mark.slow]
_TABLE_BYTES, _LOG_BYTES = 24 * MIB, 4 * MIB
_REPEATS = 3
# Reads and checks all data, and then rewrites 2 MiB, appends 6 MiB, removes a file and adds one.
_WORK = """set -e
sha256sum --quiet -c sums
test "$(stat -c %a:%h keys)" = 640:2
dd if=/dev/urandom of=table bs=64k count=32 seek=100 conv=notrunc status=none
dd if=/dev/urandom of=log bs=1M count=6 oflag=append conv=notrunc status=none
rm keys sums
mkdir -p new
echo more >new/file
sync
"""


def same_io(records: list[Record]) -> None:
    """Check that all trials read the same bytes by the same number of I/Os.

    Blocks of directories and extents may be in the page cache already, which the kernel decides.
    """
    assert [record.outcome for record in records] == ["ok"] * _REPEATS, [r.error for r in records]
    for name, least in (("device_read_bytes", 64 * KIB), ("device_reads", 16)):
        found = [record.response[name] or 0 for record in records]
        assert max(found) - min(found) <= least, found
    assert all(record.cache.resident_bytes_before == 0 for record in records)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, str]:
    """Replay a program that writes to its copied directory, three times."""
    folder = tmp_path_factory.mktemp("restored")
    db, made = folder / "db", CommandLine(folder)
    db.mkdir()
    rng = random.Random(1)
    for name, size in (("table", _TABLE_BYTES), ("log", _LOG_BYTES), ("keys", 1000)):
        (db / name).write_bytes(rng.randbytes(size))
    (db / "keys").chmod(0o640)
    (db / "same").hardlink_to(db / "keys")
    sums = [
        f"{hashlib.sha256((db / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("table", "log", "keys")
    ]
    (db / "sums").write_text("".join(sums))
    options = ("--host", "vm", "--copy", str(db), "--cold", str(db), "--writes", "--no-control")
    printed = made.succeed(
        *("replay", "customer-tenth", *options, "--repeats", str(_REPEATS)),
        *("--", "sh", "-c", f"cd db\n{_WORK}"),
    )
    return made, printed


def test_every_repeat_of_a_replay_reads_the_same(replayed: tuple[CommandLine, str]) -> None:
    made, printed = replayed
    assert "28 MiB of data are restored before each trial, by copy" in printed
    folder = RunFolder((made.runs / "latest-replay-sh").resolve())
    records = list(folder.last_records().values())
    same_io(records)
    restored = [record.data.restored or {} for record in records]
    assert [one["changed_files"] for one in restored] == [4, 4, 4]
    assert restored[0]["copied_bytes"] == pytest.approx(_TABLE_BYTES + _LOG_BYTES, abs=MIB)
    assert all(2 * MIB <= one["copied_bytes"] < 3 * MIB for one in restored[1:]), restored
    assert len({record.data.manifest_sha256 for record in records}) == 1


OWN = """
question = "?"
[workload]
program = "sh"
kind = "command"
arguments = ["{programs}/work", "{data}"]
data_paths = ["{data}"]
[data]
prepare = ["sh", "{programs}/make-tables", "{data}", "{mib}", "{seed}"]
writes = true
[factors]
cage = ["uncaged"]
[levels.cage.uncaged]
cache = "cold"
[sizes]
full = { places = { mib = 24 }, prepared = "32MiB" }
default = { places = { mib = 24 }, prepared = "32MiB" }
emulated = { places = { mib = 24 }, prepared = "32MiB" }
smoke = { places = { mib = 24 }, prepared = "32MiB" }
"""
# As PostgreSQL's initdb: as another user, who owns the directory.
_MAKE = """set -e
echo "making $2 MiB with seed $3"
chown nobody "$1"
chmod 700 "$1"
runuser -u nobody -- sh -e -c '
cd "$1"
dd if=/dev/urandom of=table bs=1M count="$2" status=none
dd if=/dev/urandom of=log bs=1M count=4 status=none
echo keys >keys
chmod 640 keys
ln keys same
sha256sum table log keys >sums' make "$1" "$2"
"""


@pytest.fixture(scope="module")
def made_twice(tmp_path_factory: pytest.TempPathFactory) -> list[list[Record]]:
    """Run a definition with prepared data twice; return the records of each run."""
    top = tmp_path_factory.mktemp("own")
    for name in ("cgroups", "experiments/programs"):
        (top / name).mkdir(parents=True)
    (top / "cgroups/uncaged.toml").write_text((TOP / "cgroups/uncaged.toml").read_text())
    (top / "experiments/own.toml").write_text(OWN)
    # Data of an earlier test on this guest's disk have another key.
    (top / "experiments/programs/make-tables").write_text(f"{_MAKE}# {time.time_ns()}\n")
    (top / "experiments/programs/work").write_text(f'cd "$1"\n{_WORK}')
    definitions = Definitions(top, [])
    cages = {UNCAGED: definitions.cage(UNCAGED, None)}
    runs = []
    for number in (1, 2):
        options = PlanOptions("smoke", "asked for", _REPEATS, 7, "vm", "never")
        experiment = definitions.experiment("own")
        plan = make_plan(f"run-{number}", experiment, cages, options, "own", HARNESS)
        folder = RunFolder.create(top / "runs", plan)
        Campaign(VmHost(), plan, folder, make_agent_package(TOP), print).run()
        runs.append(folder.records())
    return runs


def test_prepared_data_are_made_once_and_restored(made_twice: list[list[Record]]) -> None:
    first, second = made_twice
    same_io(first)
    same_io(second)
    made_by = [record.data.made_by for record in (*first, *second)]
    assert [one is not None for one in made_by] == [True] + [False] * (2 * _REPEATS - 1)
    assert len({record.data.key for record in (*first, *second)}) == 1
    assert len({record.data.manifest_sha256 for record in (*first, *second)}) == 1
