"""Images in the guest: a static program from scratch, held by limits, with cold layers."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagecage.model.record import Record
from pagecage.process import PIPE, run, spawn
from pagecage.units import MIB
from tests.builders.command_line import CommandLine, pagecage_in, verdicts
from tests.builders.image_archive import config_of, layer, write_archive
from tests.builders.known import known
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(1200)]
PROGRAMS = ROOT / "build/host/bin"
DATA_BYTES = 20 * MIB
CAP_BYTES = 2 * MIB
_LONGEST_SECONDS = 900.0
COMPOSE = """
services:
  search:
    image: registry.example/search:1
    command: --block-bytes 4096 --pattern sequential
    volumes: ["./sums:/sums:ro"]
    mem_limit: 16m
    memswap_limit: 16m
    blkio_config:
      device_read_bps: [{path: /dev/sda, rate: 2mb}]
"""
READ = [
    *("pcread", "--no-handshake", "--file", "/index/words"),
    *("--expect-sidecar", "/sums/words.json"),
]
ARGUMENTS = ["--block-bytes", "4096", "--pattern", "sequential"]

# An engine itself reads these: it looks the user up, and copies /state to a new volume.
PASSWD = b"root:x:0:0::/:/x\nsearch:x:1000:1000::/:/x\n"
SEED = b"seed" * (MIB // 2)


@dataclass(frozen=True)
class Replayed:
    """One replay: what the program wrote, what pagecage said, and where its record is."""

    runs: CommandLine
    status: int
    out: bytes
    said: str

    @property
    def record(self) -> Record:
        [record] = self.runs.records()
        return record


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Compose file, the archive of its image, and the directory that it mounts.

    The program lies where only a variable of the container finds it.
    """
    folder = tmp_path_factory.mktemp("service")
    words, sums = folder / "words", folder / "sums"
    size = ("--size-bytes", str(DATA_BYTES))
    run([PROGRAMS / "pcgen", "--out", words, *size], timeout_seconds=60)
    sums.mkdir(mode=0o755)
    words.with_name("words.json").rename(sums / "words.json")
    layers = [
        layer({"etc/passwd": PASSWD, "etc/group": b"search:x:1000:\n", "state/seed": SEED}),
        layer({"tools/pcread": PROGRAMS / "pcread"}),
        layer({"index/words": words}),
    ]
    config = config_of(layers, Entrypoint=READ, User="search", Volumes={"/state": {}})
    write_archive(folder / "search.tar", layers, config)
    (folder / "compose.yaml").write_text(COMPOSE)
    (folder / "variables").write_text("PATH=/tools\n")
    return folder


def replay(runs: Path, service: Path, *options: str) -> Replayed:
    runner = CommandLine(runs, "replay-search-tar")
    words = ["replay", "compose", "--no-control", "--host", "vm", "--image", "search.tar"]
    argv = runner.argv(*words, "--compose", "compose.yaml", *options)
    environment = {**runner.environment, "PYTHONPATH": str(ROOT)}
    process = spawn(argv, stdout=PIPE, stderr=PIPE, env=environment, cwd=service)
    out, said = process.communicate(timeout=_LONGEST_SECONDS)
    return Replayed(runner, process.returncode, out, said.decode())


VARIABLES = {"docker": ("--env-file", "variables"), "podman": ("--env", "PATH=/tools")}


@pytest.fixture(scope="module", params=["docker", "podman"])
def replayed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, service: Path
) -> Replayed:
    runs = tmp_path_factory.mktemp(request.param)
    done = replay(runs, service, "--driver", request.param, *VARIABLES[request.param])
    assert done.status == 0, done.said
    return done


def test_the_program_of_the_image_reads_every_byte(replayed: Replayed) -> None:
    end = json.loads(replayed.out.splitlines()[-1])
    assert (end["type"], end["bytes"]) == ("end", DATA_BYTES)
    assert end["checksum"] is not None  # it has compared them with the sums of the mount


