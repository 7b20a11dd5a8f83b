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


WORKLOAD_LIES = (
    Lie("workload", "skips half of the blocks", NOT_PREPARED, conduct={"skips_from": 8}),
    Lie(
        "workload",
        "skips half of the blocks, faster",
        NOT_PREPARED,
        conduct={"skips_from": 8, "waits": False},
    ),
    Lie("workload", "good checksum without reading", NOT_PREPARED, conduct={"skips_from": 0}),
    Lie(
        "workload",
        "reads every block twice past the cache",
        LEAKY,
        conduct={"reads_twice": True, "reads_cached": False},
    ),
    Lie("workload", "reads from another file", CONTRADICTORY, conduct={"reads_file": False}),
    Lie("workload", "O_DIRECT against the plan", CONTRADICTORY, conduct={"reads_cached": False}),
    Lie("workload", "exits with 0 in the middle", "outcome: failed", conduct={"exits_from": 8}),
    Lie("workload", "does its reads in another cgroup", NOT_PREPARED, conduct={"is_outside": True}),
    Lie("workload", "its clock runs at half speed", CONTRADICTORY, conduct={"clock": 0.5}),
    Lie("workload", "its clock runs at double speed", CONTRADICTORY, conduct={"clock": 2.0}),
    Lie("workload", "reports twice the bytes", NOT_PREPARED, conduct={"claims": 2.0}),
    Lie(
        "workload",
        "good checksum of resident data without reading",
        INVISIBLE,
        why="No counter shows reads of memory. Nothing but the checksum tells them.",
        conduct={"skips_from": 0},
        trial={"cache": "resident"},
    ),
)
"""Each at no moment of its own: the workload behaves so all the time."""


_WRITTEN = (
    Lie(
        "limits", "never written: both", REFUSED, environment={"FAKE_FORGETS": "io.max memory.max"}
    ),
    Lie("limits", "never written: io.max", REFUSED, environment={"FAKE_FORGETS": "io.max"}),
    Lie("limits", "never written: memory.max", REFUSED, environment={"FAKE_FORGETS": "memory.max"}),
    Lie(
        "limits",
        "written on another disk",
        REFUSED,
        environment={"FAKE_NODE": "/dev/otherdisk", "FAKE_OTHER_NODE": "/dev/fakedisk"},
    ),
    Lie(
        "limits",
        "memory.max held by an ancestor alone",
        REFUSED,
        "ancestor memory.max",
        ("cache",),
        environment={"FAKE_FORGETS": "memory.max"},
    ),
    Lie("limits", "workload started in another cgroup", NOT_PREPARED, "leave", ("launch",)),
    Lie("limits", "workload leaves its cgroup", NOT_PREPARED, "leave", ("go", "middle", "last")),
)


def _changed() -> list[Lie]:
    found: list[Lie] = []
    for name in ("rbps", "memory.max"):
        for how in ("raised", "max"):
            found += [
                Lie("limits", f"{name}: {how}", REFUSED, f"{name} {how}", PROVEN),
                Lie("limits", f"{name}: {how}", REFUSED, f"{name} {how}", ("launch",)),
                Lie("limits", f"{name}: {how}", LEAKY, f"{name} {how}", ("go", "middle", "late")),
                Lie(
                    "limits",
                    f"{name}: {how}, put back",
                    LEAKY,
                    f"{name} {how}, put back",
                    ("middle", "go"),
                ),
                Lie(
                    "limits",
                    f"{name}: {how}, put back",
                    EQUIVALENT,
                    f"{name} {how}, put back",
                    ("before",),
                    "The limit is back before the workload starts.",
                ),
                Lie(
                    "limits",
                    f"{name}: {how}",
                    EQUIVALENT,
                    f"{name} {how}",
                    ("stop",),
                    "The measured part has ended.",
                ),
            ]
    return found


def _ancestors() -> list[Lie]:
    found: list[Lie] = []
    for name in ("memory.max", "io.max"):
        found += [
            Lie("limits", f"ancestor with a tighter {name}", REFUSED, f"ancestor {name}", PROVEN),
            Lie(
                "limits",
                f"ancestor with a tighter {name}",
                LEAKY,
                f"ancestor {name}",
                ("go", "middle"),
            ),
            Lie(
                "limits",
                f"ancestor with a tighter {name}, put back",
                LEAKY,
                f"ancestor {name}, put back",
                ("middle",),
            ),
        ]
    return found


def _cache() -> list[Lie]:
    resident = {"cache": "resident"}
    elsewhere = {"is_charged_elsewhere": True}
    return [
        Lie("cache", "warmed by another process", NOT_PREPARED, "warm", ("slice", *PROVEN)),
        Lie("cache", "warmed by another process", NOT_PREPARED, "warm", ("launch", "go", "middle")),
        Lie(
            "cache",
            "dropped by another process",
            NOT_PREPARED,
            "drop",
            ("slice", *PROVEN, "launch"),
            trial=resident,
            conduct={"is_warm": False},
        ),
        Lie(
            "cache",
            "dropped by another process",
            NOT_PREPARED,
            "drop",
            ("go", "middle"),
            trial=resident,
        ),
        Lie("cache", "pages charged to another cgroup", NOT_PREPARED, conduct=elsewhere),
        Lie(
            "cache",
            "the workload had read its file before `go`",
            NOT_REACHED,
            conduct={"is_warm": True},
        ),
    ]


