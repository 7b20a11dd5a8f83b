"""What the sentence about a trial is made from: its record, its windows, and what held them."""

from __future__ import annotations

from dataclasses import dataclass

from pagecage.model.record import Record
from pagecage.units import PAGE_BYTES
from pagecage.verdicts.caps import requested_caps
from pagecage.verdicts.traffic import Traffic, total, traffic
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import Window


def percent(share: float) -> str:
    """A share in words, as `97 %`."""
    return f"{100 * share:.0f} %"


@dataclass(frozen=True)
class Evidence:
    """What a sentence is made from. `held` are the windows that the verdict's limit held, at least one."""

    binding: BindingVerdict
    cap_property: str | None
    record: Record
    cut: tuple[Window, ...]
    held: tuple[Window, ...]
    in_order_seconds: float | None
    drained_seconds: float | None

    @property
    def share(self) -> float:
        """Of the measured time."""
        return self.binding.shares[self.binding.verdict]

    @property
    def direction(self) -> str:
        """`read` or `write`: which way the cap lies, or most bytes went."""
        if self.cap_property:
            return "write" if "Write" in self.cap_property else "read"
        return "write" if traffic("write", self.held).bytes > traffic("read", self.held).bytes else "read"

    @property
    def base_cap(self) -> float | None:
        """What the cage asks for of the cap that held; credits or a shared limit may have made it another."""
        return requested_caps(self.record).get(self.cap_property or "")

    @property
    def traffic(self) -> Traffic:
        """What went through that way while the limit held."""
        return traffic(self.direction, self.held)

    @property
    def read_again(self) -> float:
        """The share of the bytes read while the limit held that had been in memory before; 0 where it is not known.

        workingset_refault_file counts the pages that come back (cgroup-v2.rst), those of read-ahead among them.
        """
        read = traffic("read", self.held).bytes
        return min(1.0, (total("refault_pages", self.held) or 0.0) * PAGE_BYTES / read) if read else 0.0

    def of_time(self, key: str) -> float:
        """The share of the held time that a window's figure makes up; 0 where it is not known."""
        return (total(key, self.held) or 0.0) / sum(window.seconds for window in self.held)
