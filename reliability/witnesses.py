"""The campaign: the trials in the guest, with QEMU's statistics around each measured part.

python -m reliability.witnesses cgroup|volume
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.plan import Plan
from pagecage.model.record import Record
from pagecage.model.record_sections import Row
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.report.model import markdown_table
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.counters import difference, io_difference
from pagecage.verdicts.quiet import judge_host_quiet
from reliability.campaign import RESULTS, code_of, guest_plan, read_results, write_results
from reliability.disks.section import worst_cases

MIB = 1024 * 1024
LIMITS = {
    "IOReadBandwidthMax": 4_000_000,
    "IOReadIOPSMax": 400,
    "IOWriteBandwidthMax": 4_000_000,
    "IOWriteIOPSMax": 400,
}
CAGES = {
    "uncaged": Cage(UNCAGED, {}),
    "cgroup": Cage("witnesses", LIMITS),
    "volume": Cage("witnesses", LIMITS, enforced_by="volume"),
}
PLANS = {"cgroup": ("uncaged", "cgroup"), "volume": ("volume",)}
"""The plans of the campaign, with their cages. With a volume, its server is every trial's disk."""
_WRITTEN_BYTES = 16 * MIB
_DIRECT = ("--direct=1", "--ioengine=libaio")
_BUFFERED = ("--rw=write", "--bs=16k", "--size=8M", "--fsync=64")
_DATASET = Dataset(32 * MIB)


@dataclass(frozen=True)
class Load:
    """A load of fio. `arguments` lack only the file.

    A load that `makes_file` removes it at its end. Others write to one that another cgroup wrote.
    One that `is_part` ends in the middle of the file.
    """

    arguments: tuple[str, ...]
    writes: bool = False
    makes_file: bool = False
    is_part: bool = False

    @property
    def file(self) -> str:
        if self.makes_file:
            return "{data_dir}/witness-new.bin"
        return "{data_dir}/witness.bin" if self.writes else "{file}"

    @property
    def is_direct(self) -> bool:
        return "--direct=1" in self.arguments


LOADS = {
    "sequential reads, direct": Load(
        ("--rw=read", "--bs=64k", "--size=16M", "--iodepth=4", *_DIRECT)
    ),
    "random reads, direct": Load(
        ("--rw=randread", "--bs=4k", "--io_size=4M", "--iodepth=8", *_DIRECT)
    ),
    "sequential reads of a whole file, buffered": Load(("--rw=read", "--bs=64k")),
    "sequential reads of half a file, buffered": Load(
        ("--rw=read", "--bs=64k", "--size=16M"), is_part=True
    ),
    "random reads, buffered": Load(("--rw=randread", "--bs=4k", "--io_size=4M")),
    "sequential writes, direct, fsync": Load(
        ("--rw=write", "--bs=16k", "--size=8M", "--fsync=64", "--iodepth=4", *_DIRECT), writes=True
    ),
    "random writes, direct, fsync": Load(
        ("--rw=randwrite", "--bs=4k", "--size=16M", "--io_size=4M", "--fsync=256", *_DIRECT),
        writes=True,
    ),
    "buffered writes to a new file, fsync": Load(
        (*_BUFFERED, "--end_fsync=1", "--unlink=1"), writes=True, makes_file=True
    ),
    "buffered writes to an old file, fsync": Load(_BUFFERED, writes=True),
}
_LAYOUT = ("--rw=write", "--bs=1M", f"--size={_WRITTEN_BYTES}", "--end_fsync=1")
LAYOUT = "layout"
"""The load of the first trial, which makes the file that others overwrite."""


def trials(plan: str) -> Iterator[Trial]:
    cages = PLANS[plan]
    first = replace(_trial(LAYOUT, cages[0], Load(_LAYOUT, writes=True)), trial_id=LAYOUT)
    yield first
    for cage in cages:
        for number, (name, load) in enumerate(LOADS.items()):
            trial = _trial(name, cage, load)
            yield replace(trial, trial_id=f"{cage}-{number}", position=number)


def plan_of(name: str) -> Plan:
    return guest_plan(f"witnesses-{name}", "witnesses", list(trials(name)))


def _trial(name: str, cage: str, load: Load) -> Trial:
    words = ("--name=witness", "--thread", f"--filename={load.file}", "--output-format=json")
    return Trial(
        trial_id="",
        experiment="witnesses",
        treatment={"load": name, "cage": cage},
        repeat=1,
        block=1,
        position=0,
        workload=Workload(
            "fio", (*words, *load.arguments), "command", 0, CommandSpec(streams_output=True)
        ),
        cage=CAGES[cage],
        cache="any" if load.writes else "cold",
        dataset=None if load.writes else _DATASET,
        timeout_seconds=120.0,
        writes_bytes=_WRITTEN_BYTES if load.writes else 0,
    )


