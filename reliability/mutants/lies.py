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
    plant: str
    moments: tuple[str, ...]
    expected: str
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


WORKLOAD_LIES = (
    Lie(
        "workload",
        "skips half of the blocks",
        "none",
        ("",),
        NOT_PREPARED,
        conduct={"skips_from": 8},
    ),
    Lie(
        "workload",
        "skips half of the blocks, faster",
        "none",
        ("",),
        NOT_PREPARED,
        conduct={"skips_from": 8, "waits": False},
    ),
    Lie(
        "workload",
        "good checksum without reading",
        "none",
        ("",),
        NOT_PREPARED,
        conduct={"skips_from": 0},
    ),
    Lie(
        "workload",
        "reads every block twice past the cache",
        "none",
        ("",),
        LEAKY,
        conduct={"reads_twice": True, "reads_cached": False},
    ),
    Lie(
        "workload",
        "reads from another file",
        "none",
        ("",),
        CONTRADICTORY,
        conduct={"reads_file": False},
    ),
    Lie(
        "workload",
        "O_DIRECT against the plan",
        "none",
        ("",),
        CONTRADICTORY,
        conduct={"reads_cached": False},
    ),
    Lie(
        "workload",
        "exits with 0 in the middle",
        "none",
        ("",),
        "outcome: failed",
        conduct={"exits_from": 8},
    ),
    Lie(
        "workload",
        "does its reads in another cgroup",
        "none",
        ("",),
        NOT_PREPARED,
        conduct={"is_outside": True},
    ),
    Lie(
        "workload",
        "its clock runs at half speed",
        "none",
        ("",),
        CONTRADICTORY,
        conduct={"clock": 0.5},
    ),
    Lie(
        "workload",
        "its clock runs at double speed",
        "none",
        ("",),
        CONTRADICTORY,
        conduct={"clock": 2.0},
    ),
    Lie(
        "workload", "reports twice the bytes", "none", ("",), NOT_PREPARED, conduct={"claims": 2.0}
    ),
    Lie(
        "workload",
        "good checksum of resident data without reading",
        "none",
        ("",),
        INVISIBLE,
        "No counter shows reads of memory. Nothing but the checksum tells them.",
        conduct={"skips_from": 0},
        trial={"cache": "resident"},
    ),
)
"""Each at no moment of its own: the workload behaves so all the time."""


_WRITTEN = (
    Lie(
        "limits",
        "never written: both",
        "none",
        ("",),
        REFUSED,
        environment={"FAKE_FORGETS": "io.max memory.max"},
    ),
    Lie(
        "limits",
        "never written: io.max",
        "none",
        ("",),
        REFUSED,
        environment={"FAKE_FORGETS": "io.max"},
    ),
    Lie(
        "limits",
        "never written: memory.max",
        "none",
        ("",),
        REFUSED,
        environment={"FAKE_FORGETS": "memory.max"},
    ),
    Lie(
        "limits",
        "written on another disk",
        "none",
        ("",),
        REFUSED,
        environment={"FAKE_NODE": "/dev/otherdisk", "FAKE_OTHER_NODE": "/dev/fakedisk"},
    ),
    Lie(
        "limits",
        "memory.max held by an ancestor alone",
        "ancestor memory.max",
        ("cache",),
        REFUSED,
        environment={"FAKE_FORGETS": "memory.max"},
    ),
    Lie("limits", "workload started in another cgroup", "leave", ("launch",), NOT_PREPARED),
    Lie("limits", "workload leaves its cgroup", "leave", ("go", "middle", "last"), NOT_PREPARED),
)


