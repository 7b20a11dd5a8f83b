"""The workload in a scope of the slice: systemd-run becomes it, so its process and its exit status are its own."""

from __future__ import annotations

from collections.abc import Sequence

from pagecage.agent.drivers.driver import OnSlice, Place
from pagecage.agent.systemd import scope_command


class SystemdScope(OnSlice):
    """`systemd-run --scope`: a child of the agent's, moved into the slice before it becomes the workload."""

    name = "systemd-scope"

    def command(self, place: Place, argv: Sequence[str], /) -> list[str]:
        """systemd-run in the foreground (systemd-run(1))."""
        return scope_command(place.systemd, place.unit, argv)