def test_the_limits_of_the_compose_file_are_proven(replayed: Replayed) -> None:
    record = replayed.record
    assert record.outcome == "ok", record.error
    judged = verdicts(replayed.runs, record)
    names = ("MemoryMax", "MemorySwapMax", "IOReadBandwidthMax")
    words = {limit.property: limit.verdict for limit in judged.limits}
    assert words == dict.fromkeys(names, "enforced")
    least_seconds = DATA_BYTES / CAP_BYTES
    assert 0.9 * least_seconds < (record.response["wall_seconds"] or 0) < 3 * least_seconds


def test_the_layers_and_the_mount_are_cold(replayed: Replayed) -> None:
    record, cache = replayed.record, replayed.record.cache
    assert verdicts(replayed.runs, record).cache_state_reached.verdict == "reached"
    assert (cache.requested, cache.resident_bytes_before) == ("cold", 0)
    program = (PROGRAMS / "pcread").stat().st_size
    sums = _sums(replayed).stat().st_size
    assert known(cache.go).resident_bytes == 0
    others = len(PASSWD) + len(b"search:x:1000:\n") + len(SEED)
    assert cache.file_bytes == DATA_BYTES + program + sums + others
    read = record.response["device_read_bytes"] or 0
    assert record.device.name == "vdb"  # the data disk: the engine's store is there
    assert 0.99 * (DATA_BYTES + program) < read < 1.5 * DATA_BYTES  # some of it twice: 16 MiB


def _sums(replayed: Replayed) -> Path:
    plan = json.loads((replayed.runs.folder() / "plan.json").read_text())
    [mount] = [file for file in plan["replay"]["carried"] if file["name"] == "volume-1"]
    return Path(mount["source"]) / "words.json"


def test_the_record_names_the_image(replayed: Replayed) -> None:
    plan = json.loads((replayed.runs.folder() / "plan.json").read_text())
    image = plan["trials"][0]["workload"]["command"]["image"]
    kept = (replayed.record.cage.driver or {})["image"]
    assert {key: kept[key] for key in ("reference", "id", "user")} == {
        "reference": "search.tar",
        "id": image["image_id"],
        "user": "search",
    }
    assert kept["layer_bytes"] > DATA_BYTES
    assert replayed.record.workload.argv == (*READ, *ARGUMENTS)


@pytest.mark.long
def test_a_program_that_the_image_lacks_is_one_sentence(tmp_path: Path, service: Path) -> None:
    done = replay(tmp_path, service)  # without the variable that finds it
    assert done.status != 0
    assert "there is no program pcread in the image" in " ".join(done.said.split())
    assert "Traceback" not in done.said


_CLAIM = r"""
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
/* Fails if a program has claimed /state before, or if it does not belong to user 1000. */
int main(void) {
  struct stat seen;
  int log = open("/state/log", O_WRONLY | O_APPEND);
  if (log < 0 || fstat(log, &seen) || seen.st_uid != 1000 || seen.st_size != 7) return 2;
  if (write(log, "claimed\n", 8) != 8) return 3;
  return open("/state/claimed", O_WRONLY | O_CREAT | O_EXCL, 0600) < 0 ? 4 : 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc")
    assert compiler, "there is no gcc: make setup"
    (tmp_path / "claim.c").write_text(_CLAIM)
    run([compiler, "-O1", "-static", "-o", tmp_path / "claim", tmp_path / "claim.c"])
    layers = [layer({"claim": tmp_path / "claim"})]
    config = config_of(layers, Entrypoint=["/claim"], User="1000")
    write_archive(tmp_path / "claim.tar", layers, config)
    state = tmp_path / "state"
    state.mkdir()
    (state / "log").write_text("before\n")
    if os.geteuid() == 0:
        for path in (state, state / "log"):
            os.chown(path, 1000, 1000)
    return tmp_path


def test_each_trial_finds_a_volume_as_it_was(folder: Path) -> None:
    words = ("replay", "aws-gp3-tenth", "--host", "vm", "--image", "claim.tar", "--repeats", "2")
    done = pagecage_in(folder, *words, "--volume", "./state:/state")
    assert done.ok, done.stderr
    assert "are restored before each trial" in done.stderr
    assert sorted(path.name for path in (folder / "state").iterdir()) == ["log"]
    assert (folder / "state/log").read_text() == "before\n"
