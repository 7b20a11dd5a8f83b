"""Random SIGKILLs on this machine: `python -m reliability.local_kills [OPTION ...]`.

Each kill ends the controller, the agent, the workload or a tool that records, at a random moment of
a run of 40 short trials, whose limits cgroup files hold. The last start is left alone, and must
finish. The campaign has its own processes, mounts, spool and disk, a file by loop, so that other
runs on this machine are not met. It needs root and `unshare`. The results are added to
docs/trust/local-kills.json; the seed and the number of a run choose its kills.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from reliability.campaign import arguments, folder_on_disk, kill_runs, repeat_run, run_isolated
from reliability.local_kills.killer import (
    VARIANTS,
    KilledLocally,
    kill_run,
    make_project,
    own_disk,
    run_unharmed,
)

SEED = 20261124


def main(words: Sequence[str] | None = None) -> int:
    """Kill until the time is over; return 1 if a kill had a consequence that must not be."""
    parser = arguments("local_kills", isolated=True)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--repeat", type=int, help="repeat the stored run of this number alone")
    asked = parser.parse_args(words)
    if not asked.inside:
        return run_isolated("local_kills", words)
    with folder_on_disk() as name, own_disk(Path(name)):
        folder = Path(name)
        os.environ |= {"XDG_STATE_HOME": name, "XDG_CACHE_HOME": name}
        make_project(folder)
        until = time.monotonic() + asked.seconds
        unharmed = {variant: run_unharmed(folder, variant) for variant in VARIANTS}
        path = asked.results / "local-kills.json"

        def kill(number: int) -> KilledLocally:
            return kill_run(number, SEED, folder, unharmed)

        if asked.repeat:
            return repeat_run(path, asked.repeat, kill)
        return kill_runs(path, SEED, kill, until, asked.kills)


if __name__ == "__main__":
    sys.exit(main())
