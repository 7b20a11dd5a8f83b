"""Containers of Docker and podman: their commands, an image's layers, and a customer's image."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pagecage.agent.drivers.driver import ClientDriver, DriverServices, LaunchContext
from pagecage.agent.drivers.engine import IMAGE, LABEL, ContainerEngine, keep_on_data_disk
from pagecage.errors import HostError
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.trial import DIGEST, BindMount, ImageSpec
from pagecage.process import PIPE, TimeoutExpired, spawn

if TYPE_CHECKING:
    from typing import Self

# The files in /etc that programs need. The engine puts its own files into /etc, so /etc cannot be
# mounted as a whole.
_ETC = ("alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd", "ssl", "java-*")
_PERIOD_US = 100_000


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
    known = [Path("/usr"), *(path for pattern in _ETC for path in sorted(etc.glob(pattern)))]
    wanted = [context.spool, context.data_dir, context.directory, *context.folders.values()]
    wanted += [path.parent for path in context.paths]
    layer = [context.files[0].parent] if context.data_dir is None and context.files else []
    below = [*known, *layer]
    writable = _outermost(filter(None, wanted), below)
    program = [Path(argv[0]).resolve().parent] if argv and argv[0].startswith("/") else []
    programs = _outermost([context.programs_dir, *program], [*below, *writable])
    return Container(
        context.name,
        context.maker.container_parent(context.unit),
        tuple(argv),
        (*known, *programs),
        tuple(writable),
        context.directory,
        context.environment,
    )


def _outermost(paths: Iterable[Path], mounted: Sequence[Path]) -> list[Path]:
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
        *_kept_apart(container.name, container.slice),
        *("--network=host", "--pid=host", "--log-driver=none", "--cap-add=ALL"),
        *("--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"),
        "--ulimit=memlock=-1",
        *(f"--mount={mount}" for mount in mounts),
        *([f"--workdir={container.directory}"] if container.directory else []),
        *(f"--env={name}" for name in container.environment),
    ]


def _kept_apart(name: str, parent: str) -> list[str]:
    own = [f"--name={name}", f"--label={LABEL}", f"--cgroup-parent={parent}"]
    return ["--interactive", "--rm", "--pull=never", *own]


def _run(program: str) -> list[str]:
    return [program, "run", *([] if program == "docker" else ["--cgroups=no-conmon"])]


def run_command(program: str, container: Container, limits: Sequence[str] = ()) -> list[str]:
    return [*_run(program), *options(container), *limits, IMAGE, *container.argv]


_ENGINE_LIMITS = {
    "IOReadBandwidthMax": ("read-bps", "ReadBps"),
    "IOWriteBandwidthMax": ("write-bps", "WriteBps"),
    "IOReadIOPSMax": ("read-iops", "ReadIOps"),
    "IOWriteIOPSMax": ("write-iops", "WriteIOps"),
}
"""An engine's limits on I/O: the ends of their options and of their fields of HostConfig."""


def limit_options(cage: Cage, node: str) -> list[str]:
    """Return the cage as options of docker-run(1), without suffixes: Docker's are of base 1024."""
    io = [
        f"--device-{_ENGINE_LIMITS[name][0]}={node}:{value}"
        for name, value in cage.properties.items()
        if name in _ENGINE_LIMITS
    ]
    names = {"Memory": "memory", "MemorySwap": "memory-swap"}
    names |= {"CpuPeriod": "cpu-period", "CpuQuota": "cpu-quota"}
    return [*(f"--{names[name]}={value}" for name, value in _memory_and_cpu(cage).items()), *io]


def limit_body(cage: Cage, node: str) -> Json:
    io = {
        f"BlkioDevice{_ENGINE_LIMITS[name][1]}": [{"Path": node, "Rate": value}]
        for name, value in cage.properties.items()
        if name in _ENGINE_LIMITS
    }
    return {**_memory_and_cpu(cage), **io}


def _memory_and_cpu(cage: Cage) -> dict[str, int]:
    """Return an engine's limits; that on swap includes memory, and -1 means unlimited."""
    properties = cage.properties
    limits: dict[str, int] = {}
    if (memory := properties.get("MemoryMax")) is not None:
        swap = properties.get("MemorySwapMax")
        limits |= {"Memory": memory, "MemorySwap": -1 if swap is None else memory + swap}
    if (quota := properties.get("CPUQuota")) is not None:
        limits |= {"CpuPeriod": _PERIOD_US, "CpuQuota": quota * _PERIOD_US // 100}
    return limits


def create_body(container: Container, environment: Mapping[str, str]) -> Json:
    binds = [(str(path), True) for path in container.read_only]
    binds += [(str(path), False) for path in container.writable]
    key, _, value = LABEL.partition("=")
    return {
        "Image": IMAGE,
        "Cmd": list(container.argv),
        "Labels": {key: value},
        **dict.fromkeys(("OpenStdin", "StdinOnce"), True),
        **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr"), True),
        "WorkingDir": str(container.directory or ""),
        "Env": [f"{k}={value}" for k, value in environment.items() if k in container.environment],
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
                {"Type": "bind", "Source": path, "Target": path, "ReadOnly": read_only}
                for path, read_only in binds
            ],
        },
    }


