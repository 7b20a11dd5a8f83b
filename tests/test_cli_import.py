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

from pagecage.model.json_codec import Json
from pagecage.process import run, spawn
from tests.checkout import PLAIN, environment, pagecage, refused
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
    names = {path.name for path in FIXTURES.iterdir()}
    not_shown = {"README.md", "kubectl-deployment.yaml", "kubectl-deployment.json"}
    assert names & {word for command in SHOWN for word in command.split()} == names - not_shown


def test_memory_qos_applies_to_pods(files: Path) -> None:
    done = pagecage(files, "cage", "import", "systemctl-cat.txt", "--memory-qos", "0.9")
    assert done.status == 2
    assert "--memory-qos applies to a pod, and this is a systemd unit" in done.stderr


def test_three_lists_for_people(files: Path) -> None:
    done = pagecage(files, "cage", "import", "docker-inspect.json")
    heads = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert heads == ["docker inspect", "imported", "not imported", "ignored, not limits"]
    assert "MemoryMax" in done.stdout
    assert "a share binds only against neighbours" in done.stdout


def test_the_same_as_data(files: Path) -> None:
    words = "cage import describe-volumes.json --pick vol-0000000000000001b --json"
    found = json.loads(pagecage(files, *words.split()).stdout)
    assert found["volume"]["command"] == "pagecage cage show aws-gp2 --size 100GiB"
    lists = {"understood", "not_carried_over", "ignored"}
    assert set(found) == {"origin", "cage", *lists, "volume", "observed", "saved"}


def test_what_is_saved_is_a_cage_like_any_other(files: Path) -> None:
    assert pagecage(files, "cage", "import", "probe.json", "--save", "acme").ok
    text = (files / "cgroups/acme.toml").read_text()
    assert "IOReadIOPSMax = 500" in text
    assert pagecage(files, "run", "smoke", "--dry-run", "--cage", "acme", *PLAIN, "--json").ok
    again = pagecage(files, "cage", "import", "probe.json", "--save", "acme")
    assert (again.status, "already" in again.stderr) == (2, True)
    words = ("cage", "import", "probe.json", "--save", "acme", "--force", "--digits", "3")
    assert pagecage(files, *words).ok
    assert (files / "cgroups/acme.toml").read_text() != text


def test_a_volume_is_saved_with_what_the_catalogue_says_of_it(files: Path) -> None:
    picked = ("describe-volumes.json", "--pick", "vol-0000000000000001a")
    instance = ("--instance", "m7i.large")
    done = pagecage(files, "cage", "import", *picked, *instance, "--save", "acme")
    assert done.ok, done.stderr
    shown = json.loads(pagecage(files, "cage", "show", "acme", "--json").stdout)
    bought = ("aws-gp3", "--size", "500GiB", "--iops", "6000", "--throughput", "250")
    same = pagecage(files, "cage", "show", *bought, *instance, "--save", "other")
    assert same.ok, same.stderr
    assert (files / "cgroups/acme.toml").read_text() == (files / "cgroups/other.toml").read_text()
    assert shown["name"] == "acme"


STATS = ("nvme-amzn-stats-before.json", "nvme-amzn-stats.json", "--time", "60s")
GP3 = ("aws-gp3", "--size", "500GiB", "--instance", "m7i.large")


def shown_cage(top: Path, name: str) -> Json:
    shown: Json = json.loads(pagecage(top, "cage", "show", name, "--json").stdout)["cage"]
    return shown


def test_a_volumes_counters_become_its_latency(files: Path) -> None:
    done = pagecage(files, "cage", "import", *STATS, "--save", "acme")
    assert done.ok, done.stderr
    for line in (
        "p50 642 us, p95 985 us, p99 1.02 ms, p99.9 2.24 ms",
        "the demand exceeded the volume's throughput for 2.22 s, 3.7 % of 60 s",
        "the limits of the volume: this file has no rates",
    ):
        assert line in done.stdout
    cage = shown_cage(files, "acme")
    assert cage["properties"] == {"MemorySwapMax": 0}
    assert cage["enforced_by"] == "volume"
    assert cage["simulation"]["read_latency"][0]["quantiles"][0] == [0.0, 256.0]


def test_limits_of_a_type_and_latencies_of_the_counters_are_one_cage(files: Path) -> None:
    """Every limit is that of the type; only the latencies and what enforces them differ."""
    done = pagecage(files, "cage", "import", *STATS, "--volume", *GP3, "--save", "acme")
    assert done.ok, done.stderr
    assert "this file has no rates" not in done.stdout
    assert pagecage(files, "cage", "show", *GP3, "--save", "other").ok
    acme, other = shown_cage(files, "acme"), shown_cage(files, "other")
    assert (acme["enforced_by"], other["enforced_by"]) == ("volume", "cgroup")
    assert acme["simulation"]["limits"] == other["simulation"]["limits"]
    assert acme["simulation"]["write_latency"] != other["simulation"]["write_latency"] == []
    assert acme["properties"] == other["properties"]
    text = (files / "cgroups/acme.toml").read_text()
    assert "# latency: nvme amzn stats of the customer's volume\n" in text
    assert "diskplorer" not in text
    assert "diskplorer" in (files / "cgroups/other.toml").read_text()


def test_the_volume_of_the_counters_may_be_described_by_a_file_or_a_cage(files: Path) -> None:
    described = ("describe-volumes.json", "--pick", "vol-0000000000000001a")
    done = pagecage(files, "cage", "import", STATS[1], *described, "--save", "acme")
    assert done.ok, done.stderr
    assert "aws-gp3, 500 GiB, 6000 IOPS" in done.stdout
    done = pagecage(files, "cage", "import", STATS[1], "--volume", "customer", "--save", "slow")
    assert done.ok, done.stderr
    cages = [shown_cage(files, name) for name in ("acme", "slow")]
    assert [cage["properties"]["IOReadIOPSMax"] for cage in cages] == [6000, 5000]
    assert all(cage["simulation"]["read_latency"] for cage in cages)


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
        ((STATS[1], STATS[0]), "nvme-amzn-stats-before.json was read before nvme-amzn-stats.json"),
        ((STATS[1], "--volume", "aws-gp3"), "the limits of aws-gp3 depend on its size"),
        ((STATS[1], "--volume", "aws-gp9"), "there is no cage and no volume type 'aws-gp9'"),
        ((STATS[1], "--volume", "customer", "--iops", "5"), "is a cage: its limits are fixed"),
        ((STATS[1], "--volume", "tenth"), "has a memory limit that depends on the dataset"),
        ((STATS[1], "--instance", "m7i.large"), "applies only to a cloud volume"),
        ((STATS[1], "describe-volumes.json"), "the file has 2 volumes"),
        ((*STATS[:2], "--time", "1s"), "--time 1s is shorter than the 2.22 s above a limit"),
    ],
)
def test_bad_input_is_a_sentence_with_its_mend(
    files: Path, words: tuple[str, ...], says: str
) -> None:
    assert says in refused(files, "cage", "import", *words)


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
    assert pagecage(top, "probe", str(top), "--yes", "--time", "30s").status == ours
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
