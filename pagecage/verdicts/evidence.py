"""The evidence for a diagnosis: the record, its windows and the limit that held them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagecage.model.record import Record
from pagecage.verdicts.caps import requested_caps
from pagecage.verdicts.traffic import Traffic, total, traffic
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.window_limit import Window


def format_percent(share: float) -> str:
    """Return a share as whole percent (`97 %`)."""
    return f"{100 * share:.0f} %"


def format_iops(ios_per_second: float) -> str:
    """Return a rate of I/Os in whole IOPS (`3,000 IOPS`)."""
    return f"{ios_per_second:,.0f} IOPS"


@dataclass(frozen=True)
class Evidence:
    """The material for the sentences of a diagnosis.

    `held_windows` are the windows in which the verdict's limit held the program back; at least one.
    `sequential_seconds` is None unless reading in order would be much faster. `drained_seconds` is
    the moment after `go` at which burst credits ran out; None if they did not. With several disks
    `disk` is that of the limit, of which the record and the windows then are, and `disk_share` the
    share of the time for which it held.
    """

    binding: BindingVerdict
    cap_property: str | None
    record: Record
    held_windows: Sequence[Window]
    sequential_seconds: float | None
    drained_seconds: float | None
    disk: str | None = None
    disk_share: float | None = None

    @property
    def share(self) -> float:
        """The share of the measured time in which the limit held the program back."""
        known = self.disk_share
        return self.binding.shares[self.binding.verdict] if known is None else known

    @property
    def of_disk(self) -> str:
        """The disk of the limit as a phrase after reads or writes; empty if there is only one."""
        if self.disk is None:
            return ""
        return f" {'to' if self.direction == 'write' else 'from'} the {self.disk} disk"

    @property
    def direction(self) -> str:
        """`read` or `write`: the direction of the cap, or else the one that moved more bytes."""
        if self.cap_property:
            return "write" if "Write" in self.cap_property else "read"
        return (
            "write"
            if traffic("write", self.held_windows).bytes > traffic("read", self.held_windows).bytes
            else "read"
        )

    @property
    def base_cap(self) -> float | None:
        """The value that the cage requests for the cap; credits or a shared limit may change it."""
        return requested_caps(self.record).get(self.cap_property or "")

    @property
    def traffic(self) -> Traffic:
        """The traffic in the cap's direction while the limit held the program back."""
        return traffic(self.direction, self.held_windows)

    @property
    def reread_share(self) -> float:
        """The share of the bytes read that had been in memory before; 0 if it is not known.

        workingset_refault_file counts the pages that return (cgroup-v2.rst), including those that
        read-ahead fetched.
        """
        read = traffic("read", self.held_windows).bytes
        again = (total("refault_pages", self.held_windows) or 0.0) * self.record.page_bytes
        return min(1.0, again / read) if read else 0.0

    def time_share(self, figure: str) -> float:
        """Return a figure in seconds as a share of the held time; 0 if it is not known."""
        return (total(figure, self.held_windows) or 0.0) / sum(
            window.seconds for window in self.held_windows
        )
