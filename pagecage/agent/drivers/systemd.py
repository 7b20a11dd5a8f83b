"""Drivers that start the workload by systemd-run, as a scope or as a service (systemd-run(1))."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pagecage.agent.drivers.driver import ClientDriver, Driver, LaunchContext
from pagecage.errors import PagecageError
from pagecage.linux.systemd import Systemd
from pagecage.process import Process

_HELD = 'read -r held && exec "$@"'
"""A shell that waits for a line of standard input, and consumes no byte after it (POSIX)."""


class SystemdScopeDriver(Driver):
    """`systemd-run --scope`: a child of the agent that enters the slice and execs the workload.

    Where systemd can be reached without systemd-run, a shell waits until the agent has had a scope
    made around it, which saves the start of systemd-run.
    """

    name = "systemd-scope"

    def held_command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return a command that waits outside of the scope, at its own gate or by a line."""
        if not systemd_of(context).is_reached():
            return self.command(context, argv)
        return list(argv) if context.is_gated else ["sh", "-c", _HELD, "sh", *argv]

    def admit(self, context: LaunchContext, process: Process[bytes], /) -> None:
        if not systemd_of(context).is_reached():
            return
        try:
            systemd_of(context).start_scope(context.unit, process.pid)
        except PagecageError:
            process.kill()
            process.wait()
            raise
        if not context.is_gated and process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended, and its exit status has the reason
                process.stdin.write(b"\n")


class SystemdServiceDriver(ClientDriver):
    """`systemd-run --pipe --wait`: a child of systemd with pipes as its standard streams."""

    name = "systemd-service"

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return systemd-run as a client that waits.

        A service inherits no environment, so variables are passed on. LimitMEMLOCK is lifted, since
        a service's default would be a limit that the cage does not have.
        """
        directory = (
            f"--working-directory={context.directory}" if context.directory else "--same-dir"
        )
        return [
            *("systemd-run", *(["--user"] if systemd_of(context).user else [])),
            *("--quiet", "--pipe", "--wait", "--collect", "--service-type=exec"),
            *(f"--unit={context.name}", f"--slice={context.unit}"),
            *("-p", "OOMPolicy=kill", "-p", "LimitMEMLOCK=infinity", directory),
            *(f"--setenv={name}" for name in context.environment),
            "--",
            *argv,
        ]


def systemd_of(context: LaunchContext) -> Systemd:
    assert isinstance(context.maker, Systemd)
    return context.maker
