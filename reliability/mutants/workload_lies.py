"""Lies of the workload itself."""

from __future__ import annotations

from reliability.mutants.lie import INVISIBLE, Lie

CONTRADICTORY, NOT_PREPARED = "consistency: contradictory", "outcome: not_prepared"
LEAKY = "limits: leaky"

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
