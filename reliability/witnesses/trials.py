"""The trials for which all witnesses are asked: fio's loads, without and with a cage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.planning.plan import Plan

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
    made = tuple(trials(name))
    harness = {"version": "0", "git_revision": None, "git_dirty": None}
    document = {"fresh": "never", "experiment": "witnesses", "harness": harness}
    plan = Plan(f"witnesses-{name}", made, document)
    return replace(plan, document={**document, "run_id": plan.run_id, "trials": []})


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
