"""Programs of this machine replayed in the guest, and a shell in a cage there."""

from __future__ import annotations

import os
import pty
import random
import time
from pathlib import Path

import pytest

from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_client import read_guest
from pagecage.model.record import Record, read_records
from pagecage.process import PIPE, spawn
from pagecage.units import MIB
from tests.builders.command_line import CommandLine, verdicts
from tests.builders.known import known

pytestmark = pytest.mark.vm
_DATA_BYTES = 48 * MIB
_CAP_BYTES = 20_000_000  # cgroups/customer-tenth.toml
_LONGEST_SECONDS = 600.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "words"
    line = random.Random(1).randbytes(500).hex().encode() + b"\n"
    path.write_bytes((line * (_DATA_BYTES // len(line) + 1))[:_DATA_BYTES] + b"a needle\n")
    return path


@pytest.fixture(scope="module", params=["root", pytest.param("bench", marks=pytest.mark.long)])
def replayed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data: Path
) -> CommandLine:
    """This machine's grep, copied with its libraries, in a cage and without one."""
    runs = tmp_path_factory.mktemp(f"replay-{request.param}")
    made = CommandLine(runs, "replay-grep", PAGECAGE_VM_USER=request.param)
    file = os.path.relpath(data) if request.param == "root" else str(data)
    # a relative --cold is copied by default
    copy = () if request.param == "root" else ("--copy", file)
    options = ("--host", "vm", *copy, "--cold", file, "--copy-program")
    made.succeed("replay", "customer-tenth", *options, "--", "grep", "-c", "needle", file)
    return made


def by_cage(made: CommandLine) -> dict[str, Record]:
    return {record.treatment["cage"]: record for record in made.records()}


def test_the_cage_decides_how_long_it_takes(replayed: CommandLine) -> None:
    records = by_cage(replayed)
    outcomes = {name: record.outcome for name, record in records.items()}
    assert outcomes == {"uncaged": "ok", "customer-tenth": "ok"}
    caged, free = (
        records[name].response["wall_seconds"] or 0 for name in ("customer-tenth", "uncaged")
    )
    least_seconds = _DATA_BYTES / _CAP_BYTES
    assert 0.9 * least_seconds < caged < 4 * least_seconds
    assert free < caged


def test_every_limit_is_proven_and_the_one_that_bound_is_named(replayed: CommandLine) -> None:
    for name, record in by_cage(replayed).items():
        judged = verdicts(replayed, record)
        assert {limit.verdict for limit in judged.limits} <= {"enforced"}, judged.limits
        assert judged.cache_state_reached.verdict == "reached"
        assert record.response["device_read_bytes"] == pytest.approx(_DATA_BYTES, rel=0.05)
        if name == "customer-tenth":
            assert judged.binding_limit.verdict == "bandwidth", judged.binding_limit


def test_the_report_tells_what_was_run_and_the_factor(replayed: CommandLine) -> None:
    page = (replayed.folder() / "report.html").read_text()
    assert "How long does `grep -c needle" in page.replace("<code>", "`").replace("</code>", "`")
    assert "times as long as without limits" in page


@pytest.mark.slow
def test_what_was_carried_is_gone(replayed: CommandLine, tmp_path: Path) -> None:
    assert known(by_cage(replayed)["uncaged"].workload.argv)[0].startswith("/data")
    status, out, _ = single(tmp_path, b"", "ls", "/data")
    assert status == 0
    assert b"replay" not in out.split()


def single(
    runs: Path, sent: bytes, *command: str, options: tuple[str, ...] = ()
) -> tuple[int, bytes, str]:
    """Status, output and messages of a single replay in one cage, without the control."""
    argv = ["replay", "customer-tenth", "--no-control", "--host", "vm", *options, "--", *command]
    runner = CommandLine(runs)
    env = runner.environment
    process = spawn(runner.argv(*argv), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env)
    out, printed = process.communicate(sent, timeout=_LONGEST_SECONDS)
    return process.returncode, out, printed.decode()


@pytest.mark.slow
def test_a_single_replay_is_transparent(tmp_path: Path) -> None:
    """Input, output and status are the program's own, through ssh and the agent."""
    sent = os.urandom(300_000)
    status, out, printed = single(tmp_path, sent, "sh", "-c", "cat; exit 5")
    assert (status, out) == (5, sent), printed


@pytest.mark.long
def test_a_server_is_measured_until_it_listens(tmp_path: Path) -> None:
    server = ("python3", "-m", "http.server", "8080")
    status, _, printed = single(tmp_path, b"", *server, options=("--ready-port", "8080"))
    assert status == 0, printed
    [record] = read_records(next(tmp_path.glob("*-replay-python3-vm")) / "records.jsonl")
    assert 0 < (record.response["ready_seconds"] or 0) < 60
    assert record.exit.status == -15


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("systemd-run", "--quiet", "--scope", "sleep", "30"), 125, "left the cage for"),
        (("sh", "-c", "sleep 100 & exit 0"), 125, "it ended while sleep"),
        (("no-such-program",), 127, "there is no program 'no-such-program' in the guest"),
    ],
)
def test_what_evades_the_cage_is_a_mistake_with_its_mend(
    tmp_path: Path, command: tuple[str, ...], code: int, says: str
) -> None:
    status, _, printed = single(tmp_path, b"", *command)
    assert status == code, printed
    assert says in " ".join(printed.split())
    assert "fix:" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_a_shell_in_a_cage(tmp_path: Path) -> None:
    """Its limits are those of the guest's kernel, and leaving it leaves nothing."""
    runner = CommandLine(tmp_path)
    master, slave = pty.openpty()
    argv = ["setsid", "-cw", *runner.argv("shell", "customer-tenth", "--host", "vm")]
    process = spawn(argv, stdin=slave, stdout=slave, stderr=slave, env=runner.environment)
    os.close(slave)
    printed = read_until(master, b"removed when you leave")
    assert b"io.max.rbps      20000000" in printed
    limits = b"/sys/fs/cgroup/pagecage.slice/pagecage-shell.1.slice/io.max"
    os.write(master, b"cat %b; echo seen-$((40 + 2))\n" % limits)
    assert b"rbps=20000000 wbps=20000000 riops=500 wiops=500" in read_until(master, b"seen-42")
    os.write(master, b"exit 3\n")
    read_until(master, None)
    os.close(master)
    assert process.wait(60) == 3
    assert read_guest(GuestCache.of_user()) is None


def read_until(descriptor: int, mark: bytes | None) -> bytes:
    """Return the output up to the mark, or to the end."""
    printed, deadline = b"", time.monotonic() + _LONGEST_SECONDS
    while mark is None or mark not in printed:
        assert time.monotonic() < deadline, printed
        try:
            piece = os.read(descriptor, 4096)
        except OSError:  # EIO: the other end is closed (pty(7))
            break
        printed += piece
    return printed
