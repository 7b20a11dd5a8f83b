"""`pagecage inspect`: the limits of a program that runs already, here or at a customer's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, Token

from pagecage.checkout import BUILD
from pagecage.cli.output import Json, writing
from pagecage.errors import EXIT_GATE_FAILED, EXIT_OK
from pagecage.hosts.agent_package import write_verify_package
from pagecage.planning.options import whole
from pagecage.verify.main import DEFAULT_SECONDS, parse_watch, text_of
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


def _watch(_: type[float], tokens: Sequence[Token]) -> float:
    return parse_watch(tokens[0].value)


def inspect(
    *,
    target: TargetOptions = TargetOptions(),
    expect: Annotated[tuple[str, ...], Parameter(negative=(), metavar="LIMIT")] = (),
    time: Annotated[float, Parameter(converter=_watch, metavar="TIME", show_default=False)] = (
        DEFAULT_SECONDS
    ),
    print_path: bool = False,
    as_json: Json = False,
) -> int:
    """Show which limits are in force for a running program.

    It names the limits that were lost, and the one that bound. Those of all parent cgroups and all
    disks are read from the kernel, and compared with what systemd, Docker or podman was asked for.
    Nothing is driven and nothing is changed. The same check exists as one file that needs Python
    alone: copy it to a customer's machine. The exit status is 5 if a limit was lost.

    Parameters
    ----------
    expect
        Limit that should be in force, as a unit file has it: 'IOReadIOPSMax=/dev/vdb 500'
    time
        Time to watch the counters (default: 10s); 0s shows the limits alone
    print_path
        Write the single file and print its path; inspect nothing
    """
    if print_path:
        with writing(_FOLDER):
            print(write_verify_package(_FOLDER))
        return EXIT_OK
    found = verify_target(Subject(**vars(target)), time, expected=expect)
    print(text_of(found, as_json), end="")
    return EXIT_GATE_FAILED if found.failed else EXIT_OK
