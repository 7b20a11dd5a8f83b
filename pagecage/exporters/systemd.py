"""Cages as a drop-in of a systemd unit (systemd.resource-control(5))."""

from __future__ import annotations

from pagecage.exporters.export import Export, lost_behaviour
from pagecage.model.cage import IO_MAX_KEY, Cage


def drop_in(cage: Cage, device: str) -> Export:
    """Return a drop-in for a service: UNIT.d/limits.conf."""
    lines = ["[Service]"]
    for name, value in cage.properties.items():
        if name in IO_MAX_KEY:
            lines.append(f"{name}={device} {value}")
        else:
            lines.append(f"{name}={value}{'%' if name == 'CPUQuota' else ''}")
    if "MemorySwapMax" not in cage.properties:
        lines.append("MemorySwapMax=infinity")
    return Export("\n".join(lines), tuple(lost_behaviour(cage)))