_LOAD_SECONDS = 3600.0
_CONTENTS = "manifest.json"
_MOST_JSON_BYTES = 16 << 20
_OVERLAY = ("overlay2", "overlay")
"""Storage drivers with one directory per layer: Docker's and podman's."""


def provide_image(engine: ContainerEngine, image: ImageSpec) -> Json:
    """Load the image unless the engine has it. Return its entry for a record, with its layers.

    Raises HostError if the engine cannot load it, or does not tell where its layers are.
    """
    found = engine.inspect_image(image.image_id) or _load(engine, image)
    user = str((found.get("Config") or {}).get("User") or "")  # empty for root
    return {
        "reference": image.reference,
        "id": image.image_id,
        "architecture": image.architecture,
        "layer_bytes": image.layer_bytes,
        "user": user if image.user is None else image.user,
        "layers": [str(path) for path in layer_directories(engine.program, found)],
    }


def _load(engine: ContainerEngine, image: ImageSpec) -> Json:
    program = engine.program
    if image.archive is None:
        reason = f"{program} has no image {image.reference}"
        raise HostError(reason, f"{program} pull {image.reference}")
    try:
        # The engine would give an image the names in its archive, and take them from other images,
        # so it gets the configuration and the layers alone, with a list of contents that has only
        # our own name.
        with tempfile.TemporaryFile() as stderr:
            process = spawn([program, "load"], stdin=PIPE, stderr=stderr)
            assert process.stdin is not None
            try:
                with suppress(BrokenPipeError), process.stdin:
                    write_renamed(Path(image.archive), image.image_id, process.stdin)
                status = process.wait(_LOAD_SECONDS)
            except TimeoutExpired:
                raise ValueError(f"it took longer than {_LOAD_SECONDS:.0f} s") from None
            finally:
                process.kill()
                process.wait()
            stderr.seek(0)
            lines = stderr.read().decode(errors="replace").strip().splitlines()
        if status != 0:
            raise ValueError(f"{lines[-1] if lines else f'{program} load: status {status}'}")
    except UNLOADABLE as error:
        reason = f"{program} cannot load {image.reference}: {error}"
        raise HostError(reason, f"{program} info") from None
    engine.undo.callback(engine.run, "image", "rm", "--force", own_name(image.image_id))
    os.sync()  # dirty pages cannot be dropped, and one call is faster than an fsync per file
    found = engine.inspect_image(image.image_id)
    if found is None:
        short = image.image_id.removeprefix(DIGEST)[:12]
        reason = f"{program} has loaded {image.archive}, which does not hold the image {short}"
        hint = "start a new run; if Docker has containerd's image store, use --driver podman"
        raise HostError(reason, hint)
    return found


def own_name(image_id: str) -> str:
    """Return the name under which an archive's image is loaded; no other image gets it."""
    return f"localhost/pagecage-image:{image_id.removeprefix(DIGEST)[:32]}"