WITNESSES = ("fio", "io.stat", "diskstats", "QEMU", "volume")
QUANTITIES = ("read bytes", "reads", "written bytes", "writes")
_SECTOR_BYTES = 512
_IO_STAT = {"read bytes": "rbytes", "reads": "rios", "written bytes": "wbytes", "writes": "wios"}
_QEMU = {
    "read bytes": "rd_bytes",
    "reads": "rd_operations",
    "written bytes": "wr_bytes",
    "writes": "wr_operations",
    "reads merged": "rd_merged",
    "writes merged": "wr_merged",
}
_VOLUME = {
    "read bytes": "total_read_bytes",
    "reads": "total_read_ops",
    "written bytes": "total_write_bytes",
    "writes": "total_write_ops",
}
Account = Mapping[str, float]


def accounts(
    record: Record, blocks: Sequence[Mapping[str, Any]], fio_text: str
) -> dict[str, Account]:
    """Return the account of each witness; the volume's is missing if it did not serve the disk.

    `blocks` are QEMU's statistics of the data disk before and after the measured part.
    """
    found: dict[str, Account] = {
        "fio": of_fio(fio_text),
        "io.stat": {name: io_difference(record, key) or 0 for name, key in _IO_STAT.items()},
        "diskstats": of_device(record),
        "QEMU": {name: blocks[1][key] - blocks[0][key] for name, key in _QEMU.items()},
    }
    served = (record.cage.external or {}).get("account")
    if served:
        found["volume"] = {name: served[key] for name, key in _VOLUME.items()}
    return found


def of_fio(text: str) -> dict[str, float]:
    """Return the sums over fio's jobs, from its JSON."""
    jobs = json.loads(text[text.index("{") :])["jobs"]
    parts = {"read": "read bytes", "write": "written bytes"}
    found: dict[str, float] = {}
    for part, name in parts.items():
        found[name] = sum(job[part]["io_bytes"] for job in jobs)
        found[f"{part}s"] = sum(job[part]["total_ios"] for job in jobs)
    return found


def of_device(record: Record) -> dict[str, float]:
    """Return the disk's line of /proc/diskstats; merged requests stand for themselves."""

    def grown(field: str) -> float:
        return difference(record, "device", field) or 0

    return {
        "read bytes": grown("sectors_read") * _SECTOR_BYTES,
        "reads": grown("reads"),
        "reads merged": grown("reads_merged"),
        "written bytes": grown("sectors_written") * _SECTOR_BYTES,
        "writes": grown("writes"),
        "writes merged": grown("writes_merged"),
        "flushes": grown("flushes"),
    }


