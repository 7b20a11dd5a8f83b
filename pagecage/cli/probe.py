"""`pagecage probe`: the probe that is carried to a customer's machine, run here, or where its file lies."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import TOP
from pagecage.cli.numbers import whole
from pagecage.cli.paths import FolderThere, NewFile
from pagecage.errors import EXIT_FAILED, EXIT_HOST, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, HostError, PagecageError
from pagecage.process import Process, spawn
from pagecage.units import GIB, MIB, parse_size_bytes

PROGRAM = TOP / "build/host/bin/pcprobe"
_CANNOT_HERE = 77
_LEAST_BYTES, _MOST_BYTES = 16 * MIB, 1024**2 * GIB  # pcprobe's own least (sizes.rs); beyond any file system


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """How to probe.

    Parameters
    ----------
    yes
        Begin without asking.
    size
        How large the probe's own file may be, as in 256MiB or 1GiB.
    seconds
        How long all of it may take.
    out
        Write the JSON into this file instead of standard output.
    engine
        What drives the disk; auto is fio where there is one.
    name_host
        Let the JSON name the host and the folder.
    """

    yes: bool = False
    size: str = "1GiB"
    seconds: Annotated[int, whole(5, 7 * 86400)] = 60
    out: NewFile | None = None
    engine: Literal["auto", "own", "fio", "io_uring", "threads"] = "auto"
    name_host: bool = False

    def arguments(self) -> list[str]:
        """The same as the program takes it. Raises PagecageError for a size that is none, or too small."""
        size_bytes = parse_size_bytes(self.size, "--size")
        if not _LEAST_BYTES <= size_bytes <= _MOST_BYTES:
            raise PagecageError(f"--size: {self.size} is not a size of a probe's file", "--size 1GiB; at least 16MiB")
        words = ["--size", f"{size_bytes // MIB}MiB", "--seconds", str(self.seconds), "--engine", self.engine]
        words += ["--out", str(self.out)] if self.out else []
        return words + [flag for flag, given in (("--yes", self.yes), ("--name-host", self.name_host)) if given]


def probe(
    directory: FolderThere | None = None,
    how: ProbeOptions = ProbeOptions(),
    *,
    print_path: bool = False,
) -> int:
    """Measure what a disk gives under the limits it stands under: bandwidth, IOPS over depth, latency, bursts.

    The program is one static file that needs neither installing nor root: copy it to a customer's machine, run it
    there, and read its JSON with `pagecage cage import`.

    Parameters
    ----------
    directory
        A folder on the disk to be measured.
    print_path
        Print where the program lies, and start nothing.
    """
    if not PROGRAM.exists():
        raise HostError("the probe is not built", "make build")
    if print_path:
        print(PROGRAM)
        return EXIT_OK
    if directory is None:
        raise PagecageError("no folder was given", "pagecage probe DIR, or pagecage probe --print-path")
    return _status(_end_of(spawn([PROGRAM, directory, *how.arguments()], stdin=None, stdout=None, stderr=None)))


def _end_of(process: Process[bytes]) -> int:
    """Its exit status. Ctrl-C at a terminal reaches it too, so that it tells what it has; others are passed on."""
    signal.signal(signal.SIGINT, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))
    return process.wait()


def _status(status: int) -> int:
    """The probe's exit status as one of ours (docs/FORMAT.md)."""
    known = {0: EXIT_OK, 2: EXIT_USAGE, EXIT_INTERRUPTED: EXIT_INTERRUPTED, _CANNOT_HERE: EXIT_HOST}
    return known.get(status, EXIT_FAILED)
