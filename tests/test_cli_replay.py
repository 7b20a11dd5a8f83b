"""`pagecage replay` and `pagecage shell` as a user meets them: what is refused, and what a dry run
shows.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagecage.agent.programs.gated_process import GATE
from pagecage.cli.execution import exit_code, shell_status
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.planning.replay_plan import implied_copies, is_only_here
from pagecage.runner.uploads import find_uploads
from tests.checkout import pagecage, refused
from tests.fixtures.records import make_record

LOCAL = "--host local"
HERE = ("--host", "local")


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (
            f"custmer {LOCAL} -- true",
            "no cage and no volume type 'custmer'",
            'did you mean "customer"?',
        ),
        (
            f"customer --cage tnth {LOCAL} -- true",
            "no cage and no volume type 'tnth'",
            'did you mean "tenth"?',
        ),
        (f"customer {LOCAL}", "there is no command", "pagecage replay CAGE -- COMMAND"),
        (
            f"customer {LOCAL} --ready-when (( -- true",
            "'((' is not a regular expression",
            "backslash",
        ),
        (
            f"customer {LOCAL} --ready-when x --ready-port 80 -- true",
            "are mutually exclusive",
            "give one",
        ),
        (
            f"customer {LOCAL} --cold nowhere -- true",
            "--cold: 'nowhere' does not exist",
            "existing file",
        ),
        (
            f"customer {LOCAL} --copy nowhere -- true",
            "--copy: 'nowhere' does not exist",
            "ls -d nowhere",
        ),
        (f"customer {LOCAL} --collectors iostat,srr -- true", "no collector 'srr'", '"sar"'),
        (
            f"customer {LOCAL} --writes --cold /etc/hostname -- true",
            "--writes restores copies, and nothing is copied",
            "--copy",
        ),
        ("customer --host mars -- true", "no single host 'mars'", "auto"),
        (f"tenth {LOCAL} -- true", "share of the dataset", ""),
        (
            f"customer {LOCAL} --copy-program -- no-such-program",
            "--copy-program: there is no",
            "PATH",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    top: Path, words: str, says: str, hint: str
) -> None:
    said = refused(top, "replay", *words.split())
    assert says in said
    assert hint in said


def test_a_program_that_cannot_be_started_has_the_codes_of_docker_run(top: Path) -> None:
    (top / "notes.txt").write_text("no program")
    for verb in (f"replay customer {LOCAL}", f"memory customer {LOCAL}", "cold notes.txt"):
        said = refused(top, *verb.split(), "--", "no-such-program", status=127)
        assert "there is no program 'no-such-program' fix: check its name and PATH" in said
        said = refused(top, *verb.split(), "--", "./notes.txt", status=126)
        assert "'./notes.txt' is not executable fix: chmod +x ./notes.txt" in said


@pytest.mark.parametrize(
    "words", [("--repeats", "0"), ("--timeout", "0s"), ("--ready-port", "99999"), ("--cache", "x")]
)
def test_figures_out_of_range_are_refused(top: Path, words: tuple[str, ...]) -> None:
    refused(top, "replay", "customer", *HERE, *words, "--", "true")


def dry(top: Path, *words: str) -> str:
    done = pagecage(top, "replay", *words)
    assert done.status == 0, done.stderr
    assert not (top / "runs").exists()
    return done.stdout


def test_a_dry_run_shows_the_exact_commands(top: Path) -> None:
    shown = dry(top, "customer", *HERE, "--dry-run", "--", "grep", "-r", "{file} --x", ".")
    assert "replay-grep on local: 2 trials" in shown
    assert re.search(r"BandwidthMax=DISK 200000000|DISK (rbps=)?200000000", shown)
    assert f"-- sh -c '{GATE}' sh grep -r '{{file}} --x' ." in shown
    assert shown.index("r1_uncaged") < len(shown)


@pytest.mark.parametrize(
    ("words", "is_noted"),
    [
        (("gcp-hyperdisk-throughput", "--size", "2TiB", "--throughput", "600"), True),
        (("aws-gp2", "--size", "100GiB"), True),  # with the latencies that users measured
        (("customer",), False),
    ],
)
def test_a_latency_that_no_cgroup_imposes_is_noted(
    top: Path, words: tuple[str, ...], is_noted: bool
) -> None:
    done = pagecage(top, "replay", *words, *HERE, "--dry-run", "--", "true")
    assert done.status == 0, done.stderr
    note = f"note: {words[0]} has a latency, which a cgroup does not impose"
    assert (note in done.stderr) is is_noted
    assert not is_noted or "--enforced-by volume does" in done.stderr
    if is_noted:
        volume = (*words, "--enforced-by", "volume", *HERE, "--dry-run", "--", "true")
        assert "does not impose" not in pagecage(top, "replay", *volume).stderr


def test_without_the_control_and_with_another_cage(top: Path) -> None:
    words = f"customer --cage iops-500 --no-control --repeats 2 {LOCAL} --dry-run -- true"
    shown = dry(top, *words.split())
    assert "4 trials, 2 repeats" in shown
    assert "uncaged" not in shown


def test_a_server_is_shown_with_its_load_and_its_metrics(top: Path) -> None:
    server = ("--serve", "sh -c 'serve it'", "--ready-port", "7000")
    load = ("--load", "sh 'a b'", "--warm-up", "10s", "--settle", "2s")
    metrics = ("--metric", "tps = ([0-9.]+)", "--metric", "p99_ms=$.p99")
    shown = dry(top, "customer", *HERE, *server, *load, *metrics, "--dry-run")
    assert "server sh -c 'serve it', ready when it listens on port 7000\n" in shown
    assert "load sh 'a b', after 10 s of warm-up and 2 s of pause\n" in shown
    assert "metric tps: tps = ([0-9.]+)\nmetric p99_ms: $.p99\n" in shown
    assert f"-- sh -c '{GATE}' sh sh -c 'serve it'" in shown
    assert f"SPOOL/load.json AGENT_PID sh -c '{GATE}' sh sh 'a b'" in shown


def test_a_share_is_of_the_data_that_are_named(top: Path) -> None:
    (top / "data").write_bytes(b"x" * 10_000_000)
    shown = dry(top, "tenth", "--cold", "data", *HERE, "--dry-run", "--", "cat", "data")
    assert "MemoryMax=999424" in shown  # a tenth, rounded down to a page
    assert "cache cold" in shown


@pytest.mark.parametrize(
    ("cold", "copy", "host", "copied"),
    [
        (("data",), (), "vm", ("data",)),
        (("data",), (), "local", ()),
        (("data", "gone"), ("tree",), "local", ("data",)),
        (("tree/one",), ("tree",), "vm", ()),
        (("/usr/bin", ""), (), "vm", ()),
        (("{here}/data",), (), "vm", ("{here}/data",)),
        (("{here}/data",), (), "volume", ("{here}/data",)),
        (("{here}/data",), ("tree",), "local", ()),
        (("{here}/tree/one",), ("tree",), "vm", ()),
    ],
)
def test_cold_files_of_here_are_copied_to_where_it_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cold: tuple[str, ...],
    copy: tuple[str, ...],
    host: str,
    copied: tuple[str, ...],
) -> None:
    (tmp_path / "data").write_text("here")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/one").write_text("below")
    monkeypatch.chdir(tmp_path)
    there = [tuple(path.format(here=tmp_path) for path in paths) for paths in (cold, copied)]
    assert implied_copies(there[0], find_uploads(copy), host) == there[1]


@pytest.mark.parametrize(
    ("program", "host", "is_copied"),
    [
        ("./tool", "vm", True),
        ("./tool", "local", False),
        ("tool", "vm", False),
        ("/usr/bin/env", "vm", False),
        ("./gone", "vm", False),
        ("./tree/one", "vm", False),
        ("./t\0l", "vm", False),
    ],
)
def test_a_program_of_here_is_copied_to_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, host: str, is_copied: bool
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/one").write_text("copied with its directory")
    monkeypatch.chdir(tmp_path)
    assert is_only_here(program, find_uploads(["tree"]), host) is is_copied


def test_a_script_and_a_binary_of_here_are_started_from_their_copies(top: Path) -> None:
    (top / "serve.sh").write_text("#!/bin/sh\n")
    shutil.copy("/bin/true", top / "tool")
    words = ("replay", "customer", "--host", "vm", "--no-control", "--dry-run", "--")
    assert " /data/replay/serve.sh -a\n" in pagecage(top, *words, "./serve.sh", "-a").stdout
    assert " /data/replay/program/tool -a\n" in pagecage(top, *words, "./tool", "-a").stdout
    loads = (*words[:-1], "--serve", "sleep 9", "--ready-port", "80", "--load", "./serve.sh 1")
    assert " /data/replay/serve.sh 1\n" in pagecage(top, *loads).stdout


def test_an_absolute_path_of_here_is_copied_to_the_guest(top: Path) -> None:
    (top / "data").write_text("here")
    words = ("replay", "customer", "--host", "vm", "--no-control", "--dry-run", "--cold")
    done = pagecage(top, *words, str(top / "data"), "--", "cat", str(top / "data"))
    assert " cat /data/replay/data\n" in done.stdout, done.stderr
    assert "is on the vm host" not in done.stderr


def test_a_program_of_the_guest_is_named_with_its_user(top: Path) -> None:
    words = ("replay", "customer", "--host", "vm", "--dry-run")
    note = "note: postgres must be installed in the guest, and runs there as root"
    done = pagecage(top, *words, "--", "postgres", "-D", "data")
    assert note in done.stderr
    assert "PAGECAGE_VM_USER=bench" in done.stderr
    shutil.copy("/bin/true", top / "tool")
    assert "must be installed" not in pagecage(top, *words, "--", "./tool").stderr


def test_a_shell_needs_a_terminal(top: Path) -> None:
    assert "is not a terminal" in refused(top, "shell", "customer", *HERE)
    assert 'did you mean "customer"?' in refused(top, "shell", "custmer", *HERE)
    assert "no clear unit" in refused(top, "shell", "tenth", "--data-size", "1G", *HERE)


class Ended:
    """A job whose trials ended so."""

    def __init__(self, *records: object, replay: bool = True, streams: bool = True) -> None:
        self.streams_output = streams
        trials = [SimpleNamespace(trial_id=str(n)) for n in range(len(records))]
        document: Json = {"replay": {} if replay else None, "experiment": "replay-x"}
        self.plan = SimpleNamespace(document=document, trials=trials)
        self.folder = SimpleNamespace(
            last_records=lambda: {str(n): record for n, record in enumerate(records)}
        )


def failed(status: int, **exit_: object) -> Record:
    ended = {"status": status, "ended_by_itself": True, **exit_}
    return make_record(outcome="failed", error="it failed", exit=ended)


def code(*records: object, status: int = 0, **changes: bool) -> int:
    return exit_code(Ended(*records, **changes), status, lambda _: None)  # type: ignore[arg-type]


def test_the_programs_status_is_ours() -> None:
    assert code(make_record()) == 0
    assert code(failed(3)) == 3
    assert code(failed(-9)) == shell_status(-9) == 137
    assert code(make_record(), failed(5), streams=False) == 5
    assert code(make_record(), status=4) == 125, "trials without a result are a failure of its own"
    assert code(failed(3), replay=False) == 0


def test_the_status_of_a_load_is_ours() -> None:
    def ended(status: int) -> Record:
        load = {"ended_by_itself": True, "status": status}
        exit_ = {"status": -15, "ended_by_itself": False}
        return make_record(outcome="failed", error="it failed", exit=exit_, load=load)

    assert code(ended(3), streams=False) == 3
    assert code(ended(-9), streams=False) == 137
    assert code(ended(0), streams=False) == 1, "a metric is missing"


def missed(requirement: str, reason: str, hint: str) -> Record:
    entry = {"requirement": requirement, "reason": reason, "hint": hint}
    return make_record(outcome="requirement_missed", missed_requirements=[entry])


MEMBER = {"pid": 7, "name": "sleep", "cgroup": "/x"}


@pytest.mark.parametrize(
    ("record", "status", "hint"),
    [
        (failed(0, left_behind=[MEMBER]), 2, "--ready-port"),
        (failed(0, escaped=[MEMBER]), 2, "pagecage shell"),
        (missed("port", "port 80 is in use", "take another"), 2, "take another"),
        (missed("cpu_controller", "no cpu", "delegate"), 3, "delegate"),
    ],
)
def test_what_the_user_or_the_host_can_fix_is_reported(
    record: object, status: int, hint: str
) -> None:
    with pytest.raises(PagecageError) as caught:
        code(record)
    assert caught.value.exit_code == status
    assert hint in caught.value.hint