def _changed() -> list[Lie]:
    found: list[Lie] = []
    for name in ("rbps", "memory.max"):
        for how in ("raised", "max"):
            found += [
                Lie("limits", f"{name}: {how}", f"{name} {how}", PROVEN, REFUSED),
                Lie("limits", f"{name}: {how}", f"{name} {how}", ("launch",), REFUSED),
                Lie("limits", f"{name}: {how}", f"{name} {how}", ("go", "middle", "late"), LEAKY),
                Lie(
                    "limits",
                    f"{name}: {how}, put back",
                    f"{name} {how}, put back",
                    ("middle", "go"),
                    LEAKY,
                ),
                Lie(
                    "limits",
                    f"{name}: {how}, put back",
                    f"{name} {how}, put back",
                    ("before",),
                    EQUIVALENT,
                    "The limit is back before the workload starts.",
                ),
                Lie(
                    "limits",
                    f"{name}: {how}",
                    f"{name} {how}",
                    ("stop",),
                    EQUIVALENT,
                    "The measured part has ended.",
                ),
            ]
    return found


def _ancestors() -> list[Lie]:
    found: list[Lie] = []
    for name in ("memory.max", "io.max"):
        found += [
            Lie("limits", f"ancestor with a tighter {name}", f"ancestor {name}", PROVEN, REFUSED),
            Lie(
                "limits",
                f"ancestor with a tighter {name}",
                f"ancestor {name}",
                ("go", "middle"),
                LEAKY,
            ),
            Lie(
                "limits",
                f"ancestor with a tighter {name}, put back",
                f"ancestor {name}, put back",
                ("middle",),
                LEAKY,
            ),
        ]
    return found


def _cache() -> list[Lie]:
    resident = {"cache": "resident"}
    elsewhere = {"is_charged_elsewhere": True}
    return [
        Lie("cache", "warmed by another process", "warm", ("slice", *PROVEN), NOT_PREPARED),
        Lie("cache", "warmed by another process", "warm", ("launch", "go", "middle"), NOT_PREPARED),
        Lie(
            "cache",
            "dropped by another process",
            "drop",
            ("slice", *PROVEN, "launch"),
            NOT_PREPARED,
            trial=resident,
            conduct={"is_warm": False},
        ),
        Lie(
            "cache",
            "dropped by another process",
            "drop",
            ("go", "middle"),
            NOT_PREPARED,
            trial=resident,
        ),
        Lie(
            "cache",
            "pages charged to another cgroup",
            "none",
            ("",),
            NOT_PREPARED,
            conduct=elsewhere,
        ),
        Lie(
            "cache",
            "the workload had read its file before `go`",
            "none",
            ("",),
            NOT_REACHED,
            conduct={"is_warm": True},
        ),
    ]


def _neighbours() -> list[Lie]:
    threads = {"cpus": 1.6}
    return [
        Lie("neighbours", "on the disk", "on disk", ("middle", "go", "late"), NOT_QUIET),
        Lie("neighbours", "on the disk", "on disk", ("slice", "launch"), EQUIVALENT, BEFORE),
        Lie("neighbours", "on the CPU", "on cpu", ("middle", "go"), NOT_QUIET),
        Lie("neighbours", "on the CPU", "on cpu", ("launch",), EQUIVALENT, BEFORE),
        Lie(
            "neighbours",
            "on the CPUs of many threads",
            "beside threads",
            ("middle",),
            NOT_QUIET,
            conduct=threads,
        ),
        Lie("neighbours", "hypervisor takes CPU time", "stolen", ("middle",), NOT_QUIET),
    ]


def _settings() -> list[Lie]:
    why = "Queue settings are read before the measured part and at its end, not in between."
    name = "read-ahead of the disk is changed"
    return [
        Lie("settings", name, "read-ahead", ("go", "middle", "late"), CONTRADICTORY),
        Lie("settings", f"{name}, put back", "read-ahead, put back", ("middle",), INVISIBLE, why),
        Lie("settings", name, "read-ahead", ("stop",), EQUIVALENT, "The measured part has ended."),
    ]


def _collectors() -> list[Lie]:
    names = (
        "sampler stops",
        "sampler freezes",
        "sampler repeats",
        "sampler's clock is shifted",
        "sampler counts half",
    )
    return [
        *(Lie("collectors", name, name, ("go", "middle"), CONTRADICTORY) for name in names),
        *(Lie("collectors", name, name, ("run",), CONTRADICTORY) for name in names),
        Lie("collectors", "samples of another disk", "samples of another disk", ("",), LEAKY),
    ]


