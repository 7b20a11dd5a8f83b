"""`pagecage verify`: the limits of a program that runs already, here or at a customer's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import BUILD
from pagecage.cli.options import whole, writing
from pagecage.cli.output import Json
from pagecage.errors import EXIT_FAILED, EXIT_OK
from pagecage.hosts.agent_package import write_verify_package
from pagecage.verify.main import DEFAULT_SECONDS, MOST_SECONDS, text_of
from pagecage.verify.target import Subject
from pagecage.verify.verification import verify as verify_target

_FOLDER = BUILD / "host"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options that select the running program.

    Parameters
    ----------
    unit
        Unit of systemd, for example postgresql.service
    container
        Name or id of a container of Docker or podman
    pid
        Process
    user
        The unit belongs to this user's own systemd
    """

    unit: Annotated[str | None, Parameter(metavar="NAME")] = None
    container: Annotated[str | None, Parameter(metavar="NAME")] = None
    pid: Annotated[int | None, whole(1, 2**22)] = None
    user: bool = False

    def subject(self) -> Subject:
        """Return the options as verify takes them."""
        return Subject(self.unit, self.container, self.pid, self.user)


def verify(
    *,
    target: TargetOptions = TargetOptions(),
    expect: Annotated[tuple[str, ...], Parameter(negative=(), metavar="LIMIT")] = (),
    seconds: Annotated[int, whole(0, MOST_SECONDS)] = DEFAULT_SECONDS,
    print_path: bool = False,
    as_json: Json = False,
) -> int:
    """Show which limits are in force for a running program, which were lost, and which one bound.

    Limits of all parent cgroups and all disks are read from the kernel. They are compared with what
    systemd, Docker or podman was asked for. Nothing is driven and nothing is changed. The same
    check exists as one file that needs Python alone: copy it to a customer's machine.

    The exit status is 1 if a limit is not in force as it was asked for.

    Parameters
    ----------
    expect
        Limit that should be in force, as a unit file has it: 'IOReadIOPSMax=/dev/vdb 500'
    seconds
        Time to watch the counters; 0 shows the limits alone
    print_path
        Write the single file and print its path; verify nothing
    """
    if print_path:
        with writing(_FOLDER):
            print(write_verify_package(_FOLDER))
        return EXIT_OK
    found = verify_target(target.subject(), seconds, expected=expect)
    print(text_of(found, as_json), end="")
    return EXIT_FAILED if found.failed else EXIT_OK