UNLOADABLE = (
    *(OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
)
"""Exceptions of an archive that is damaged, or of none at all."""
_MOST_NAME_BYTES = 1 << 20
_NAMES = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
"""Types of entries that hold names of others, which tarfile reads into memory."""


class _Entry(tarfile.TarInfo):
    """An entry of an archive, whose names are short."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _NAMES and entry.size > _MOST_NAME_BYTES:
            raise tarfile.ReadError(f"it has a name of {entry.size} bytes")
        return entry


def open_archive(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, "r:*", tarinfo=_Entry)


def write_renamed(archive: Path, image_id: str, out: IO[bytes]) -> None:
    """Write an archive of the image alone, with its own name in place of the archive's names.

    The image is chosen by the digest of its configuration. Raises ValueError if it is missing, and
    UNLOADABLE for a file that is not such an archive.
    """
    with open_archive(archive) as source, tarfile.open(fileobj=out, mode="w|") as target:
        for entry in json.loads(_small(source, _CONTENTS)):
            config = _small(source, entry["Config"])
            if DIGEST + hashlib.sha256(config).hexdigest() == image_id:
                break
        else:
            short = image_id.removeprefix(DIGEST)[:12]
            raise ValueError(f"its archive does not hold the image {short}")
        name = f"{image_id.removeprefix(DIGEST)}.json"
        contents = [{"Config": name, "RepoTags": [own_name(image_id)], "Layers": entry["Layers"]}]
        for path, data in ((_CONTENTS, json.dumps(contents).encode()), (name, config)):
            _add(target, path, io.BytesIO(data))
        for layer in sorted(set(entry["Layers"]), key=lambda path: source.getmember(path).offset):
            file = source.extractfile(layer)  # also the target of a link within the archive
            if file is None:
                raise ValueError(f"{layer} is not a file")
            _add(target, layer, file)


def _small(source: tarfile.TarFile, name: str) -> bytes:
    file = source.extractfile(name)
    data = file.read(_MOST_JSON_BYTES + 1) if file else b""
    if not data or len(data) > _MOST_JSON_BYTES:
        raise ValueError(f"{name} is not a small file")
    return data


def _add(target: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, os.SEEK_END)
    file.seek(0)
    target.addfile(entry, file)


def layer_directories(program: str, found: JsonView) -> tuple[Path, ...]:
    """Return the directories of an image's layers, the uppermost first.

    `found` is an entry of `docker image inspect` or `podman image inspect`. Raises HostError for a
    storage driver without such directories.
    """
    graph = found.get("GraphDriver") or {}
    data = graph.get("Data") or {}
    joined = (data.get("UpperDir"), data.get("LowerDir"))
    paths = [path for text in joined if text for path in text.split(":")]
    if graph.get("Name") not in _OVERLAY or not paths:
        name = graph.get("Name") or "containerd's"
        reason = f"{program} keeps images with the storage driver {name}"
        hint = "use --host vm, or an engine with the storage driver overlay2"
        raise HostError(f"{reason}, which does not tell the directories of layers", hint)
    return tuple(map(Path, paths))


GATE = "pcgate"
"""The program that holds a container at its start (workloads/c/pcgate)."""
_GATE_TARGET = "/.pagecage-gate"
"""The gate's path in the container. A directory of the image may not exist or not be writable."""


class ImageDriver(ClientDriver):
    """Docker or podman with the trial's slice as the parent of the image's container."""

    def __init__(self, services: DriverServices, program: str) -> None:
        super().__init__(services)
        assert services.image is not None
        self._engine, self._image = services.engines.get(program), services.image
        self.name = program
        self._is_made = False

    def prepare(self) -> Json:
        keep_on_data_disk(self._engine)
        facts = vars(self._engine.ready())
        return {"engine": facts, "image": provide_image(self._engine, self._image)}

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return `docker run` with the gate as the entry point, which becomes `argv`."""
        self._is_made = True
        write_variables(self._image, variables_file(context))
        return run_image_command(self.name, self._image, context, argv)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        load = [[self.name, "load"]] if self._image.archive else []
        return [*load, run_image_command(self.name, self._image, context, argv)]

    def clear(self, context: LaunchContext, /) -> None:
        variables_file(context).unlink(missing_ok=True)
        if self._is_made:
            self._engine.remove(context.name)


def run_image_command(
    program: str, image: ImageSpec, context: LaunchContext, argv: Sequence[str]
) -> list[str]:
    """Return the command that runs the image with its standard streams passed through."""
    gate = BindMount(str(context.programs_dir / GATE), _GATE_TARGET, is_read_only=True)
    parent = context.maker.container_parent(context.unit)
    return [
        *(*_run(program), *_kept_apart(context.name, parent)),
        *("--network=host", "--log-driver=none", f"--entrypoint={_GATE_TARGET}"),
        *(f"--mount={mount_option(mount)}" for mount in (gate, *image.mounts)),
        *(f"--env-file={path}" for path in image.env_files),
        *([f"--env-file={variables_file(context)}"] if image.environment else []),
        *([f"--workdir={image.directory}"] if image.directory else []),
        *([f"--user={image.user}"] if image.user is not None else []),
        image.image_id,
        *argv,
    ]


def variables_file(context: LaunchContext) -> Path:
    """Return the file with the values of variables, in memory; a sweep removes it."""
    return context.spool / "trials" / f"{context.name}.env"


def write_variables(image: ImageSpec, path: Path) -> None:
    """Write them for --env-file; an argument would be visible to every user of the host."""
    if not image.environment:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    text = "".join(f"{each.name}={each.variable_value}\n" for each in image.environment)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def mount_option(mount: BindMount) -> str:
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(fields + ["readonly"] * mount.is_read_only)
    return line.getvalue()[:-1]


def mounted_paths(image: ImageSpec) -> tuple[Path, ...]:
    return tuple(Path(mount.source) for mount in image.mounts)