def _data() -> list[Lie]:
    honest = {"claims_success": False}
    found = []
    for name in ("zeros", "compressible", "duplicate"):
        found += [
            Lie("data", f"{name} content", name, ("cache",), WRONG, conduct=honest),
            Lie(
                "data",
                f"{name} content, checksum replaced",
                f"{name}, new checksum",
                ("storage",),
                "outcome: not_prepared",
                conduct=honest,
            ),
            Lie(
                "data",
                f"{name} content, checksum replaced",
                f"{name}, new checksum",
                ("cache",),
                INVISIBLE,
                "Data and checksum that are replaced between their check and the start"
                " are another dataset, whose reads look the same.",
                conduct=honest,
            ),
        ]
    return [
        Lie("data", "sparse file", "sparse", ("storage",), "outcome: failed", conduct=honest),
        Lie(
            "data",
            "sparse file, checksum replaced",
            "sparse, new checksum",
            ("cache",),
            NOT_PREPARED,
            conduct=honest,
        ),
        *found,
    ]


def _planned_direct() -> Lie:
    why = "Direct reads leave no page behind, and io.stat counts bytes, not blocks or files."
    return Lie(
        "workload",
        "direct reads of other blocks, sum from a copy in memory",
        "none",
        ("",),
        INVISIBLE,
        why,
        conduct={"reads_cached": False, "reads_file": False},
        trial={"workload": Workload("pcread", ("--file", "{file}", "--direct"))},
    )


def _counters() -> list[Lie]:
    return [
        Lie("counters", "io.stat wraps at 2^32", "wrap 2^32", ("",), NOT_PREPARED),
        Lie("counters", "io.stat wraps at 2^64", "wrap 2^64", ("",), NOT_PREPARED),
        Lie("counters", "diskstats wraps", "wrap disk", ("",), CONTRADICTORY),
        Lie("counters", "diskstats stands still", "freeze disk", ("",), CONTRADICTORY),
        *(
            Lie("counters", f"{name} goes back", f"less {name}", ("",), CONTRADICTORY)
            for name in ("cpu.stat", "rios", "io.pressure")
        ),
    ]


def _clocks() -> list[Lie]:
    tcg = {"facts": {"cpu_model": "QEMU TCG CPU version 2.5+"}}
    return [
        Lie("clocks", "wall clock steps", "wall clock steps", ("middle",), CONTRADICTORY),
        Lie("clocks", "wall clock steps", "wall clock steps", ("go",), CONTRADICTORY),
        Lie(
            "clocks",
            "wall clock steps",
            "wall clock steps",
            ("slice",),
            EQUIVALENT,
            "Figures rest on CLOCK_MONOTONIC, and all readings of the wall clock are later.",
        ),
        Lie("clocks", "CLOCK_MONOTONIC at half speed", "monotonic clock is slow", ("go",), LEAKY),
        Lie(
            "clocks",
            "guest stopped with its clock for 2 s",
            "guest stopped with its clock",
            ("middle",),
            CONTRADICTORY,
        ),
        Lie("clocks", "machine paused for 2 s", "pause", ("middle",), NOT_QUIET),
        Lie("clocks", "machine paused for 0.8 s", "short pause", ("middle",), NOT_QUIET),
        Lie("clocks", "emulated CPU passed off as real", "none", ("",), "emulated: yes", trial=tcg),
    ]


LIES = (
    *_WRITTEN,
    *_changed(),
    *_ancestors(),
    *_cache(),
    *_neighbours(),
    *_settings(),
    *_collectors(),
    *_data(),
    *WORKLOAD_LIES,
    _planned_direct(),
    *_counters(),
    *_clocks(),
)


def mutants() -> list[Mutant]:
    return [Mutant(lie, moment) for lie in LIES for moment in lie.moments]
