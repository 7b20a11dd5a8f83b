"""The campaign: the trials in the guest, with QEMU's statistics around each measured part.

python -m reliability.witnesses.campaign cgroup|volume
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.record import Record
from pagecage.model.record_sections import Row
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.quiet import judge_host_quiet
from reliability.campaign import RESULTS, code_of, read_results, write_results
from reliability.witnesses.accounts import accounts, as_json, data_disk, differences
from reliability.witnesses.trials import CAGES, LAYOUT, LOADS, PLANS, plan_of

RESULT = RESULTS / "witnesses.json"


class WitnessHost(VmHost):
    """A guest whose QEMU is asked for the disk's statistics whenever the machine around it is."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Mapping[str, Any]] = []

    def outer_sample(self) -> Row:
        self.blocks.append(data_disk(self._running().monitor.execute("query-blockstats")))
        return super().outer_sample()


@dataclass
class Hearing:
    """Listener of a campaign: it puts the witnesses of each trial together, for `keep`."""

    host: WitnessHost
    keep: Callable[[dict[str, Any]], None]
    _output: bytes = b""

    def listen(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "trial":
                self._output, self.host.blocks = b"", []
            case "output" if event["stream"] == "stdout":
                self._output += event["piece"]
            case "record":
                self._take(event["record"])

    def _take(self, record: Record) -> None:
        sys.stderr.write(f"{dict(record.treatment)}: {record.outcome} {record.error or ''}\n")
        if record.treatment["load"] == LAYOUT or record.outcome != "ok":
            return
        found = accounts(record, self.host.blocks, self._output.decode())
        limits = {name: one["held"] for name, one in (record.cage.calibration or {}).items()}
        quiet = vars(judge_host_quiet(record))
        trial = {**record.treatment, "limits_held": limits, "quiet": quiet, "accounts": found}
        self.keep(trial)


def measure(made: Plan, keep: Callable[[dict[str, Any]], None]) -> None:
    """Run a plan of the campaign; hand each trial with the account of each witness to `keep`."""
    host = WitnessHost()
    hearing = Hearing(host, keep)
    with tempfile.TemporaryDirectory() as runs:
        folder = RunFolder.create(Path(runs), made)
        Campaign(host, made, folder, make_agent_package(TOP), hearing.listen).run()


def keep(trial: dict[str, Any], path: Path = RESULT) -> None:
    """Store a trial in place of an earlier one with the same load and cage."""
    found = read_results(path, {"trials": []})
    others = [one for one in found["trials"] if _key(one) != _key(trial)]
    trials = sorted([*others, {**trial, "code": code_of(path.name)}], key=_place)
    stored = {
        **found,
        "machine": platform.machine(),
        "trials": trials,
        "comparisons": [as_json(one) for each in trials for one in differences(each)],
    }
    write_results(path, stored, trials)


def _key(trial: Mapping[str, Any]) -> tuple[str, str]:
    return trial["cage"], trial["load"]


def _place(trial: Mapping[str, Any]) -> tuple[int, int]:
    return list(CAGES).index(trial["cage"]), list(LOADS).index(trial["load"])


if __name__ == "__main__":
    for name in sys.argv[1:] or PLANS:
        measure(plan_of(name), keep)