def _neighbours() -> list[Lie]:
    threads = {"cpus": 1.6}
    return [
        Lie("neighbours", "on the disk", NOT_QUIET, "on disk", ("middle", "go", "late")),
        Lie("neighbours", "on the disk", EQUIVALENT, "on disk", ("slice", "launch"), BEFORE),
        Lie("neighbours", "on the CPU", NOT_QUIET, "on cpu", ("middle", "go")),
        Lie("neighbours", "on the CPU", EQUIVALENT, "on cpu", ("launch",), BEFORE),
        Lie(
            "neighbours",
            "on the CPUs of many threads",
            NOT_QUIET,
            "beside threads",
            ("middle",),
            conduct=threads,
        ),
        Lie("neighbours", "hypervisor takes CPU time", NOT_QUIET, "stolen", ("middle",)),
    ]


def _settings() -> list[Lie]:
    why = "Queue settings are read before the measured part and at its end, not in between."
    name = "read-ahead of the disk is changed"
    return [
        Lie("settings", name, CONTRADICTORY, "read-ahead", ("go", "middle", "late")),
        Lie("settings", f"{name}, put back", INVISIBLE, "read-ahead, put back", ("middle",), why),
        Lie("settings", name, EQUIVALENT, "read-ahead", ("stop",), "The measured part has ended."),
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
        *(Lie("collectors", name, CONTRADICTORY, name, ("go", "middle")) for name in names),
        *(Lie("collectors", name, CONTRADICTORY, name, ("run",)) for name in names),
        Lie("collectors", "samples of another disk", LEAKY, "samples of another disk", ("",)),
    ]


def _data() -> list[Lie]:
    honest = {"claims_success": False}
    found = []
    for name in ("zeros", "compressible", "duplicate"):
        found += [
            Lie("data", f"{name} content", WRONG, name, ("cache",), conduct=honest),
            Lie(
                "data",
                f"{name} content, checksum replaced",
                "outcome: not_prepared",
                f"{name}, new checksum",
                ("storage",),
                conduct=honest,
            ),
            Lie(
                "data",
                f"{name} content, checksum replaced",
                INVISIBLE,
                f"{name}, new checksum",
                ("cache",),
                "Data and checksum that are replaced between their check and the start"
                " are another dataset, whose reads look the same.",
                conduct=honest,
            ),
        ]
    return [
        Lie("data", "sparse file", "outcome: failed", "sparse", ("storage",), conduct=honest),
        Lie(
            "data",
            "sparse file, checksum replaced",
            NOT_PREPARED,
            "sparse, new checksum",
            ("cache",),
            conduct=honest,
        ),
        *found,
    ]


def _planned_direct() -> Lie:
    why = "Direct reads leave no page behind, and io.stat counts bytes, not blocks or files."
    return Lie(
        "workload",
        "direct reads of other blocks, sum from a copy in memory",
        INVISIBLE,
        why=why,
        conduct={"reads_cached": False, "reads_file": False},
        trial={"workload": Workload("pcread", ("--file", "{file}", "--direct"))},
    )


def _counters() -> list[Lie]:
    return [
        Lie("counters", "io.stat wraps at 2^32", NOT_PREPARED, "wrap 2^32", ("",)),
        Lie("counters", "io.stat wraps at 2^64", NOT_PREPARED, "wrap 2^64", ("",)),
        Lie("counters", "diskstats wraps", CONTRADICTORY, "wrap disk", ("",)),
        Lie("counters", "diskstats stands still", CONTRADICTORY, "freeze disk", ("",)),
        *(
            Lie("counters", f"{name} goes back", CONTRADICTORY, f"less {name}", ("",))
            for name in ("cpu.stat", "rios", "io.pressure")
        ),
    ]


def _clocks() -> list[Lie]:
    tcg = {"facts": {"cpu_model": "QEMU TCG CPU version 2.5+"}}
    return [
        Lie("clocks", "wall clock steps", CONTRADICTORY, "wall clock steps", ("middle",)),
        Lie("clocks", "wall clock steps", CONTRADICTORY, "wall clock steps", ("go",)),
        Lie(
            "clocks",
            "wall clock steps",
            EQUIVALENT,
            "wall clock steps",
            ("slice",),
            "Figures rest on CLOCK_MONOTONIC, and all readings of the wall clock are later.",
        ),
        Lie("clocks", "CLOCK_MONOTONIC at half speed", LEAKY, "monotonic clock is slow", ("go",)),
        Lie(
            "clocks",
            "guest stopped with its clock for 2 s",
            CONTRADICTORY,
            "guest stopped with its clock",
            ("middle",),
        ),
        Lie("clocks", "machine paused for 2 s", NOT_QUIET, "pause", ("middle",)),
        Lie("clocks", "machine paused for 0.8 s", NOT_QUIET, "short pause", ("middle",)),
        Lie("clocks", "emulated CPU passed off as real", "emulated: yes", trial=tcg),
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
