"""Random SIGKILLs on the real guest: `python -m reliability.guest_kills [OPTION ...]`.

Each kill ends the controller, the agent in the guest, or QEMU, at a random moment of a run of four
trials, up to 16 times for a run. The last start is left alone, and must finish. `--guest kept`
uses a guest that `pagecage host up vm` started, which is looked through afterwards; `--guest own`
one that the run starts itself. No other process may use the guest meanwhile; with another
XDG_CACHE_HOME the campaign has one of its own. The results are added to
docs/trust/guest-kills.json; the seed and the number of a run choose its kills.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest import down, up
from pagecage.whole_files import write_whole
from reliability.faults.store import code_state
from reliability.guest_kills.killer import AGENT, CONTROLLER, QEMU, kill_run, run_unharmed
from reliability.page import PAGE, RESULTS, page

SEED = 20261123
TARGETS = {"kept": (CONTROLLER, AGENT), "own": (CONTROLLER, AGENT, QEMU)}


def main(words: Sequence[str] | None = None) -> int:
    """Kill until the time is over; return 1 if a kill had a consequence that must not be."""
    asked = _parser().parse_args(words)
    until, wrong = time.monotonic() + asked.seconds, False
    with _guest(asked.guest):
        run_unharmed(GuestCache.of_user())  # it may save a machine state, for which no later waits
        unharmed = run_unharmed(GuestCache.of_user())
        while time.monotonic() + 3 * unharmed.seconds < until:
            stored = _stored(asked.results)
            number = stored["tries"] + 1
            killed = kill_run(number, SEED, asked.guest, TARGETS[asked.guest], unharmed)
            stored["tries"] = number
            stored["runs"].append({**asdict(killed), "code": code_state()})
            sys.stderr.write(json.dumps(stored["runs"][-1]) + "\n")
            wrong = wrong or bool(killed.wrong)
            _store(asked.results, stored)
    return int(wrong)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliability.guest_kills")
    parser.add_argument("--guest", choices=list(TARGETS), default="kept")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


@contextmanager
def _guest(kind: str) -> Iterator[None]:
    if kind == "own":
        yield
        return
    up(_say)
    try:
        yield
    finally:
        down(_say)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _stored(results: Path) -> dict[str, Any]:
    path = results / "guest-kills.json"
    if not path.exists():
        return {"seed": SEED, "tries": 0, "runs": []}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _store(results: Path, stored: dict[str, Any]) -> None:
    write_whole(results / "guest-kills.json", json.dumps(stored, indent=1) + "\n")
    if results == RESULTS:
        PAGE.write_text(page())


if __name__ == "__main__":
    sys.exit(main())
