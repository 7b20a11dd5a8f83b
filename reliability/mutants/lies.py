"""The lies that are planted in simulated trials, and the verdict that must catch each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagecage.model.trial import Workload

SURVIVED, EQUIVALENT, INVISIBLE = "survived", "equivalent", "invisible"
PROVEN = ("before", "collectors", "run")
"""Phases of the agent after the proof of the limits and before the launch."""
RUNNING = ("launch", "go", "middle")
REFUSED, LEAKY = "outcome: requirement_missed", "limits: leaky"
NOT_PREPARED, NOT_QUIET = "outcome: not_prepared", "host_quiet: not_quiet"
WRONG = "outcome: wrong_answer"
CONTRADICTORY, NOT_REACHED = "consistency: contradictory", "cache_state: not_reached"
BEFORE = "It happens before the measured part, of which the counters are differences."


@dataclass(frozen=True)
class Lie:
    """One lie.

    `plant` names what is planted: a plant of the kernel, of the agent's clocks and collectors, of
    the data, or of the files of a run. `expected` begins the words of the verdict that catches it
    ("limits: leaky"), or is `equivalent` or `invisible`, and then `why` gives the reason. `conduct`
    are changes of the workload's conduct, `trial` of the trial, `environment` of the fake systemd.
    """

    group: str
    name: str
    expected: str
    plant: str = "none"
    moments: tuple[str, ...] = ("",)
    why: str = ""
    conduct: Mapping[str, Any] = field(default_factory=dict)
    trial: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mutant:
    lie: Lie
    moment: str

    @property
    def title(self) -> str:
        return f"{self.lie.name} ({self.moment})" if self.moment else self.lie.name


def _group(group: str, *lies: tuple[Any, ...]) -> tuple[Lie, ...]:
    """Return the lies of a group from rows: name, verdict, plant, moments, reason, and changes.

    The changes are those of the workload's conduct, of the trial and of the environment.
    """
    return tuple(
        Lie(group, *row[:-1], **row[-1]) if isinstance(row[-1], dict) else Lie(group, *row)
        for row in lies
    )


def _conduct(**changes: Any) -> dict[str, Any]:
    return {"conduct": changes}


_WORKLOAD = _group(
    "workload",
    ("skips half of the blocks", NOT_PREPARED, _conduct(skips_from=8)),
    ("skips half of the blocks, faster", NOT_PREPARED, _conduct(skips_from=8, waits=False)),
    ("good checksum without reading", NOT_PREPARED, _conduct(skips_from=0)),
    (
        "reads every block twice past the cache",
        LEAKY,
        _conduct(reads_twice=True, reads_cached=False),
    ),
    ("reads from another file", CONTRADICTORY, _conduct(reads_file=False)),
    ("O_DIRECT against the plan", CONTRADICTORY, _conduct(reads_cached=False)),
    ("exits with 0 in the middle", "outcome: failed", _conduct(exits_from=8)),
    ("does its reads in another cgroup", NOT_PREPARED, _conduct(is_outside=True)),
    ("its clock runs at half speed", CONTRADICTORY, _conduct(clock=0.5)),
    ("its clock runs at double speed", CONTRADICTORY, _conduct(clock=2.0)),
    ("reports twice the bytes", NOT_PREPARED, _conduct(claims=2.0)),
    (
        "good checksum of resident data without reading",
        INVISIBLE,
        {
            **_conduct(skips_from=0),
            "trial": {"cache": "resident"},
            "why": "No counter shows reads of memory. Nothing but the checksum tells them.",
        },
    ),
    (
        "direct reads of other blocks, sum from a copy in memory",
        INVISIBLE,
        {
            **_conduct(reads_cached=False, reads_file=False),
            "trial": {"workload": Workload("pcread", ("--file", "{file}", "--direct"))},
            "why": "Direct reads leave no page behind, and io.stat counts bytes, not blocks or"
            " files.",
        },
    ),
)
"""Each at no moment of its own: the workload behaves so all the time."""


def _forgets(names: str) -> dict[str, Any]:
    return {"environment": {"FAKE_FORGETS": names}}


_ELSEWHERE = {"environment": {"FAKE_NODE": "/dev/otherdisk", "FAKE_OTHER_NODE": "/dev/fakedisk"}}
_WRITTEN = _group(
    "limits",
    ("never written: both", REFUSED, _forgets("io.max memory.max")),
    ("never written: io.max", REFUSED, _forgets("io.max")),
    ("never written: memory.max", REFUSED, _forgets("memory.max")),
    ("written on another disk", REFUSED, _ELSEWHERE),
    (
        *("memory.max held by an ancestor alone", REFUSED, "ancestor memory.max", ("cache",)),
        _forgets("memory.max"),
    ),
    ("workload started in another cgroup", NOT_PREPARED, "leave", ("launch",)),
    ("workload leaves its cgroup", NOT_PREPARED, "leave", ("go", "middle", "last")),
)
_BACK = "The limit is back before the workload starts."
_ENDED = "The measured part has ended."


def _changed(name: str, how: str) -> tuple[Lie, ...]:
    title, back, plant = f"{name}: {how}", f"{name}: {how}, put back", f"{name} {how}"
    return _group(
        "limits",
        (title, REFUSED, plant, PROVEN),
        (title, REFUSED, plant, ("launch",)),
        (title, LEAKY, plant, ("go", "middle", "late")),
        (back, LEAKY, f"{plant}, put back", ("middle", "go")),
        (back, EQUIVALENT, f"{plant}, put back", ("before",), _BACK),
        (title, EQUIVALENT, plant, ("stop",), _ENDED),
    )


def _ancestor(name: str) -> tuple[Lie, ...]:
    title, plant = f"ancestor with a tighter {name}", f"ancestor {name}"
    return _group(
        "limits",
        (title, REFUSED, plant, PROVEN),
        (title, LEAKY, plant, ("go", "middle")),
        (f"{title}, put back", LEAKY, f"{plant}, put back", ("middle",)),
    )


_RESIDENT = {"trial": {"cache": "resident"}}
_WARMED, _DROPPED = "warmed by another process", "dropped by another process"
_CACHE = _group(
    "cache",
    (_WARMED, NOT_PREPARED, "warm", ("slice", *PROVEN)),
    (_WARMED, NOT_PREPARED, "warm", ("launch", "go", "middle")),
    (
        *(_DROPPED, NOT_PREPARED, "drop", ("slice", *PROVEN, "launch")),
        {**_RESIDENT, **_conduct(is_warm=False)},
    ),
    (_DROPPED, NOT_PREPARED, "drop", ("go", "middle"), _RESIDENT),
    ("pages charged to another cgroup", NOT_PREPARED, _conduct(is_charged_elsewhere=True)),
    ("the workload had read its file before `go`", NOT_REACHED, _conduct(is_warm=True)),
)
_THREADS = "on the CPUs of many threads"
_NEIGHBOURS = _group(
    "neighbours",
    ("on the disk", NOT_QUIET, "on disk", ("middle", "go", "late")),
    ("on the disk", EQUIVALENT, "on disk", ("slice", "launch"), BEFORE),
    ("on the CPU", NOT_QUIET, "on cpu", ("middle", "go")),
    ("on the CPU", EQUIVALENT, "on cpu", ("launch",), BEFORE),
    (_THREADS, NOT_QUIET, "beside threads", ("middle",), _conduct(cpus=1.6)),
    ("hypervisor takes CPU time", NOT_QUIET, "stolen", ("middle",)),
)
_READ_AHEAD = "read-ahead of the disk is changed"
_BETWEEN = "Queue settings are read before the measured part and at its end, not in between."
_SETTINGS = _group(
    "settings",
    (_READ_AHEAD, CONTRADICTORY, "read-ahead", ("go", "middle", "late")),
    (f"{_READ_AHEAD}, put back", INVISIBLE, "read-ahead, put back", ("middle",), _BETWEEN),
    (_READ_AHEAD, EQUIVALENT, "read-ahead", ("stop",), _ENDED),
)
_SAMPLER = ("stops", "freezes", "repeats", "'s clock is shifted", "counts half")
_SAMPLERS = [f"sampler{how}" if how[0] == "'" else f"sampler {how}" for how in _SAMPLER]
_COLLECTORS = _group(
    "collectors",
    *((name, CONTRADICTORY, name, ("go", "middle")) for name in _SAMPLERS),
    *((name, CONTRADICTORY, name, ("run",)) for name in _SAMPLERS),
    ("samples of another disk", LEAKY, "samples of another disk"),
)
_HONEST = _conduct(claims_success=False)
_REPLACED = (
    "Data and checksum that are replaced between their check and the start"
    " are another dataset, whose reads look the same."
)


def _data(name: str) -> tuple[Lie, ...]:
    title, plant = f"{name} content, checksum replaced", f"{name}, new checksum"
    return _group(
        "data",
        (f"{name} content", WRONG, name, ("cache",), _HONEST),
        (title, NOT_PREPARED, plant, ("storage",), _HONEST),
        (title, INVISIBLE, plant, ("cache",), _REPLACED, _HONEST),
    )


_SUM = "sparse, new checksum"
_SPARSE = _group(
    "data",
    ("sparse file", "outcome: failed", "sparse", ("storage",), _HONEST),
    ("sparse file, checksum replaced", NOT_PREPARED, _SUM, ("cache",), _HONEST),
)
_COUNTERS = _group(
    "counters",
    ("io.stat wraps at 2^32", NOT_PREPARED, "wrap 2^32"),
    ("io.stat wraps at 2^64", NOT_PREPARED, "wrap 2^64"),
    ("diskstats wraps", CONTRADICTORY, "wrap disk"),
    ("diskstats stands still", CONTRADICTORY, "freeze disk"),
    *(
        (f"{name} goes back", CONTRADICTORY, f"less {name}")
        for name in ("cpu.stat", "rios", "io.pressure")
    ),
)
_STEPS, _STOPPED = "wall clock steps", "guest stopped with its clock"
_MONOTONIC = "Figures rest on CLOCK_MONOTONIC, and all readings of the wall clock are later."
_TCG = {"trial": {"facts": {"cpu_model": "QEMU TCG CPU version 2.5+"}}}
_CLOCKS = _group(
    "clocks",
    (_STEPS, CONTRADICTORY, _STEPS, ("middle",)),
    (_STEPS, CONTRADICTORY, _STEPS, ("go",)),
    (_STEPS, EQUIVALENT, _STEPS, ("slice",), _MONOTONIC),
    ("CLOCK_MONOTONIC at half speed", LEAKY, "monotonic clock is slow", ("go",)),
    (f"{_STOPPED} for 2 s", CONTRADICTORY, _STOPPED, ("middle",)),
    ("machine paused for 2 s", NOT_QUIET, "pause", ("middle",)),
    ("machine paused for 0.8 s", NOT_QUIET, "short pause", ("middle",)),
    ("emulated CPU passed off as real", "emulated: yes", _TCG),
)
LIES = (
    *_WRITTEN,
    *(
        lie
        for name in ("rbps", "memory.max")
        for how in ("raised", "max")
        for lie in _changed(name, how)
    ),
    *(lie for name in ("memory.max", "io.max") for lie in _ancestor(name)),
    *(*_CACHE, *_NEIGHBOURS, *_SETTINGS, *_COLLECTORS, *_SPARSE),
    *(lie for name in ("zeros", "compressible", "duplicate") for lie in _data(name)),
    *(*_WORKLOAD, *_COUNTERS, *_CLOCKS),
)


def mutants() -> list[Mutant]:
    return [Mutant(lie, moment) for lie in LIES for moment in lie.moments]
