"""I/O limits enforced by QEMU's drive throttling, outside the guest.

The slice has the other limits.
"""

from __future__ import annotations

from dataclasses import replace

from pagecage.agent.drivers.driver import ExternalLimits, LaunchContext, io_properties
from pagecage.agent.drivers.systemd import SystemdScopeDriver
from pagecage.model.cage import IO_MAX_KEY, Cage


class QemuThrottleDriver(SystemdScopeDriver):
    """A driver that asks the controller to set QEMU's limits: a guest cannot set them."""

    name = "qemu-throttle"
    _is_held = False

    def slice_cage(self, cage: Cage, /) -> Cage:
        """Return the limits on memory and CPU: QEMU limits only the disk."""
        kept = {k: v for k, v in cage.properties.items() if k not in IO_MAX_KEY}
        return replace(cage, properties=kept)

    def apply_external(self, context: LaunchContext, /) -> ExternalLimits | None:
        """Limit the data disk for all its users. Raises HostError if the host is no such guest."""
        answer = self._services.ask("throttle_wanted", {"limits": io_properties(context.cage)})
        self._is_held = True
        return ExternalLimits("qemu", answer["read_back"])

    def clear(self, _context: LaunchContext, /) -> None:
        if self._is_held:
            self._services.ask("throttle_wanted", {"limits": {}})
