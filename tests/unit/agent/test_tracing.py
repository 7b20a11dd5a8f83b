"""What a kernel offers to tracers, and tracefs, which is mounted and unmounted for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagecage.agent.facts import Kernel, tracing_obstacle
from tests.fake_host import trees
from tests.tree import ROOT

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="mounting tracefs is root's")
PREPARE = """
import os, signal, sys
from pathlib import Path
from pagecage.agent.facts import find_systemd
from pagecage.agent.host_session import sweep
from pagecage.agent.facts import Tracefs
folder, spool = Path("/sys/kernel/tracing"), Path(sys.argv[1])
"""


def in_own_mounts(*programs: str, spool: Path) -> list[str]:
    """Run Python programs, one after the other, where mounts are seen by nobody else.

    tracefs is not mounted there at the start.
    """
    words = "; ".join(f'"$1" -c "${number}" "$2"' for number, _ in enumerate(programs, 3))
    shell = f"umount /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; {words}"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", shell, "sh"]
    argv += [sys.executable, str(spool), *(PREPARE + program for program in programs)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert "Error" not in done.stderr, done.stderr
    return done.stdout.splitlines()


MOUNT_AND_RESTORE = """
made = Tracefs(spool)
made.mount()
mode, has_events = folder.stat().st_mode & 0o777, (folder / "events/block").is_dir()
print(oct(mode), has_events, made.restore(), os.path.ismount(folder), os.listdir(spool))
"""
ALREADY = 'os.system("mount -t tracefs -o mode=755 tracefs /sys/kernel/tracing")\n'
KILLED = "Tracefs(spool).mount(); os.kill(os.getpid(), signal.SIGKILL)"
NEXT = "print(os.path.ismount(folder), sweep(find_systemd(False), spool), os.path.ismount(folder))"


@AS_ROOT
@pytest.mark.parametrize(
    ("programs", "printed"),
    [
        pytest.param([MOUNT_AND_RESTORE], "0o700 True [] False []", id="for root alone"),
        pytest.param([ALREADY + MOUNT_AND_RESTORE], "0o755 True [] True []", id="mounted before"),
        pytest.param([KILLED, NEXT], "True [] False", id="mounted by a killed agent"),
    ],
)
def test_a_session_mounts_tracefs_and_unmounts_what_it_mounted(
    tmp_path: Path, programs: list[str], printed: str
) -> None:
    assert in_own_mounts(*programs, spool=tmp_path) == [printed]


def test_the_arguments_of_a_tracepoint_are_those_of_its_format(tmp_path: Path) -> None:
    kernel = trees.kernel(tmp_path, tracepoints={"block:block_rq_issue": ("dev", "sector")})
    format_file = kernel.tracefs / "events/block/block_rq_issue/format"
    format_file.write_text(
        "format:\n\tfield:int common_pid;\toffset:4;\n\n\tfield:dev_t dev;\toffset:8;\n"
        "\tfield:char rwbs[10];\toffset:32;\n\tfield:__data_loc char[] cmd;\toffset:44;\n"
        'print fmt: "%d", REC->dev\n'
    )
    assert kernel.fields("block:block_rq_issue") == {"common_pid", "dev", "rwbs", "cmd"}
    assert kernel.fields("block:none") == frozenset()


def test_functions_are_those_of_the_kernels_text(tmp_path: Path) -> None:
    kernel = trees.kernel(tmp_path, functions=("submit_bio",))
    symbols = tmp_path / "proc/kallsyms"
    symbols.write_text(symbols.read_text() + "0 D bio_endio\n0 t bio_endio_x\n")
    assert kernel.functions(("submit_bio", "bio_endio")) == {"submit_bio"}


def test_abilities_and_what_is_in_the_way(tmp_path: Path) -> None:
    kernel = trees.kernel(tmp_path, kprobes=False)
    able = kernel.abilities()
    assert able == {"tracefs": "not mounted", "may_mount": True, "btf": True, "kprobes": False}
    assert tracing_obstacle(able, 0) is None
    assert tracing_obstacle(able, 1000) == ("only root can trace", "run pagecage as root")
    (tmp_path / "proc/self/status").write_text("CapEff:\t0000000000000001\n")
    reason, fix = tracing_obstacle(kernel.abilities(), 0) or ("", "")
    assert "CAP_SYS_ADMIN" in reason
    assert fix.startswith("mount -t tracefs")
    absent = Kernel(tmp_path / "none", tmp_path / "proc").abilities()
    assert "CONFIG_TRACING" in (tracing_obstacle(absent, 0) or ("",))[0]
