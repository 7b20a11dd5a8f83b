"""The goals that `make bench` and docs/TRUST.md both state."""

MOST_TIMES_PEER = {"systemd-run": 2.0, "runexec": 1.0}
"""The time of a trial of nothing, as a multiple of each peer's."""
LEAST_SPEED = 0.99
"""The speed of a reader with collectors, as a share of its speed without."""
MOST_GROWTH = 1.5
"""The cost of one more trial in a plan, fleet or report that is ten or a hundred times as large,
as a multiple of its cost in the small one."""
