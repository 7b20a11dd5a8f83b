"""Containers of trials: an empty root with the host's programs and data at their usual paths.

The same program runs from the same pages as without a container, so that only the cage differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.drivers.engine import IMAGE, LABEL
from pagecage.model.cage import Cage

# The files in /etc that programs need. The engine puts its own files into /etc, so /etc cannot be
# mounted as a whole.
_ETC = ("alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd", "ssl", "java-*")
_PERIOD_US = 100_000
_READABLE = ("/usr",)


@dataclass(frozen=True)
class Container:
    """Specification of a container: slice, command, and the host folders mounted into it."""

    name: str
    slice: str
    argv: tuple[str, ...]
    read_only: tuple[Path, ...]
    writable: tuple[Path, ...]
    directory: Path | None
    environment: tuple[str, ...]


def container_of(
    context: LaunchContext, argv: Sequence[str], etc: Path = Path("/etc")
) -> Container:
    """Return the specification of a trial's container."""
    known = [Path(path) for path in _READABLE]
    found = [path for pattern in _ETC for path in sorted(etc.glob(pattern))]
    wanted = [
        context.spool,
        context.data_dir,
        context.directory,
        *context.folders.values(),
        *(path.parent for path in context.paths),
    ]
    below = [
        *known,
        *found,
        *((context.files[0].parent,) if context.data_dir is None and context.files else ()),
    ]
    writable = _outermost((path for path in wanted if path is not None), below)
    programs = _outermost([context.programs_dir, *_program(argv)], [*below, *writable])
    return Container(
        context.name,
        context.maker.container_parent(context.unit),
        tuple(argv),
        (*known, *found, *programs),
        tuple(writable),
        context.directory,
        context.environment,
    )


def _program(argv: Sequence[str]) -> Iterator[Path]:
    if argv and argv[0].startswith("/"):
        yield Path(argv[0]).resolve().parent


def _outermost(paths: Iterable[Path], mounted: Sequence[Path]) -> list[Path]:
    """Return the paths that are not below another path or below a mounted one, shortest first."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path == one or one in path.parents for one in (*kept, *mounted)):
            kept.append(path)
    return kept


def options(container: Container) -> list[str]:
    """Return options of docker-run(1) and podman-run(1): all capabilities, host network and pids.

    With its own process ids the workload would be process 1, which ignores signals by default
    (pid_namespaces(7)). Docker's seccomp filter would refuse io_uring.
    """
    mounts = [f"type=bind,source={path},target={path},readonly" for path in container.read_only]
    mounts += [f"type=bind,source={path},target={path}" for path in container.writable]
    return [
        "--interactive",
        "--rm",
        "--pull=never",
        f"--name={container.name}",
        f"--label={LABEL}",
        f"--cgroup-parent={container.slice}",
        "--network=host",
        "--pid=host",
        "--log-driver=none",
        "--cap-add=ALL",
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
        "--ulimit=memlock=-1",
        *(f"--mount={mount}" for mount in mounts),
        *([f"--workdir={container.directory}"] if container.directory else []),
        *(f"--env={name}" for name in container.environment),
    ]


def run_command(program: str, container: Container, limits: Sequence[str] = ()) -> list[str]:
    """Return the command that runs the container with its standard streams passed through."""
    log = () if program == "docker" else ("--cgroups=no-conmon",)
    return [program, "run", *log, *options(container), *limits, IMAGE, *container.argv]


def limit_options(cage: Cage, node: str) -> list[str]:
    """Return the cage as options of docker-run(1), without suffixes: Docker's are of base 1024."""
    options_of = {
        "IOReadBandwidthMax": "read-bps",
        "IOWriteBandwidthMax": "write-bps",
        "IOReadIOPSMax": "read-iops",
        "IOWriteIOPSMax": "write-iops",
    }
    asked = {
        "memory": "memory",
        "swap": "memory-swap",
        "period": "cpu-period",
        "quota": "cpu-quota",
    }
    flags = [f"--{asked[what]}={value}" for what, value in _memory_and_cpu(cage).items()]
    io = [
        f"--device-{options_of[name]}={node}:{value}"
        for name, value in cage.properties.items()
        if name in options_of
    ]
    return flags + io


def limit_body(cage: Cage, node: str) -> dict[str, Any]:
    """Return the cage as fields of HostConfig (POST /containers/create)."""
    fields_of = {
        "IOReadBandwidthMax": "ReadBps",
        "IOWriteBandwidthMax": "WriteBps",
        "IOReadIOPSMax": "ReadIOps",
        "IOWriteIOPSMax": "WriteIOps",
    }
    asked = {"memory": "Memory", "swap": "MemorySwap", "period": "CpuPeriod", "quota": "CpuQuota"}
    body = {asked[what]: value for what, value in _memory_and_cpu(cage).items()}
    io = {
        f"BlkioDevice{fields_of[name]}": [{"Path": node, "Rate": value}]
        for name, value in cage.properties.items()
        if name in fields_of
    }
    return {**body, **io}


def _memory_and_cpu(cage: Cage) -> dict[str, int]:
    """Return an engine's limits on memory and CPU.

    Its swap limit includes memory; -1 means unlimited.
    """
    properties = cage.properties
    limits: dict[str, int] = {}
    if (memory := properties.get("MemoryMax")) is not None:
        swap = properties.get("MemorySwapMax")
        limits |= {"memory": memory, "swap": -1 if swap is None else memory + swap}
    if (quota := properties.get("CPUQuota")) is not None:
        limits |= {"period": _PERIOD_US, "quota": quota * _PERIOD_US // 100}
    return limits


def create_body(container: Container, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return `options` as the body of POST /containers/create, with the values of variables."""
    binds = [(path, True) for path in container.read_only] + [
        (path, False) for path in container.writable
    ]
    key, _, value = LABEL.partition("=")
    return {
        "Image": IMAGE,
        "Cmd": list(container.argv),
        "Labels": {key: value},
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "WorkingDir": str(container.directory or ""),
        "Env": [
            f"{name}={value}"
            for name, value in environment.items()
            if name in container.environment
        ],
        "HostConfig": {
            "AutoRemove": True,
            "CgroupParent": container.slice,
            "NetworkMode": "host",
            "PidMode": "host",
            "LogConfig": {"Type": "none"},
            "CapAdd": ["ALL"],
            "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined"],
            "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
            "Mounts": [
                {"Type": "bind", "Source": str(path), "Target": str(path), "ReadOnly": read_only}
                for path, read_only in binds
            ],
        },
    }
