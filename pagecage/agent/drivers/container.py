"""A trial's container: the host's own programs and data at their own paths, in a root file system that is empty.

So the same bytes of the same program run from the same pages as without a container: what differs is the cage alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.drivers.engine import IMAGE, LABEL
from pagecage.model.cage import Cage

# Of /etc what programs look for; the engine mounts files of its own beside it, so that it cannot come whole.
_ETC = ("alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd", "ssl", "java-*")
_PERIOD_US = 100_000
_READABLE = ("/usr",)


@dataclass(frozen=True)
class Container:
    """What an engine is to make: the slice to put it in, the command, which folders of the host it sees."""

    name: str
    slice: str
    argv: tuple[str, ...]
    read_only: tuple[Path, ...]
    writable: tuple[Path, ...]
    directory: Path | None
    environment: tuple[str, ...]


def container_of(place: LaunchContext, argv: Sequence[str], etc: Path = Path("/etc")) -> Container:
    """The container of a trial."""
    known = [Path(path) for path in _READABLE]
    found = [path for pattern in _ETC for path in sorted(etc.glob(pattern))]
    wanted = [place.spool, place.data_dir, place.directory, *(path.parent for path in place.paths)]
    below = [*known, *found, *((place.files[0].parent,) if place.data_dir is None and place.files else ())]
    writable = _outermost((path for path in wanted if path is not None), below)
    programs = _outermost([place.programs_dir, *_program(argv)], [*below, *writable])
    return Container(
        place.name, place.unit, tuple(argv), (*known, *found, *programs), tuple(writable), place.directory,
        place.environment,
    )  # fmt: skip


def _program(argv: Sequence[str]) -> Iterator[Path]:
    if argv and argv[0].startswith("/"):
        yield Path(argv[0]).resolve().parent


def _outermost(paths: Iterable[Path], mounted: Sequence[Path]) -> list[Path]:
    """Each path that lies in no other and in nothing that is mounted already, outer ones first."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path == one or one in path.parents for one in (*kept, *mounted)):
            kept.append(path)
    return kept


def options(container: Container) -> list[str]:
    """As docker-run(1) and podman-run(1) take it: the rights, the network and the processes of the host.

    With the process ids of the host the workload is not number 1, which would be deaf to signals (pid_namespaces(7)).
    Docker's own filter of system calls would refuse io_uring.
    """
    mounts = [f"type=bind,source={path},target={path},readonly" for path in container.read_only]
    mounts += [f"type=bind,source={path},target={path}" for path in container.writable]
    return [
        "--interactive", "--rm", "--pull=never", f"--name={container.name}", f"--label={LABEL}",
        f"--cgroup-parent={container.slice}", "--network=host", "--pid=host", "--log-driver=none", "--cap-add=ALL",
        "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--ulimit=memlock=-1",
        *(f"--mount={mount}" for mount in mounts),
        *([f"--workdir={container.directory}"] if container.directory else []),
        *(f"--env={name}" for name in container.environment),
    ]  # fmt: skip


def run_command(program: str, container: Container, limits: Sequence[str] = ()) -> list[str]:
    """The command that makes the container, starts it and passes its standard streams through."""
    log = () if program == "docker" else ("--cgroups=no-conmon",)
    return [program, "run", *log, *options(container), *limits, IMAGE, *container.argv]


def limit_options(cage: Cage, node: str) -> list[str]:
    """The cage in docker-run(1)'s words, with plain numbers: suffixes there are of base 1024."""
    words = {"IOReadBandwidthMax": "read-bps", "IOWriteBandwidthMax": "write-bps",
             "IOReadIOPSMax": "read-iops", "IOWriteIOPSMax": "write-iops"}  # fmt: skip
    asked = {"memory": "memory", "swap": "memory-swap", "period": "cpu-period", "quota": "cpu-quota"}
    flags = [f"--{asked[what]}={value}" for what, value in _memory_and_cpu(cage).items()]
    io = [f"--device-{words[name]}={node}:{value}" for name, value in cage.properties.items() if name in words]
    return flags + io


def limit_body(cage: Cage, node: str) -> dict[str, Any]:
    """The same as the API has it (HostConfig of POST /containers/create)."""
    words = {"IOReadBandwidthMax": "ReadBps", "IOWriteBandwidthMax": "WriteBps",
             "IOReadIOPSMax": "ReadIOps", "IOWriteIOPSMax": "WriteIOps"}  # fmt: skip
    asked = {"memory": "Memory", "swap": "MemorySwap", "period": "CpuPeriod", "quota": "CpuQuota"}
    body = {asked[what]: value for what, value in _memory_and_cpu(cage).items()}
    io = {f"BlkioDevice{words[name]}": [{"Path": node, "Rate": value}] for name, value in cage.properties.items()
          if name in words}  # fmt: skip
    return {**body, **io}


def _memory_and_cpu(cage: Cage) -> dict[str, int]:
    """What an engine takes for the limits of memory and CPU; its limit of swap counts the memory in, -1 is none."""
    properties = cage.properties
    told: dict[str, int] = {}
    if (memory := properties.get("MemoryMax")) is not None:
        swap = properties.get("MemorySwapMax")
        told |= {"memory": memory, "swap": -1 if swap is None else memory + swap}
    if (quota := properties.get("CPUQuota")) is not None:
        told |= {"period": _PERIOD_US, "quota": quota * _PERIOD_US // 100}
    return told


def create_body(container: Container, environment: Mapping[str, str]) -> dict[str, Any]:
    """What `options` say, as the body of POST /containers/create, with the values of the variables."""
    binds = [(path, True) for path in container.read_only] + [(path, False) for path in container.writable]
    key, _, value = LABEL.partition("=")
    return {
        "Image": IMAGE, "Cmd": list(container.argv), "Labels": {key: value}, "OpenStdin": True, "StdinOnce": True,
        "AttachStdin": True, "AttachStdout": True, "AttachStderr": True,
        "WorkingDir": str(container.directory or ""),
        "Env": [f"{name}={value}" for name, value in environment.items() if name in container.environment],
        "HostConfig": {
            "AutoRemove": True, "CgroupParent": container.slice, "NetworkMode": "host", "PidMode": "host",
            "LogConfig": {"Type": "none"}, "CapAdd": ["ALL"],
            "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined"],
            "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
            "Mounts": [{"Type": "bind", "Source": str(path), "Target": str(path), "ReadOnly": read_only}
                       for path, read_only in binds],
        },
    }  # fmt: skip
