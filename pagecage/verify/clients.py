"""I/O limits on the command lines of running `docker run` and `podman run` processes.

Docker's command line 26.1.5 drops every `--device-...` option without a message, so that the
engine never learns of them (docs/CONTAINERS.md). The client of a container in the foreground still
has them in its arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.importers.quantities import docker_bytes
from pagecage.importers.result import BANDWIDTH, BlockLimit
from pagecage.verify.engines import ENGINES
from pagecage.verify.kernel import KernelTrees

_OPTIONS = {
    "--device-read-bps": "IOReadBandwidthMax",
    "--device-write-bps": "IOWriteBandwidthMax",
    "--device-read-iops": "IOReadIOPSMax",
    "--device-write-iops": "IOWriteIOPSMax",
}
# Options of docker-run(1) and podman-run(1) without a value; all others take one.
_FLAGS = {
    *("--detach", "--disable-content-trust", "--env-host", "--init", "--interactive"),
    *("--no-healthcheck", "--no-hosts", "--oom-kill-disable", "--privileged", "--publish-all"),
    *("--quiet", "--read-only", "--replace", "--rm", "--rmi", "--sig-proxy", "--tls-verify"),
    "--tty",
}


def typed_limits(name: str, kernel: KernelTrees) -> list[BlockLimit]:
    """Return the I/O limits that a running client was given for the container of this name."""
    found: list[BlockLimit] = []
    for argv in _command_lines(kernel):
        options = list(run_options(argv))
        if ("--name", name) in options:
            found += [limit for option in options if (limit := _limit(*option))]
    return found


def _command_lines(kernel: KernelTrees) -> Iterator[list[str]]:
    for entry in kernel.proc.iterdir():
        if entry.name.isdigit():
            try:
                yield [os.fsdecode(word) for word in (entry / "cmdline").read_bytes().split(b"\0")]
            except OSError:  # the process has ended
                continue


def run_options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of `docker run` with their values, up to the name of the image.

    What follows the image belongs to the program in the container.
    """
    if not argv or Path(argv[0]).name not in ENGINES or "run" not in argv[1:]:
        return
    words = iter(argv[argv.index("run", 1) + 1 :])
    for word in words:
        option, is_joined, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            return
        if is_joined:
            yield option, value
        elif option.startswith("--") and option not in _FLAGS:
            yield option, next(words, "")
        elif not option.startswith("--") and _takes_value(option):
            next(words, "")


def _takes_value(letters: str) -> bool:
    """Return whether the next word is the value of the last of some short options, as in `-it`."""
    return len(letters.strip("-ditPq")) == 1


def _limit(option: str, value: str) -> BlockLimit | None:
    """Return the limit of `--device-read-iops /dev/vdb:500`; None for any other option."""
    name, (device, _, rate) = _OPTIONS.get(option), value.rpartition(":")
    if name is None or not device:
        return None
    try:
        number = docker_bytes(rate) if name in BANDWIDTH else int(rate)
    except (PagecageError, ValueError):
        return None
    return BlockLimit(name, device, number, f"{option} {value}")
