"""I/O limits enforced by QEMU's drive throttling, outside the guest.

The slice has the other limits.
"""

from __future__ import annotations

from pagecage.agent.drivers.driver import Ask, ExternalLimits, LaunchContext, io_properties, without
from pagecage.agent.drivers.systemd_run import SystemdScopeDriver
from pagecage.model.cage import IO_MAX_KEY, Cage


class QemuThrottleDriver(SystemdScopeDriver):
    """A driver that asks the controller to set QEMU's limits: a guest cannot set them."""

    name = "qemu-throttle"

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._is_held = False

    def slice_cage(self, cage: Cage, /) -> Cage:
        """Return the limits on memory and CPU: QEMU limits only the disk."""
        return without(cage, tuple(IO_MAX_KEY))

    def apply_external(self, context: LaunchContext, /) -> ExternalLimits | None:
        """Have QEMU limit the data disk for all its users.

        Raises HostError if the host is not such a guest.
        """
        answer = self._ask("throttle_wanted", {"limits": io_properties(context.cage)})
        self._is_held = True
        return ExternalLimits("qemu", answer["read_back"])

    def clear(self, _context: LaunchContext, /) -> None:
        """Remove QEMU's limits if any were set."""
        if self._is_held:
            self._ask("throttle_wanted", {"limits": {}})
