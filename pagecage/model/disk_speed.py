"""The speed of a disk, from which the duration of trials is estimated."""

from __future__ import annotations

from dataclasses import dataclass

from pagecage.units import BLOCK_BYTES, KIB

DEFAULT_WINDOW_KIB = 128  # the kernel's read-ahead


@dataclass(frozen=True)
class DiskSpeed:
    """Rates of a disk: in order, and the seconds of single cold reads of 4 and of 128 KiB.

    `trial_seconds` is what its machine takes for a trial besides the measured part.
    """

    read_bytes_per_second: float
    write_bytes_per_second: float
    block_seconds: float
    window_seconds: float
    trial_seconds: float = 0.2

    def read_seconds(self, size_bytes: float) -> float:
        """Return the time of one read, by the line through the two sizes that were measured."""
        slope = (self.window_seconds - self.block_seconds) / (WINDOW_BYTES - BLOCK_BYTES)
        return self.block_seconds + max(0.0, slope) * (size_bytes - BLOCK_BYTES)


WINDOW_BYTES = DEFAULT_WINDOW_KIB * KIB
"""Size of the larger of the two reads of a DiskSpeed."""
ASSUMED = DiskSpeed(500e6, 400e6, 100e-6, 500e-6)
"""The speed of a disk that cannot be probed: one of a cloud, or a SATA drive."""
