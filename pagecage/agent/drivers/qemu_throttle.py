"""The disk held back by the machine around the guest (QEMU's drive throttling), everything else by the slice."""

from __future__ import annotations

from pagecage.agent.drivers.driver import Ask, ExternalLimits, LaunchContext, io_properties, without
from pagecage.agent.drivers.systemd_run import SystemdScope
from pagecage.model.cage import IO_MAX_KEY, Cage


class QemuThrottle(SystemdScope):
    """A guest cannot set this itself: the controller is asked, and tells what QEMU says is in force."""

    name = "qemu-throttle"

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._is_held = False

    def on_slice(self, cage: Cage, /) -> Cage:
        """Memory and CPU: QEMU caps the disk alone."""
        return without(cage, tuple(IO_MAX_KEY))

    def impose(self, place: LaunchContext, /) -> ExternalLimits | None:
        """Have QEMU hold the data disk, whoever uses it. Raises HostError on a host that has nothing around it."""
        answer = self._ask("throttle_wanted", {"limits": io_properties(place.cage)})
        self._is_held = True
        return ExternalLimits("qemu", answer["read_back"])

    def clear(self, _place: LaunchContext, /) -> None:
        """Let go of the disk, where it was held."""
        if self._is_held:
            self._ask("throttle_wanted", {"limits": {}})
