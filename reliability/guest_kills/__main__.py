"""Random SIGKILLs on the real guest: `python -m reliability.guest_kills [OPTION ...]`.

Each kill ends the controller, the agent in the guest, or QEMU, at a random moment of a run of four
trials, up to 16 times for a run. The last start is left alone, and must finish. `--guest kept`
uses a guest that `pagecage host up vm` started, which is looked through afterwards; `--guest own`
one that the run starts itself. No other process may use the guest meanwhile; with another
XDG_CACHE_HOME the campaign has one of its own. The results are added to
docs/trust/guest-kills.json; the seed and the number of a run choose its kills.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest import down, up
from reliability.campaign import arguments, kill_runs, tell
from reliability.guest_kills.killer import AGENT, CONTROLLER, QEMU, kill_run, run_unharmed

SEED = 20261123
TARGETS = {"kept": (CONTROLLER, AGENT), "own": (CONTROLLER, AGENT, QEMU)}


def main(words: Sequence[str] | None = None) -> int:
    """Kill until the time is over; return 1 if a kill had a consequence that must not be."""
    parser = arguments("guest_kills")
    parser.add_argument("--guest", choices=list(TARGETS), default="kept")
    parser.add_argument("--seconds", type=float, default=1800.0)
    asked = parser.parse_args(words)
    until, is_kept = time.monotonic() + asked.seconds, asked.guest == "kept"
    if is_kept:
        up(tell)
    try:
        run_unharmed(GuestCache.of_user())  # it may save a machine state, for which no later waits
        unharmed = run_unharmed(GuestCache.of_user())
        return kill_runs(
            asked.results / "guest-kills.json",
            SEED,
            lambda number: kill_run(number, SEED, asked.guest, TARGETS[asked.guest], unharmed),
            until - 3 * unharmed.seconds,
        )
    finally:
        if is_kept:
            down(tell)


if __name__ == "__main__":
    sys.exit(main())
