"""`pagecage probe`: the probe that is copied to a customer's machine, run here or located."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from pagecage.checkout import TOP
from pagecage.cli.output import forwarded
from pagecage.errors import (
    EXIT_FAILED,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    HostError,
    PagecageError,
)
from pagecage.planning.options import Duration, ExistingFolder, NewFile
from pagecage.process import spawn
from pagecage.units import GIB, MIB, parse_size_bytes

PROGRAM = TOP / "build/host/bin/pcprobe"
_EXIT_CODES = {0: EXIT_OK, 2: EXIT_USAGE, EXIT_INTERRUPTED: EXIT_INTERRUPTED, 77: EXIT_HOST}
"""Exit codes of pagecage for those of the probe, which is 77 on an unsuitable machine."""
_LEAST_BYTES, _MOST_BYTES = 16 * MIB, 1024**2 * GIB  # the least is pcprobe's (sizes.rs)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Options of the probe.

    Parameters
    ----------
    yes
        Start without asking
    file_size
        Largest size of the probe's own file, for example 256MiB
    time
        Longest duration of the whole probe (default: 60s)
    out
        Write the JSON to this file instead of standard output
    engine
        Program that drives the disk; auto is fio if it is installed
    name_host
        Name the host and the directory in the JSON
    """

    yes: bool = False
    file_size: Annotated[str, Parameter(metavar="SIZE")] = "1GiB"
    time: Annotated[
        Duration, Parameter(validator=Number(gte=5, lte=7 * 86400), show_default=False)
    ] = 60.0
    out: NewFile | None = None
    engine: Annotated[
        Literal["auto", "own", "fio", "io_uring", "threads"], Parameter(metavar="ENGINE")
    ] = "auto"
    name_host: bool = False

    def arguments(self) -> list[str]:
        size_bytes = parse_size_bytes(self.file_size, "--file-size")
        if not _LEAST_BYTES <= size_bytes <= _MOST_BYTES:
            message = f"--file-size: {self.file_size} is out of range"
            raise PagecageError(message, "give at least 16MiB, as in --file-size 1GiB")
        words = ["--size", f"{size_bytes // MIB}MiB", "--seconds", str(round(self.time))]
        words += ["--engine", self.engine, *(["--out", str(self.out)] if self.out else [])]
        return [*words, *["--yes"] * self.yes, *["--name-host"] * self.name_host]


def probe(
    directory: ExistingFolder | None = None,
    /,
    options: ProbeOptions = ProbeOptions(),
    *,
    print_path: bool = False,
) -> int:
    """Measure a disk under its present limits.

    The result has bandwidth, IOPS, latency and bursts. The program is one static file that needs no
    installation and no root. Copy it to a customer's machine, run it there, and read its JSON with
    `pagecage cage import`.

    Parameters
    ----------
    directory
        Directory on the disk to measure
    print_path
        Print the path of the program; start nothing
    """
    if not PROGRAM.exists():
        raise HostError("the probe is not built", "make build")
    if print_path:
        print(PROGRAM)
        return EXIT_OK
    if directory is None:
        raise PagecageError(
            "no directory was given", "pagecage probe DIR, or pagecage probe --print-path"
        )
    argv = [str(PROGRAM), str(directory), *options.arguments()]
    process = spawn(argv, stdin=None, stdout=None, stderr=None)
    with forwarded(process):  # at Ctrl-C the probe prints its results so far
        return _EXIT_CODES.get(process.wait(), EXIT_FAILED)
