"""Drivers that start the workload by systemd-run, as a scope or as a service (systemd-run(1))."""

from __future__ import annotations

from collections.abc import Sequence

from pagecage.agent.drivers.driver import ClientDriver, LaunchContext, SliceDriver
from pagecage.agent.system.systemd import scope_command


class SystemdScopeDriver(SliceDriver):
    """`systemd-run --scope`: a child of the agent that enters the slice and execs the workload."""

    name = "systemd-scope"

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return systemd-run with --scope.

        It execs the workload, so process id and exit status are the workload's.
        """
        return scope_command(context.systemd, context.unit, argv)


class SystemdServiceDriver(ClientDriver):
    """`systemd-run --pipe --wait`: a child of systemd with pipes as its standard streams."""

    name = "systemd-service"

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return systemd-run as a client that waits.

        A service inherits no environment, so variables are passed on. LimitMEMLOCK is lifted, since
        a service's default would be a limit that the cage does not have.
        """
        manager = ["--user"] if context.systemd.user else []
        directory = (
            [f"--working-directory={context.directory}"] if context.directory else ["--same-dir"]
        )
        return [
            "systemd-run",
            *manager,
            "--quiet",
            "--pipe",
            "--wait",
            "--collect",
            "--service-type=exec",
            f"--unit={context.name}",
            f"--slice={context.unit}",
            "-p",
            "OOMPolicy=kill",
            "-p",
            "LimitMEMLOCK=infinity",
            *directory,
            *(f"--setenv={name}" for name in context.environment),
            "--",
            *argv,
        ]
