"""Random SIGKILLs on this machine: `python -m reliability.local_kills [OPTION ...]`.

Each kill ends the controller, the agent, the workload or a tool that records, at a random moment of
a run of 40 short trials, whose limits cgroup files hold. The last start is left alone, and must
finish. The campaign has its own processes, mounts, spool and disk, a file by loop, so that other
runs on this machine are not met. It needs root and `unshare`. The results are added to
docs/trust/local-kills.json; the seed and the number of a run choose its kills.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagecage.process import spawn
from pagecage.whole_files import write_whole
from reliability.faults.store import code_state
from reliability.local_kills.killer import kill_run, run_unharmed
from reliability.local_kills.place import VARIANTS, make_project, own_disk
from reliability.page import PAGE, RESULTS, page
from tests.tree import ROOT

SEED = 20261124
_INSIDE = "--inside"
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
_ENTER = 'mount -t tmpfs tmpfs /dev/shm && "$@"; exit $?'
"""The shell that becomes process 1 there, which reaps the orphans of killed parents."""


def main(words: Sequence[str] | None = None) -> int:
    """Kill until the time is over; return 1 if a kill had a consequence that must not be."""
    asked = _parser().parse_args(words)
    if not asked.inside:
        argv = sys.argv[1:] if words is None else list(words)
        own = [sys.executable, "-m", "reliability.local_kills", _INSIDE, *argv]
        return spawn([*_NAMESPACES, "sh", "-c", _ENTER, "sh", *own], cwd=ROOT, stderr=None).wait()
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build/tests") as folder, own_disk(Path(folder)):
        return int(_kill(Path(folder), asked))


def _kill(folder: Path, asked: argparse.Namespace) -> bool:
    os.environ |= {"XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    make_project(folder)
    until, wrong = time.monotonic() + asked.seconds, False
    unharmed = {name: run_unharmed(folder, name) for name in VARIANTS}
    stored = _stored(asked.results)
    while (
        time.monotonic() < until and sum(len(run["kills"]) for run in stored["runs"]) < asked.kills
    ):
        number = stored["tries"] + 1
        killed = kill_run(number, SEED, folder, unharmed)
        stored["tries"] = number
        stored["runs"].append({**asdict(killed), "code": code_state()})
        sys.stderr.write(json.dumps(stored["runs"][-1]) + "\n")
        wrong = wrong or bool(killed.wrong)
        _store(asked.results, stored)
    return wrong


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliability.local_kills")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser


def _stored(results: Path) -> dict[str, Any]:
    path = results / "local-kills.json"
    if not path.exists():
        return {"seed": SEED, "tries": 0, "runs": []}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _store(results: Path, stored: dict[str, Any]) -> None:
    write_whole(results / "local-kills.json", json.dumps(stored, indent=1) + "\n")
    if results == RESULTS:
        PAGE.write_text(page())


if __name__ == "__main__":
    sys.exit(main())
