"""Experiment and cage files: values are resolved, and errors name file, key and remedy."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.definitions.reader import Definitions, known_programs
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import (
    UNCAGED,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
)
from pagecage.model.trial import Package
from pagecage.planning import options as cli_options
from pagecage.planning.plan import PlanOptions, make_trials, treatments
from tests.builders.definitions import EXPERIMENT, definitions, refusal
from tests.tree import ROOT

VOLUME = """
about = "a volume"
IOReadBandwidthMax = "125MiB"
IOReadIOPSMax = 1500
[source]
title = "the provider"
[volume]
provider = "aws"
type = "gp2"
size = "500GiB"
throughput = "250MiB"
instance = "m7i.large"
scale = 0.5
[burst]
start = "full"
iops = { rate = 3000, credits = 5400000 }
bandwidth = { rate = "250MiB", credits = "1TiB" }
[accounting]
io_size = "256KiB"
merged = true
[latency]
read_us = 1000
"""


ASKS, READS, PATTERNS = 'question = "?"', 'program = "pcread"', '["sequential", "random"]'
EXCLUDING = f"{ASKS}\nexclude = "
IOPS, RATE = "IOReadIOPSMax = 1500", 'IOReadBandwidthMax = "125MiB"'
BARE = 'about = "x"'


def cage_refusal(top: Path, text: str) -> PagecageError:
    (top / "cgroups/wrong.toml").write_text(text)
    with pytest.raises(PagecageError) as caught:
        definitions(top).cage("wrong", 2**30)
    assert caught.value.exit_code == 2
    return caught.value


def test_an_experiment_is_resolved(top: Path) -> None:
    experiment = definitions(top).experiment("asked")
    assert experiment.factors == {"cage": ("uncaged", "tenth"), "pattern": ("sequential", "random")}
    assert experiment.workload.min_memory_bytes == 2**20
    assert experiment.sizes["full"].dataset == 10 * 2**30
    assert experiment.levels["pattern"]["random"].read_ahead_kb == 0
    assert len(list(treatments(experiment))) == 4
    assert experiment.definition == tomllib.loads(EXPERIMENT)


def test_packages_have_names_by_family(top: Path) -> None:
    assert definitions(top).experiment("asked").packages == ()
    named = '["git", { debian = "sqlite3", redhat = "sqlite" }, { debian = "vmtouch" }]'
    (top / "experiments/asked.toml").write_text(f"packages = {named}\n{EXPERIMENT}")
    assert definitions(top).experiment("asked").packages == (
        Package("git", "git"),
        Package("sqlite3", "sqlite"),
        Package("vmtouch", None),
    )


@pytest.mark.parametrize("name", ["", "Git", "-o=Dir::Etc=/tmp", "git; reboot", "git sqlite3"])
def test_a_name_that_no_package_can_have_is_refused(top: Path, name: str) -> None:
    said = refusal(top, f'packages = ["{name}"]\n{EXPERIMENT}')
    assert "packages.0" in said.message


def test_a_cages_values_are_resolved(top: Path) -> None:
    cage = definitions(top).cage("tight", None)
    assert cage.properties == {
        "MemoryMax": 10_000_000,
        "IOReadBandwidthMax": 20_000_000,
        "IOReadIOPSMax": 500,
        "CPUQuota": 50,
        "MemorySwapMax": 0,
    }
    assert cage.provenance == {"about": "all"}


def test_properties_of_a_cloud_volume_are_kept(top: Path) -> None:
    (top / "cgroups/cloud.toml").write_text(VOLUME)
    cage = definitions(top).cage("cloud", None)
    limits = {"IOReadBandwidthMax": 125 * 2**20, "IOReadIOPSMax": 1500, "MemorySwapMax": 0}
    assert cage.properties == limits
    sold = CloudVolume("aws", "gp2", 500 * 2**30, None, 250 * 2**20, "m7i.large", 0.5)
    assert cage.volume == sold
    buckets = CreditBucket(3000, 5_400_000), CreditBucket(250 * 2**20, 2**40)
    assert cage.burst == BurstCredits("full", *buckets)
    assert cage.accounting == IoAccounting(256 * 2**10, True, None)
    assert cage.latency == LatencyFloor(1000, None)
    assert cage.provenance["about"] == "a volume"


def test_a_cage_without_them_has_none(top: Path) -> None:
    cage = definitions(top).cage("tight", None)
    assert (cage.volume, cage.burst, cage.accounting, cage.latency) == (None, None, None, None)


@given(st.integers(4096 * 10, 2**45))
def test_a_share_of_the_dataset_is_whole_pages(dataset_bytes: int) -> None:
    cage = Definitions(ROOT, []).cage("tenth", dataset_bytes)
    limit = cage.properties["MemoryMax"]
    assert limit % 4096 == 0
    assert dataset_bytes / 10 - 4097 < limit <= dataset_bytes / 10 + 1


def test_swap_is_closed_unless_the_cage_opens_it(top: Path) -> None:
    assert definitions(top).cage("tenth", 2**30).properties["MemorySwapMax"] == 0
    assert "MemorySwapMax" not in definitions(top).cage("uncaged", 2**30).properties
    opened = 'about = "x"\nMemoryMax = "1GiB"\nMemorySwapMax = "infinity"\n'
    (top / "cgroups/open.toml").write_text(opened)
    assert "MemorySwapMax" not in definitions(top).cage("open", None).properties


def test_a_share_needs_a_dataset(top: Path) -> None:
    with pytest.raises(PagecageError, match=r"tenth\.toml: MemoryMax is a share of the dataset"):
        definitions(top).cage("tenth", None)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
)
def test_every_experiment_of_the_project_is_valid(name: str) -> None:
    known = Definitions(ROOT, known_programs(ROOT))
    experiment = known.experiment(name)
    cages = {level for level in experiment.factors.get("cage", ()) if level in known.cage_names()}
    for size in experiment.sizes.values():
        for cage in cages:
            known.cage(cage, size.total_bytes)


@pytest.mark.parametrize(
    ("change", "key", "word"),
    [
        ((ASKS, f'{ASKS}\nqestion = "?"'), "unknown key 'qestion'", 'did you mean "question"?'),
        ((READS, f'{READS}\nprogramm = "x"'), "unknown key 'workload.programm'", '"program"'),
        (('"pcread"', '"pcraed"'), "workload.program: there is no workload 'pcraed'", '"pcread"'),
        (('"uncaged", "tenth"', '"uncaged", "tent"'), "there is no cage 'tent'", '"tenth"'),
        (('["iostat"]', '["iostat", "vmstat"]'), "collectors.1", "iostat"),
        ((PATTERNS, "[]"), "factors.pattern has no levels", "edit"),
        ((PATTERNS, '["random", "random"]'), "factors.pattern names a level twice", "edit"),
        ((PATTERNS, '["sequential", "randm"]'), "levels.pattern.random is not a level", "edit"),
        (("pattern.random", "patern.random"), "levels.patern.random is not a level", "edit"),
        (('"128MiB"', '"128M"'), "sizes.emulated.dataset: '128M' has no clear unit", "MiB"),
        (('"128MiB"', '"many"'), "sizes.emulated.dataset: 'many' is not a size", "edit"),
        (('"128MiB"', "128"), "sizes.emulated.dataset: a size is a string with a unit", "edit"),
        (('"128MiB"', '"0B"'), "sizes.emulated.dataset", "edit"),
        (("max_seconds = 15", "max_seconds = 0"), "sizes.emulated.max_seconds", "edit"),
        (("max_seconds = 15", "max_seconds = inf"), "sizes.emulated.max_seconds", "edit"),
        (("max_seconds = 15", "max_seconds = nan"), "sizes.emulated.max_seconds", "edit"),
        (("smoke =", "#smoke ="), "sizes.smoke is missing", "edit"),
        (("smoke =", "small ="), "sizes.small", "edit"),
        (("{file}", "{flie}"), "no placeholder {flie}; known: file", "edit"),
        (('dataset = "32MiB", max', "max"), "sizes.smoke has no value for {file}", "edit"),
        (("max_seconds = 4,", ""), "sizes.smoke has no value for {max_seconds}", "edit"),
        (('cache = "cold"', 'cache = "warm"'), "levels.pattern.sequential.cache", "cold"),
        (('fresh = "never"', 'fresh = "always"'), "fresh", "never"),
        (('fresh = "never"', "repeats = 0"), "repeats", "edit"),
        ((ASKS, EXCLUDING + '[{ size = "big" }]'), "size = 'big' is not a level", "edit"),
        ((ASKS, EXCLUDING + '[{ cage = "tnth" }]'), "cage = 'tnth' is not a level", "edit"),
        ((ASKS, EXCLUDING + "[{}]"), "exclude[0] does not name a factor", "edit"),
        (("[levels.pattern.random]", "[levels.pattern.random"), "(at line", "toml.io"),
        ((ASKS, 'question = "\\u00"'), "(at line", "toml.io"),
        (("[factors]", "[factor]"), "unknown key 'factor'", '"factors"'),
    ],
)
def test_an_error_in_an_experiment_names_its_key(
    top: Path, change: tuple[str, str], key: str, word: str
) -> None:
    broken = EXPERIMENT.replace(*change)
    assert broken != EXPERIMENT
    error = refusal(top, broken)
    assert key in error.message
    assert word in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("text", "key", "word"),
    [
        ('about = "x"\nMemoryMaxx = "1GiB"', "unknown key 'MemoryMaxx'", '"MemoryMax"'),
        ('about = "x"\nMemoryMax = "1G"', "MemoryMax: '1G' has no clear unit", "GiB"),
        ('about = "x"\nMemoryMax = 1048576', "MemoryMax: a size is a string with a unit", "edit"),
        ('about = "x"\nMemoryMax = { dataset_fraction = 0 }', "MemoryMax", "edit"),
        ('about = "x"\nMemoryMax = { fraction = 0.1 }', "MemoryMax", "dataset_fraction"),
        ('about = "x"\nIOReadIOPSMax = "500"', "IOReadIOPSMax", "edit"),
        ('about = "x"\nIOReadIOPSMax = true', "IOReadIOPSMax", "edit"),
        ('about = "x"\nIOReadIOPSMax = 0', "IOReadIOPSMax", "edit"),
        ('about = "x"\nCPUQuota = "50%"', "CPUQuota", "edit"),
        (
            'about = "x"\nIOReadBandwidthMax = "fast"',
            "IOReadBandwidthMax: 'fast' is not a size",
            "edit",
        ),
        ('MemoryMax = "1GiB"', "about", "edit"),
        (VOLUME.replace("[burst]", "[brust]"), "unknown key 'brust'", '"burst"'),
        (
            VOLUME.replace("credits = 5", "credit = 5"),
            "unknown key 'burst.iops.credit'",
            '"credits"',
        ),
        (VOLUME.replace("io_size", "iosize"), "unknown key 'accounting.iosize'", '"io_size"'),
        (VOLUME.replace("read_us", "raed_us"), "unknown key 'latency.raed_us'", '"read_us"'),
        (VOLUME.replace('"500GiB"', '"500G"'), "volume.size: '500G' has no clear unit", "GiB"),
        (VOLUME.replace('"full"', '"empty"'), "burst.start", "drained"),
        (VOLUME.replace("= 3000", "= 1500"), "burst.iops.rate is not above the limit", "edit"),
        (VOLUME.replace(IOPS, ""), "burst.iops: a bucket refills at the rate of", "IOReadIOPSMax"),
        (VOLUME.replace(RATE, ""), "burst.bandwidth: a bucket", "IOReadBandwidthMax"),
        (f'{BARE}\n[burst]\nstart = "full"', "burst has neither iops nor bandwidth", "remove it"),
        (VOLUME.replace('"1TiB"', '"0B"'), "burst.bandwidth.credits", "edit"),
        (VOLUME.replace("scale = 0.5", "scale = 0.0"), "volume.scale", "edit"),
        (VOLUME.replace("read_us = 1000", "read_us = 0"), "latency.read_us", "edit"),
        ('about = "x"\nabout = "y"', "Cannot overwrite a value", "toml.io"),
    ],
)
def test_an_error_in_a_cage_names_its_key(top: Path, text: str, key: str, word: str) -> None:
    error = cage_refusal(top, text)
    assert error.message.startswith("wrong.toml: ")
    assert key in error.message
    assert word in f"{error.message} {error.hint}"


@pytest.mark.parametrize("content", [b'question = "\xff\xfe"', b"\x00", b"\xef\xbb\xbf= 1"])
def test_a_file_that_is_not_text_is_named(top: Path, content: bytes) -> None:
    (top / "experiments/asked.toml").write_bytes(content)
    with pytest.raises(PagecageError, match=r"asked\.toml: "):
        definitions(top).experiment("asked")


def test_a_folder_instead_of_a_file_is_named(top: Path) -> None:
    (top / "experiments/folder.toml").mkdir()
    with pytest.raises(PagecageError, match=r"folder\.toml cannot be read: Is a directory"):
        definitions(top).experiment("folder")


def test_a_command_may_use_braces_of_its_own(top: Path) -> None:
    command = EXPERIMENT.replace('program = "pcread"', 'program = "awk"\nkind = "command"')
    (top / "experiments/asked.toml").write_text(command.replace('"--file"', '"{print $1; exit}"'))
    assert definitions(top).experiment("asked").workload.arguments[0] == "{print $1; exit}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("askd", 'did you mean "asked"?'),
        ("zzz", "known: asked"),
        ("../asked", 'did you mean "asked"?'),
    ],
)
def test_a_name_that_does_not_exist(top: Path, name: str, hint: str) -> None:
    with pytest.raises(PagecageError, match="there is no experiment") as caught:
        definitions(top).experiment(name)
    assert caught.value.hint == hint


@given(st.text(max_size=20))
def test_any_unknown_name_has_a_hint(name: str) -> None:
    assert nearest(name, ["constrained-random", "smoke"])


def test_crashes_are_tried_at_every_point_of_the_log() -> None:
    """The full size has at least a thousand kills and stops, as many at each point."""
    text = (ROOT / "workloads/c/pclog/test_points.h").read_text()
    points = re.findall(r"^ +X\((\w+)\)", text, re.MULTILINE)
    experiment = Definitions(ROOT, known_programs(ROOT)).experiment("append-crash")
    assert list(experiment.factors["point"]) == points
    trials = int(experiment.sizes["full"].places["trials"])
    assert len(list(treatments(experiment))) * trials >= 1000


SMOKE = (ROOT / "experiments/smoke.toml").read_text()
PROGRAMS = ["pcread"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    for folder in ("experiments", "cgroups"):
        (top / folder).mkdir(parents=True)
    return top


def known(project: Path) -> Definitions:
    return Definitions(ROOT, PROGRAMS, project)


def test_both_kinds_are_known(project: Path) -> None:
    (project / "experiments/mine.toml").write_text(SMOKE)
    names = known(project).experiment_names()
    assert {"mine", "smoke", "prefault"} <= {*names}
    assert known(project).experiments.own_names() == ["mine"]
    assert known(project).experiments.replacing() == []


def test_of_two_with_one_name_the_projects_counts(project: Path) -> None:
    (project / "experiments/smoke.toml").write_text(SMOKE.replace("Is every", "Is mine"))
    assert known(project).experiment("smoke").question.startswith("Is mine")
    assert known(project).experiment("smoke").project == project
    assert known(project).experiments.replacing() == ["smoke"]
    assert known(project).experiment_names().count("smoke") == 1
    assert Definitions(ROOT, PROGRAMS).experiment("smoke").project is None


def test_a_cage_of_the_project_is_used_by_either(project: Path) -> None:
    (project / "cgroups/smoke.toml").write_text('about = "mine"\nIOReadIOPSMax = 7\n')
    assert known(project).cage("smoke", None).properties["IOReadIOPSMax"] == 7
    assert known(project).cage("customer", None).properties["IOReadIOPSMax"] == 5000


def test_a_file_is_an_experiment_wherever_it_lies(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.toml"
    path.write_text(SMOKE)
    found = known(project).experiment(str(path))
    assert (found.name, found.project) == ("elsewhere", project)


def test_a_project_without_experiments_says_how_to_make_one(project: Path) -> None:
    with pytest.raises(PagecageError) as refusal:
        known(project).experiment("zzz")
    assert f"the project {project} defines none" in refusal.value.message
    assert "pagecage init" in refusal.value.hint
    with pytest.raises(PagecageError) as refusal:
        known(project).experiment("smoek")
    assert 'did you mean "smoke"' in refusal.value.hint


def test_the_folder_of_a_user_without_a_project_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(PagecageError) as refusal:
        known(tmp_path / "share/pagecage").experiment("zzz")
    assert refusal.value.message == "there is no experiment 'zzz'"


def test_a_workload_that_nobody_has(project: Path) -> None:
    (project / "experiments/mine.toml").write_text(SMOKE.replace('"pcread"', '"theirs"'))
    with pytest.raises(PagecageError, match="there is no workload 'theirs'"):
        known(project).experiment("mine")


@pytest.mark.parametrize("stem", ["My Run", "-x", "a.b", "x" * 80, "ü"])
def test_a_stem_that_cannot_name_runs(project: Path, stem: str) -> None:
    path = project / f"experiments/{stem}.toml"
    path.write_text(SMOKE)
    for name in (stem, str(path)):
        with pytest.raises(PagecageError) as refusal:
            known(project).experiment(name)
        assert "is not a valid name for an experiment" in refusal.value.message


def test_the_control_cannot_be_replaced(project: Path) -> None:
    (project / "cgroups/uncaged.toml").write_text("IOReadIOPSMax = 7\n")
    with pytest.raises(PagecageError, match="is the control without limits"):
        known(project).cage("uncaged", None)


def test_a_missing_file(project: Path) -> None:
    with pytest.raises(PagecageError, match="No such file"):
        known(project).experiment("./nowhere/x.toml")


def test_a_project_may_lack_either_folder(project: Path) -> None:
    shutil.rmtree(project / "cgroups")
    assert "customer" in known(project).cage_names()


DEFINITIONS = cli_options.definitions()


@pytest.mark.parametrize("name", DEFINITIONS.experiment_names())
def test_only_heap_trials_leave_the_cache_state_open(name: str) -> None:
    """Without a cache state, the preceding trial would decide the figure."""
    experiment = DEFINITIONS.experiment(name)
    cages = {cage: Cage(cage, {}, {}) for cage in experiment.cage_names() | {UNCAGED}}
    for trial in make_trials(experiment, cages, PlanOptions("emulated", "", 1, 1, "vm", "never")):
        if trial.cache == "any" and trial.dataset is not None:
            is_heap = any(word.startswith("heap") for word in trial.workload.arguments)
            assert is_heap, trial.treatment
