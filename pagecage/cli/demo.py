"""`pagecage demo`: the cost of a slow disk, shown with a file that pagecage makes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pagecage.agent.volume_server import choose_path
from pagecage.checkout import BUILD
from pagecage.cli.execution import create_run, execute, exit_code
from pagecage.cli.output import typed_command, writing
from pagecage.cli.show import report
from pagecage.errors import HostError
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.json_codec import JsonView
from pagecage.model.requirements import check_limits
from pagecage.planning.options import HostName, ReplayOptions
from pagecage.planning.replay_plan import plan_for
from pagecage.terminal import Notify, notify
from pagecage.units import MIB, format_bytes

_NAME = "slow-disk"
_LIMITS = {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500}
_FILE_BYTES = 64 * MIB
_LINE_BYTES, _LINES_BETWEEN = 64, 1000
_REPEATS = 3
_NEXT = """what next:
  pagecage show {run}
  pagecage replay aws-gp3 --size 500GiB --cold FILE -- YOUR COMMAND
  pagecage init -- YOUR COMMAND
  pagecage doctor"""


def demo(*, host: HostName = "auto", keep: bool = False) -> int:
    """Show what a slow disk costs, with a file that pagecage makes.

    It takes less than three minutes. Where this machine cannot hold limits, a simulated volume is
    the slow disk. Where it has neither, only the run without limits is made.

    Parameters
    ----------
    host
        Host to run on: auto, local or vm. auto never starts a guest
    keep
        Leave the file, and print its path
    """
    with _text_file(keep) as file:
        cages = {UNCAGED: Cage(UNCAGED, {})}
        cages |= slow_disk(LocalHost(None).facts(), notify) if host == "auto" else _slow_disk()
        place = "local" if host == "auto" else host
        options = ReplayOptions(host=place, cold=(str(file),), repeats=_REPEATS, timeout=120.0)
        words = ("grep", "-c", "needle", str(file))
        plan, machine = plan_for(cages, words, options, typed_command(), notify)
        prepared = create_run(plan, machine, True, notify)
        status = execute(prepared, notify)
        report(prepared.folder.path)
    notify(_NEXT.format(run=plan.document["experiment"]))
    return exit_code(prepared, status, notify)


def slow_disk(facts: JsonView, notify: Notify) -> dict[str, Cage]:
    """Return the slow disk as this machine can make it, by name; empty if it cannot."""
    if not (missed := check_limits(facts)):
        return _slow_disk()
    try:
        choose_path()
    except HostError as error:
        notify(f"no slow disk: {missed[0].reason}, and {error.message}")
        notify("only the run without limits is made; pagecage doctor says what is missing")
        return {}
    notify(f"slow disk: a simulated volume, because {missed[0].reason}")
    return _slow_disk(enforced_by="volume")


def _slow_disk(**changes: Any) -> dict[str, Cage]:
    return {_NAME: Cage(_NAME, _LIMITS, **changes)}


@contextmanager
def _text_file(keep: bool) -> Iterator[Path]:
    """Yield a new file of random lines, by its path from here; remove it afterwards."""
    file = BUILD / "demo/lines.txt"
    notify(f"making {file}, {format_bytes(_FILE_BYTES)} of text ...")
    source = random.Random(7)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            for _ in range(_FILE_BYTES // (_LINE_BYTES * _LINES_BETWEEN)):
                digits = source.randbytes(_LINE_BYTES * _LINES_BETWEEN // 2).hex()
                lines = [
                    digits[n : n + _LINE_BYTES - 1] for n in range(0, len(digits), _LINE_BYTES)
                ]
                out.write("\n".join(["needle", *lines, ""]).encode())
    is_kept = False
    try:
        yield Path(os.path.relpath(file))
        is_kept = keep
    finally:
        if is_kept:
            notify(f"kept: {file}")
        else:
            file.unlink(missing_ok=True)
