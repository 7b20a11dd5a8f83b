"""The command line as a user meets it: each a process of its own, in a copy of the checkout that a
test may spoil.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pagecage.model.plan import plan_from_json
from pagecage.version import VERSION
from tests.checkout import PLAIN, freshly, pagecage, refused
from tests.tree import ROOT

VERBS = (
    *("init", "list", "run", "show", "articles", "doctor", "host", "compare", "history", "export"),
    *("import", "cage", "predict", "volume", "probe", "replay", "sweep", "shell", "publish"),
    *("cold", "inspect", "memory", "demo", "runs"),
)
ASKED = (ROOT / "experiments/smoke.toml").read_text()
LOCAL = " ".join(PLAIN)


def write(top: Path, change: str) -> None:
    """Write an experiment `asked`: `smoke` with one thing replaced, `OLD -> NEW`."""
    old, new = change.split(" -> ")
    assert old in ASKED
    (top / "experiments/asked.toml").write_text(ASKED.replace(old, new, 1))


@pytest.mark.parametrize(
    ("change", "says", "hint"),
    [
        (
            "repeats = 1 -> repeets = 1",
            "asked.toml: unknown key 'repeets'",
            'did you mean "repeats"?',
        ),
        ('["sequential", "random"] -> []', "factors.pattern has no levels", "edit"),
        (
            '"pcread" -> "pcraed"',
            "workload.program: there is no workload 'pcraed'",
            'did you mean "pcread"?',
        ),
        (
            '["uncaged", "smoke"] -> ["uncaged", "smoke", "smok"]',
            "factors.cage: there is no cage 'smok'",
            '"smoke"',
        ),
        ('"vmtouch" -> "vmtuoch"', "asked.toml: collectors.2", "vmtouch"),
        ('"64MiB" -> "64M"', "sizes.emulated.dataset: '64M' has no clear unit", "MiB"),
        ('"64MiB" -> "lots"', "sizes.emulated.dataset: 'lots' is not a size", "edit"),
        ('"--file", "{file}" -> "--file", "{flie}"', "there is no placeholder {flie}", "edit"),
        ('question = "Is -> question = Is', "asked.toml: Invalid value", "toml.io"),
    ],
)
def test_a_wrong_definition_names_file_and_key(
    top: Path, change: str, says: str, hint: str
) -> None:
    write(top, change)
    said = refused(top, "run", "asked", *PLAIN)
    assert says in said
    assert hint in said.split(says)[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run constrained-randm", "there is no experiment 'constrained-randm' fix: did you mean"),
        ("run zzz --dry-run", "there is no experiment 'zzz' fix: pagecage list"),
        ("run smoke --host mv", "there is no host 'mv' fix: did you mean \"vm\"?"),
        ("run smoke --dataset smal", "there is no size 'smal'"),
        (
            "run smoke --cage tnth",
            "there is no cage and no volume type 'tnth' fix: did you mean \"tenth\"?",
        ),
        ("run smoke --repeats 0", "repeats"),
        ("run smoke --repeats many", "repeats"),
        (
            f"run smoke {LOCAL} --until-ci 5",
            "--until-ci: '5' is not a percentage below 100% fix: write it as 5%",
        ),
        (f"run smoke {LOCAL} --until-ci 5% --repeats 9", "set the upper bound with --max-repeats"),
        (f"run smoke {LOCAL} --max-repeats 9", "--max-repeats requires --until-ci"),
        ("run smoke --resume --until-ci 5%", "--until-ci and --resume are mutually exclusive"),
        ("compare smoke prefault", "there is no run 'smoke'"),
        ("export smoke", "there is no run 'smoke'"),
        ("import nothing.zip", "'nothing.zip' does not exist"),
        ("run smoke --fresh often", "fresh"),
        ("run smoke --hots vm", "--hots"),
        ("run smoke --resume", "there is no run 'smoke'"),
        ("run smoke --resume --repeats 3", "--repeats and --resume are mutually exclusive"),
        ("run smoke --resume --dry-run", "--dry-run"),
        ("run smoke --repeat-excluded", "add --resume"),
        (
            "run smoke --host rack --resume --repeat-excluded",
            "--repeat-excluded applies to one host",
        ),
        ("show smoke", "there is no run 'smoke'"),
        ("run", "name"),
        ("rnu smoke", '"run"'),
        (
            f"run smoke --dry-run {LOCAL} --fresh trial",
            'fresh = "trial" needs a saved machine state',
        ),
        ("host up mv", "mv"),
        ("host setup [", 'invalid value "["'),
    ],
)
def test_a_wrong_word_is_named_with_its_mend(top: Path, words: str, says: str) -> None:
    assert says.lower() in refused(top, *words.split()).lower()


def test_a_cage_below_what_the_workload_needs(top: Path) -> None:
    (top / "cgroups/tiny.toml").write_text('about = "x"\nMemoryMax = "64KiB"\n')
    said = refused(top, "run", "smoke", *PLAIN, "--cage", "tiny")
    assert "cgroups/tiny.toml: MemoryMax is 65536 bytes at this size, and pcread needs" in said


def test_a_wrong_cage_is_named(top: Path) -> None:
    (top / "cgroups/smoke.toml").write_text('about = "x"\nMemoryMax = "1G"\n')
    said = refused(top, "run", "smoke", "--dry-run", *PLAIN)
    assert "smoke.toml: MemoryMax: '1G' has no clear unit" in said


def test_a_dataset_that_does_not_fit_the_disk(top: Path) -> None:
    write(top, 'dataset = "1GiB" -> dataset = "900TiB"')
    said = refused(top, "run", "asked", "--host", "local", "--dataset", "full")
    assert "900 TiB do not fit" in said


def test_a_machine_that_cannot_be_the_host_says_what_it_lacks(top: Path) -> None:
    """The folder is a tmpfs or systemd is not in charge: whichever it is, nothing is measured
    there.
    """
    (top / "shm").unlink(missing_ok=True)
    (top / "shm").symlink_to("/dev/shm")
    done = pagecage(top, "run", "smoke", *PLAIN, "--yes", "--data-dir", str(top / "shm"))
    assert done.status in (2, 3), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "fix:" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("run", "smoke", "--dry-run", *PLAIN, "--seed", "1"), ("run", "smok"), ("list",), ("--help",)],
)
def test_a_fresh_interpreter_says_the_same(top: Path, words: tuple[str, ...]) -> None:
    """The other tests fork from a process that has its imports done; this one starts anew."""
    fresh, forked = freshly(top, *words), pagecage(top, *words)
    assert fresh.status == forked.status
    assert (fresh.stdout, fresh.stderr) == (forked.stdout, forked.stderr)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_verb_explains_itself(top: Path, verb: str) -> None:
    done = pagecage(top, *([verb] if verb else []), "--help")
    assert done.status == 0
    assert f"Usage: pagecage {verb}".strip() in done.stdout
    assert done.stderr == ""
    if not verb:
        assert all(name in done.stdout for name in VERBS)


def test_the_version(top: Path) -> None:
    assert pagecage(top, "--version").stdout.strip() == VERSION


def test_list_for_people_and_for_programs(top: Path) -> None:
    names = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
    assert [line.split()[0] for line in pagecage(top, "list").stdout.splitlines()] == names
    rows = json.loads(pagecage(top, "list", "--json").stdout)
    assert [row["name"] for row in rows] == names
    [table] = [row for row in rows if row["name"] == "constrained-random"]
    assert table["treatments"] == 18


def test_plan_for_programs_is_data_and_data_alone(top: Path) -> None:
    words = ("run", "constrained-random", "--dry-run", *PLAIN, "--seed", "7", "--repeats", "2")
    done = pagecage(top, *words, "--json")
    assert done.status == 0
    data = json.loads(done.stdout)
    assert (data["seed"], data["repeats"], len(data["trials"])) == (7, 2, 36)
    assert plan_from_json(data).sha256 == data["plan_sha256"]
    again = json.loads(pagecage(top, *words, "--json").stdout)
    assert again["trials"] == data["trials"]


def test_a_dry_run_for_people_shows_the_exact_commands(top: Path) -> None:
    done = pagecage(top, "run", "smoke", "--dry-run", *PLAIN)
    assert done.status == 0
    lines = done.stdout.splitlines()
    assert "smoke on local: 4 trials, 1 repeats of each treatment" in lines[0]
    # By systemd, by the files of cgroup v2, or by those of v1.
    assert re.search(r"BandwidthMax=DISK 20000000|DISK (rbps=)?20000000", done.stdout)
    assert "6709248" in done.stdout
    starts = ("systemd-run", "pagecage-enter", "supervise.py")
    assert sum(any(word in line for word in starts) for line in lines) == 4
    assert not (top / "runs").exists()


def test_a_stopping_rule_is_planned_up_to_its_bound(top: Path) -> None:
    words = ("run", "smoke", "--dry-run", *PLAIN, "--until-ci", "2.5%", "--max-repeats", "7")
    data = json.loads(pagecage(top, *words, "--json").stdout)
    assert (data["until_ci"], data["repeats"], len(data["trials"])) == (0.025, 7, 28)
    told = "stops earlier if every interval is within 2.5 % of its median"
    assert told in pagecage(top, *words).stdout


def test_a_cage_of_ones_own_choice_keeps_the_control(top: Path) -> None:
    done = pagecage(top, "run", "smoke", "--dry-run", *PLAIN, "--cage", "customer-tenth", "--json")
    cages = {trial["cage"]["name"] for trial in json.loads(done.stdout)["trials"]}
    assert cages == {"uncaged", "customer-tenth"}


def test_doctor_looks_and_says(top: Path) -> None:
    done = pagecage(top, "doctor")
    assert done.status in (0, 3)
    assert "HOST=local:" in done.stdout
    assert "HOST=vm:" in done.stdout
    findings = json.loads(pagecage(top, "doctor", "--json").stdout)
    assert all({"host", "what", "level", "detail", "hint"} == set(finding) for finding in findings)
    assert all(finding["hint"] for finding in findings if finding["level"] == "missing")


def test_schemas_are_written_where_asked(top: Path) -> None:
    assert pagecage(top, "articles", "schema").status == 0
    for name in ("cage.schema.json", "experiment.schema.json"):
        assert (top / "docs/schema" / name).read_text() == (ROOT / "docs/schema" / name).read_text()
