"""The workload in a scope of the slice: systemd-run becomes it, so its process and its exit status are its own."""

from __future__ import annotations

from collections.abc import Sequence

from pagecage.agent.drivers.driver import ClientDriver, LaunchContext, SliceDriver
from pagecage.agent.system.systemd import scope_command


class SystemdScope(SliceDriver):
    """`systemd-run --scope`: a child of the agent's, moved into the slice before it becomes the workload."""

    name = "systemd-scope"

    def command(self, place: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """systemd-run in the foreground (systemd-run(1))."""
        return scope_command(place.systemd, place.unit, argv)


class SystemdService(ClientDriver):
    """`systemd-run --pipe --wait`: a child of systemd's, with our pipes as its standard streams."""

    name = "systemd-service"

    def command(self, place: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """systemd-run as a client that waits; the names of our environment go along, which a service does not inherit.

        A service's memory may be locked as far as ours may: its own bound would be another limit.
        """
        manager = ["--user"] if place.systemd.user else []
        directory = [f"--working-directory={place.directory}"] if place.directory else ["--same-dir"]
        return [
            "systemd-run", *manager, "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
            f"--unit={place.name}", f"--slice={place.unit}", "-p", "OOMPolicy=kill", "-p", "LimitMEMLOCK=infinity",
            *directory, *(f"--setenv={name}" for name in place.environment), "--", *argv,
        ]  # fmt: skip