def data_disk(answer: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the statistics of the data disk in QEMU's answer to `query-blockstats`."""
    for block in answer:
        if "data-disk" in str(block.get("qdev")):
            stats: Mapping[str, Any] = block["stats"]
            return stats
    raise LookupError(f"QEMU lists no data disk among {[one.get('qdev') for one in answer]}")


TOLERANCE = 0.01
SLACK = {"read bytes": 65536, "reads": 4, "written bytes": 65536, "writes": 4}
"""A difference of so little is none: the file system reads a block of its own now and then."""
ABOVE, BELOW = ("fio", "io.stat"), ("diskstats", "QEMU", "volume")
"""Witnesses of the trial's own requests, and of all requests to the disk."""
PAGE_CACHE = "the page cache forms requests of its own (read-ahead, writeback)"
JOURNAL = "ext4's journal and inodes are written by kernel threads outside of the trial's slice"
READ_AHEAD = "read-ahead goes past the last block that fio reads"
HANDED_OVER = (
    "the kernel charges the flush of a file to the cgroup that wrote it before, and hands it over"
    " only after several flushes (cgroup-v2.rst, Writeback)"
)
MERGED_BY_QEMU = "QEMU merged adjacent requests before the volume (turned off since)"
NOT_YET = "the last writes are still in the page cache when the trial ends"
MERGED = "the scheduler merges requests after io.stat has counted them"


@dataclass(frozen=True)
class Difference:
    """Two witnesses of one quantity in one trial. `reason` is why they must differ; None if not.

    `share` is the second's excess over the first.
    """

    pair: tuple[str, str]
    quantity: str
    trial: str
    first: float
    second: float
    reason: str | None

    @property
    def share(self) -> float:
        """The excess of the second over the first, as a share of the first."""
        return self.second / self.first - 1 if self.first else float(self.second != 0)

    @property
    def is_agreement(self) -> bool:
        apart = abs(self.second - self.first)
        return apart <= max(SLACK[self.quantity], TOLERANCE * self.first)


def differences(trial: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the pairs of witnesses of a stored trial, for what its load moves."""
    load, found = LOADS[trial["load"]], trial["accounts"]
    present = [name for name in WITNESSES if name in found]
    for quantity in QUANTITIES[2:] if load.writes else QUANTITIES[:2]:
        for pair in combinations(present, 2):
            first, second = (
                _amount(found, name, other, quantity)
                for name, other in (pair, tuple(reversed(pair)))
            )
            name = f"{trial['load']}, {trial['cage']}"
            reason = must_differ(pair, quantity, trial)
            yield Difference(pair, quantity, name, first, second, reason)


def _amount(found: Mapping[str, Account], name: str, other: str, quantity: str) -> float:
    """Return what a witness says to be held against another.

    The disk's requests are those that it completed, and against witnesses above it also those that
    were merged into them. QEMU merges once more before the volume.
    """
    account, merged = found[name], f"{quantity} merged"
    if name == "diskstats" and other in ABOVE:
        return account[quantity] + account.get(merged, 0)
    if name == "QEMU" and other == "volume":
        return account[quantity] - account.get(merged, 0)
    return account[quantity]


def must_differ(pair: tuple[str, str], quantity: str, trial: Mapping[str, Any]) -> str | None:
    """Return why two witnesses of a quantity cannot agree; None if they must."""
    load, counts_requests = LOADS[trial["load"]], not quantity.endswith("bytes")
    if "fio" in pair and counts_requests and not load.is_direct:
        return PAGE_CACHE
    if "fio" in pair and load.is_part:
        return READ_AHEAD
    if load.writes and not load.is_direct and not load.makes_file and set(pair) & {*ABOVE}:
        return HANDED_OVER if "io.stat" in pair else NOT_YET
    merged_by_qemu = trial["accounts"]["QEMU"].get(f"{quantity} merged", 0)
    if counts_requests and pair[1] == "volume" and pair[0] != "QEMU" and merged_by_qemu:
        return MERGED_BY_QEMU
    crosses = pair[0] in ABOVE and pair[1] in BELOW
    if crosses and load.writes:
        return JOURNAL
    merged = trial["accounts"]["diskstats"].get(f"{quantity} merged", 0)
    if crosses and counts_requests and pair[1] != "diskstats" and merged:
        return MERGED
    return None


def as_json(one: Difference) -> dict[str, Any]:
    """Return a comparison with its difference, and whether the witnesses agree."""
    return {**asdict(one), "share": round(one.share, 6), "agrees": one.is_agreement}


def unexplained(trials: list[Mapping[str, Any]]) -> list[Difference]:
    """Return the differences beyond the tolerance for which there is no reason."""
    found = (one for trial in trials for one in differences(trial))
    return [one for one in found if one.reason is None and not one.is_agreement]


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


_HEAD = """## Independent witnesses

Up to five witnesses counted the same trials: fio in its JSON, `io.stat` of the trial's slice,
`/proc/diskstats` of the guest's disk, QEMU by `query-blockstats`, and the simulated volume's
account. Two witnesses agree if they differ by at most {tolerance:.0f} %, {requests} requests or
{kib} KiB. If one witness counts above the scheduler, the requests that the scheduler merged are
added to the disk's count.
"""
_FOUND = """Some witnesses must differ. A comparison is excused for a reason that follows from the
load, the two witnesses and the merged requests. Some of the reasons were found in the first run.
The file has every comparison, with both values, the difference, and the reason if the comparison is
excused.
"""


def counts_summary(results: Path) -> Iterator[str]:
    """Yield the summary of witnesses and disks."""
    trials = _trials(results)
    found = [one for trial in trials for one in differences(trial)]
    excused = sum(one.reason is not None for one in found)
    limits, leaks = worst_cases(results)
    yield (
        f"**Counters**: of {len(found)} comparisons of two witnesses, {excused} are excused by a"
        f" stated reason, and {len(unexplained(trials))} of the others disagree. Of"
        f" {limits} limits on stacks of disks, {leaks} read back well and did not hold."
    )


def witnesses_section(results: Path) -> Iterator[str]:
    trials = _trials(results)
    found = [one for trial in trials for one in differences(trial)]
    must_agree = [one for one in found if one.reason is None]
    apart = unexplained(trials)
    yield _HEAD.format(
        tolerance=100 * TOLERANCE, requests=SLACK["reads"], kib=SLACK["read bytes"] // 1024
    )
    yield (
        f"{len(trials)} trials gave {len(found)} comparisons. {len(must_agree)} must agree, and"
        f" {len(must_agree) - len(apart)} do ({_apart(len(apart))}). {len(found) - len(must_agree)}"
        " are excused.\n"
    )
    yield _FOUND
    yield _by_reason(found)


def _trials(results: Path) -> list[Mapping[str, Any]]:
    return list(read_results(results / RESULT.name)["trials"])


def _apart(count: int) -> str:
    return "none is apart" if not count else f"**{count} apart**"


def _by_reason(found: Sequence[Difference]) -> str:
    groups: dict[str | None, list[Difference]] = {None: []}
    for one in found:
        groups.setdefault(one.reason, []).append(one)
    head = ["why they may differ", "comparisons", "agree", "largest difference"]
    return markdown_table(
        head,
        [
            [
                reason or "they may not",
                str(len(ones)),
                str(sum(one.is_agreement for one in ones)),
                _share(max((one.share for one in ones), key=abs, default=0.0)),
            ]
            for reason, ones in groups.items()
        ],
    )


def _share(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:+.2f} %"


if __name__ == "__main__":
    for name in sys.argv[1:] or PLANS:
        measure(plan_of(name), keep)
