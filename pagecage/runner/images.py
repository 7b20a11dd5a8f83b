"""A customer's images, and their containers' settings as docker run and Compose files name them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.container import UNLOADABLE, open_archive
from pagecage.checkout import TOP
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import HostError, PagecageError, why_unreadable
from pagecage.hosts.agent_package import target_machine
from pagecage.hosts.host import AgentHost, Progress
from pagecage.importers import compose
from pagecage.importers.compose import ComposeService, compose_variables, read_service
from pagecage.importers.document import Document, read_document
from pagecage.importers.result import ImportResult, Selection
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.plan import Plan
from pagecage.model.trial import (
    DATA,
    DIGEST,
    IMAGE_DRIVERS,
    ORIGINAL,
    BindMount,
    ImageSpec,
    TrialData,
    Variable,
)
from pagecage.process import find_tool, run, spawn
from pagecage.runner.run_folder import path_exists
from pagecage.runner.uploads import FOLDER, UploadedFile, size_of
from pagecage.units import format_bytes

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
"""Names of the image specification (Go's GOARCH) by the kernel's."""


@dataclass(frozen=True)
class ImageConfig:
    """The configuration of an image (OCI image-spec, config.md), whose digest is `image_id`."""

    image_id: str
    architecture: str
    os: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    layer_bytes: int


def image_config(
    image_id: str, platform_of: JsonView, config: JsonView, layer_bytes: int
) -> ImageConfig:
    first, default = lists = (config.get("Entrypoint") or [], config.get("Cmd") or [])
    if not all(isinstance(one, list) and all(isinstance(w, str) for w in one) for one in lists):
        raise ValueError("Entrypoint and Cmd are not lists of words")
    image_id = DIGEST + image_id.removeprefix(DIGEST)
    machine, system = (str(platform_of.get(key) or "") for key in ("architecture", "os"))
    return ImageConfig(image_id, machine, system, tuple(first), tuple(default), layer_bytes)


def image_program(
    config: ImageConfig, name: str, arguments: Sequence[str], entrypoint: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the words that the container runs, as an engine composes them.

    `entrypoint` replaces the image's, and with it its default arguments; None leaves both.
    `arguments` replace the default arguments. Raises PagecageError if nothing is left.
    """
    default = config.command if entrypoint is None else ()
    first = config.entrypoint if entrypoint is None else tuple(entrypoint)
    if words := (*first, *(tuple(arguments) or default)):
        return words
    reason = f"the image {name} has no entry point and no command"
    raise PagecageError(reason, "name its program: -- PROGRAM")


def check_platform(config: ImageConfig, name: str, machine: str = "") -> None:
    """Raise PagecageError if the image is for another system or processor (the kernel's name)."""
    kernel = machine or target_machine()
    own = f"linux/{_ARCHITECTURES.get(kernel, kernel)}"
    if (found := f"{config.os}/{config.architecture}") != own:
        reason = f"the image {name} is for {found}, and the host is {own}"
        raise PagecageError(reason, f"docker pull --platform {own} {name}")


_MANIFEST = "manifest.json"
_MOST_JSON_BYTES = 16 << 20
_SAVE = "docker save IMAGE -o image.tar"


def read_archive(path: Path) -> ImageConfig:
    """Return the configuration of the only image in an archive. Raises PagecageError."""
    try:
        with open_archive(path) as archive:
            names = archive.getnames()
            if _MANIFEST not in names:
                is_oci = "oci-layout" in names
                kind = "an archive in OCI's own format" if is_oci else "no image"
                raise PagecageError(f"{path} has no {_MANIFEST}, so it is {kind}", _SAVE)
            manifest = json.loads(_member(archive, _MANIFEST))
            if len(manifest) != 1:
                tags = ", ".join(str((one.get("RepoTags") or ["?"])[0]) for one in manifest)
                raise PagecageError(f"{path} has {len(manifest)} images: {tags}", _SAVE)
            text = _member(archive, manifest[0]["Config"])
            config = json.loads(text)
            size_bytes = sum(archive.getmember(layer).size for layer in manifest[0]["Layers"])
            digest = hashlib.sha256(text).hexdigest()
            return image_config(digest, config, config.get("config") or {}, size_bytes)
    except OSError as error:  # also for damaged gzip data
        reason, fix = error.strerror or str(error), f"ls -l {shlex.quote(str(path))}"
        raise PagecageError(f"{path} cannot be read: {reason}", fix) from None
    except UNLOADABLE as error:
        is_tar = not isinstance(error, tarfile.TarError)
        reason = why_unreadable(error) if is_tar else "it is not a whole tar archive"
        raise PagecageError(f"{path} is not an archive of an image: {reason}", _SAVE) from None


def _member(archive: tarfile.TarFile, name: Any) -> bytes:
    file = archive.extractfile(str(name))
    if file is None:
        raise ValueError(f"{name} is not a file")
    content = file.read(_MOST_JSON_BYTES + 1)
    if len(content) > _MOST_JSON_BYTES:
        raise ValueError(f"{name} is larger than {_MOST_JSON_BYTES >> 20} MiB")
    return content


_SAVED = TOP / "build/images/saved"
_ANSWER_SECONDS = 60.0
_SAVE_SECONDS = 3600.0
_STDERR = 2


@dataclass(frozen=True)
class FoundImage:
    """An image on this machine. `engine` has it; None if `archive` is a file of the user's."""

    name: str
    config: ImageConfig
    archive: Path
    engine: str | None = None

    @property
    def archive_bytes(self) -> int:
        """The size of the archive; before it is made, that of the layers."""
        return self.archive.stat().st_size if self.archive.exists() else self.config.layer_bytes

    def save(self, progress: Progress) -> None:
        """Write the archive, unless it exists already, for a host without this engine."""
        if self.engine is None or self.archive.exists():
            return
        progress(f"{self.engine} saves {self.name} ({format_bytes(self.config.layer_bytes)})")
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        part = self.archive.with_suffix(".part")
        run([self.engine, "save", "--output", part, self.name], timeout_seconds=_SAVE_SECONDS)
        if read_archive(part).image_id != self.config.image_id:
            part.unlink()
            raise PagecageError(
                f"the archive of {self.name} has another id than {self.engine} gives the image",
                f"{self.engine} save {shlex.quote(self.name)} -o image.tar, then --image image.tar",
            )
        part.rename(self.archive)


def find_image(name: str, driver: str | None, *, pulls: bool) -> FoundImage:
    """Return the image of a path, or as an engine knows it. Raises PagecageError.

    With `driver` only this engine is asked, and with `pulls` the first one fetches a missing image.
    """
    if not name or "\0" in name or name.startswith("-"):
        raise PagecageError(f"--image: {name!r} is not the name of an image", "docker images")
    is_path = name.startswith(("/", "./", "../")) or name.endswith((".tar", ".tgz", ".gz"))
    if is_path or path_exists(Path(name)):
        path = Path(name).absolute()
        if not path_exists(path):
            raise PagecageError(f"--image: {name!r} does not exist", _SAVE)
        if path.is_dir():
            raise PagecageError(f"--image: {name!r} is a directory", _SAVE)
        found = FoundImage(name, read_archive(path), path)
    else:
        found = _in_engines(name, driver, pulls=pulls)
    check_platform(found.config, name)
    return found


def _in_engines(name: str, driver: str | None, *, pulls: bool) -> FoundImage:
    engines = _installed((driver,) if driver else IMAGE_DRIVERS, name)
    for engine in engines:
        if found := _inspect(engine, name):
            return found
    first = engines[0]
    if not pulls:
        verb = "has" if len(engines) == 1 else "have"
        reason = f"{' and '.join(engines)} {verb} no image {name!r}"
        raise PagecageError(reason, f"{first} pull {shlex.quote(name)}, or add --pull")
    status = spawn([first, "pull", name], stdout=_STDERR, stderr=_STDERR).wait()
    if status != 0:
        message = f"{first} pull {name} ended with status {status}"
        raise PagecageError(message, "look at its message above, or name an archive by docker save")
    if found := _inspect(first, name):
        return found
    raise PagecageError(f"{first} has no image {name!r} after the pull", "docker images")


def _installed(engines: Sequence[str], name: str) -> list[str]:
    installed = [engine for engine in engines if find_tool(engine)]
    if not installed:
        raise PagecageError(
            f"this machine has no {' or '.join(engines)} that could have the image {name!r}",
            f"where it is: docker save {shlex.quote(name)} -o image.tar; then --image image.tar",
        )
    answering, reasons = [], []
    for engine in installed:
        done = run([engine, "info"], check=False, timeout_seconds=_ANSWER_SECONDS)
        if done.ok and "Cannot connect" not in done.stderr:
            answering.append(engine)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reasons += [(lines or [f"status {done.status}"])[-1].strip().removeprefix("Error: ")]
    if answering:
        return answering
    fix = "systemctl start docker" if installed[0] == "docker" else "podman info"
    message = f"{installed[0]} does not answer: {reasons[0]}"
    raise HostError(message, f"{fix}, or name an archive by docker save")


def _inspect(engine: str, name: str) -> FoundImage | None:
    """Return an image; None if the engine does not have it."""
    done = run([engine, "image", "inspect", name], check=False, timeout_seconds=_ANSWER_SECONDS)
    if not done.ok:
        return None
    try:
        found: Json = json.loads(done.stdout)[0]
        system = {"architecture": found["Architecture"], "os": found["Os"]}
        size_bytes = int(found["Size"])
        config = image_config(found["Id"], system, found.get("Config") or {}, size_bytes)
    except (ValueError, LookupError, TypeError, AttributeError):
        reason = f"{engine} describes the image in an unknown form"
        raise HostError(reason, f"{engine} info") from None
    digest = config.image_id.removeprefix(DIGEST)
    return FoundImage(name, config, _SAVED / f"{digest}.tar", engine)


_RESTORED = "volumes"
"""Below the directory of the copies: the volumes that the container may write to."""


@dataclass(frozen=True)
class ContainerFiles:
    """The image with its files on a host; `carried` are copied to `directory`.

    `volumes` are restored before each trial; None without copies that the container may write to.
    """

    image: ImageSpec
    carried: tuple[UploadedFile, ...]
    directory: str
    volumes: TrialData | None = None


def container_files(
    found: FoundImage, mounts: Sequence[BindMount], env_files: Sequence[Path], host: AgentHost
) -> ContainerFiles:
    """Return the files of a container on a host. This machine's own engine needs no copies."""
    config = found.config
    image = ImageSpec(found.name, config.image_id, config.architecture, config.layer_bytes)
    if host.name == "local":
        archive = None if found.engine else str(found.archive)
        paths = tuple(map(str, env_files))
        image = replace(image, archive=archive, mounts=tuple(mounts), env_files=paths)
        return ContainerFiles(image, (), str(Path.cwd()))
    directory, name = f"{host.data_dir}/{FOLDER}", f"{config.image_id.removeprefix(DIGEST)}.tar"
    carried = [UploadedFile(found.name, str(found.archive), name, found.archive_bytes)]
    placed, written_bytes = [], 0
    for number, mount in enumerate(mounts, 1):
        copy = used = f"volume-{number}"
        if not mount.is_read_only:  # the copy is the original, from which each trial's is restored
            copy, used = f"{_RESTORED}/{ORIGINAL}/{copy}", f"{_RESTORED}/{DATA}/{copy}"
        carried.append(_copy(mount.source, copy))
        written_bytes += 0 if mount.is_read_only else carried[-1].size_bytes
        placed.append(replace(mount, source=f"{directory}/{used}"))
    carried += [_copy(str(path), f"env-{n}") for n, path in enumerate(env_files, 1)]
    variables = tuple(f"{directory}/env-{n}" for n in range(1, len(env_files) + 1))
    image = replace(image, archive=f"{directory}/{name}", mounts=tuple(placed), env_files=variables)
    restored = None
    if any(not mount.is_read_only for mount in mounts):
        place = f"{directory}/{_RESTORED}"
        restored = TrialData(writes=True, size_bytes=written_bytes, copied_to=place)
    return ContainerFiles(image, tuple(carried), directory, restored)


def _copy(source: str, name: str) -> UploadedFile:
    """Return a copy that keeps its owner, which programs of images check (initdb, sshd)."""
    return UploadedFile(source, source, name, size_of(Path(source)), keeps_owner=True)


_MODES = {"ro": True, "rw": False}
_LABELS = ("z", "Z", "cached", "delegated", "consistent")
"""Options of a mount that change nothing without SELinux or on Linux."""
_PORT = re.compile(
    r"(?:(?:\d+(?:\.\d+){3}|\[[0-9A-Fa-f:]*\]):)?(?:(?P<host>\d+):)?(?P<own>\d+)(?:/tcp)?"
)
_LARGEST_PORT = 65535
_NAME = re.compile(r"[^=\0\n]+")

_LINE_NAME = re.compile(r"[^\s=#][^\s=]*")
_MOST_VALUE_BYTES = 60_000
"""Docker's client reads lines of up to 64 KiB."""
_TYPED_VARIABLE = re.compile(r"((?:--env=|-e)[^=]+)=", re.DOTALL)


@dataclass(frozen=True)
class ContainerSettings:
    """Settings that replace an image's settings or add to them.

    None and empty tuples leave the image's own. `env_files` and the sources of `mounts` are
    absolute paths on this machine.
    """

    entrypoint: tuple[str, ...] | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    mounts: tuple[BindMount, ...] = ()
    ports: tuple[int, ...] = ()
    directory: str | None = None
    user: str | None = None

    def changed_by(self, other: ContainerSettings) -> ContainerSettings:
        """Return these settings, replaced or extended by the command line's settings, `other`."""
        targets = {mount.target for mount in other.mounts}
        mounts = (mount for mount in self.mounts if mount.target not in targets)
        return replace(
            self,
            arguments=other.arguments or self.arguments,
            environment=self.environment + other.environment,
            env_files=self.env_files + other.env_files,
            mounts=(*mounts, *other.mounts),
            ports=tuple(sorted({*self.ports, *other.ports})),
        )


def parse_mount(text: str, option: str = "--volume", base: Path | None = None) -> BindMount:
    source, *rest = text.split(":")
    is_mount = len(rest) in (1, 2) and source and rest[0].startswith("/") and "\0" not in text
    if not is_mount:
        reason = f"{option}: {text!r} is not HOST:CONTAINER with an absolute path in the container"
        raise PagecageError(reason, f"write it as {option} ./data:/data:ro")
    modes = rest[1].split(",") if len(rest) == 2 else []
    if unknown := [mode for mode in modes if mode not in (*_MODES, *_LABELS)]:
        raise PagecageError(f"{option}: there is no mode {unknown[0]!r}", "use ro or rw")
    if "/" not in source and source not in (".", ".."):
        reason = f"{option}: {source!r} is a named volume, whose files the engine keeps"
        raise PagecageError(reason, f"name a directory: {option} ./{source}:{rest[0]}")
    path = os.path.abspath((base or Path.cwd()) / Path(source).expanduser())  # noqa: PTH100 - without ".."
    if not os.path.exists(path):  # noqa: PTH110 - a name may be too long
        raise PagecageError(f"{option}: {source!r} does not exist", f"mkdir {shlex.quote(source)}")
    return BindMount(path, rest[0], any(_MODES.get(mode, False) for mode in modes))


def parse_port(text: str, option: str = "--publish") -> int:
    match = _PORT.fullmatch(text)
    ports = [int(port) for port in match.groups() if port] if match else []
    if not ports or not all(1 <= port <= _LARGEST_PORT for port in ports):
        raise PagecageError(f"{option}: {text!r} is not a TCP port", f"{option} 5432:5432")
    if len(set(ports)) > 1:
        raise PagecageError(
            f"{option}: port {ports[1]} of the container cannot be mapped to {ports[0]}, because a"
            " replay uses the host's network",
            f"{option} {ports[1]}:{ports[1]}",
        )
    return ports[0]


def parse_variable(text: str, option: str = "--env") -> str:
    """Return NAME=VALUE; the value of a bare NAME is this process's."""
    name, equals, value = text.partition("=")
    if not _NAME.fullmatch(name) or "\0" in value:
        raise PagecageError(f"{option}: {text!r} is not NAME=VALUE", f"{option} LANG=C")
    if not equals and name not in os.environ:
        reason = f"{option}: the variable {name} is not set here"
        raise PagecageError(reason, f"{option} {name}=VALUE")
    return text if equals else f"{name}={os.environ[name]}"


def env_file(name: str, option: str = "--env-file") -> Path:
    """Return the absolute path of a file of variables. Raises PagecageError if it is unreadable."""
    path, quoted = Path(name).absolute(), shlex.quote(name)
    try:
        path.read_text()
    except UnicodeDecodeError:
        raise PagecageError(f"{option}: {name} is not text", f"file {quoted}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a valid path"
        reason = f"{option}: {name!r} cannot be read: {why}"
        raise PagecageError(reason, f"ls -l {quoted}") from None
    return path


def variable_of(entry: str) -> Variable:
    """Return the variable NAME=VALUE; an engine reads it from a line of a file."""
    name, _, value = entry.partition("=")
    if not _LINE_NAME.fullmatch(name) or set(value) & {"\n", "\r"}:
        raise PagecageError(
            f"the variable {name!r} has a name or value that is not one line without spaces before",
            "put the value into a file, and mount it: --volume",
        )
    if len(value.encode()) > _MOST_VALUE_BYTES:
        reason = f"the value of {name} is longer than {_MOST_VALUE_BYTES} bytes"
        raise PagecageError(reason, "put it into a file, and mount it: --volume")
    return Variable(name, value)


def without_values(command: str) -> str:
    """Return a command line whose --env options only name their variables."""
    words, is_value = shlex.split(command), False
    for number, word in enumerate(words):
        if word == "--":
            break
        if is_value:
            words[number] = word.partition("=")[0]
        elif match := _TYPED_VARIABLE.match(word):
            words[number] = match[1]
        is_value = word in ("-e", "--env")
    return shlex.join(words)


def with_values(plan: Plan) -> Plan:
    """Return a stored plan with the values of the containers' variables, which it only names."""

    def known(one: Variable) -> Variable:
        if one.variable_value is not None:
            return one
        if one.name not in os.environ:
            reason = f"the value of the variable {one.name} was not recorded with {plan.run_id}"
            raise PagecageError(reason, f"export {one.name}=VALUE, and repeat the command")
        return Variable(one.name, os.environ[one.name])

    trials = []
    for trial in plan.trials:
        command = trial.workload.command
        if command is not None and command.image is not None:
            image = replace(command.image, environment=tuple(map(known, command.image.environment)))
            workload = replace(trial.workload, command=replace(command, image=image))
            trial = replace(trial, workload=workload)
        trials.append(trial)
    return replace(plan, trials=tuple(trials))


CAGE = "compose"
"""The name of a cage with the limits of the file itself."""


@dataclass(frozen=True)
class ComposedContainer:
    """A service as a container. `cage` has its limits, None without any."""

    image: str
    settings: ContainerSettings
    cage: Cage | None
    notes: tuple[str, ...]
    lost: tuple[str, ...]


def read_compose(file: str, service: str | None) -> ComposedContainer:
    """Return a service of a Compose file; without a name the only one. Raises PagecageError."""
    path = env_file(file, "--compose")
    document = read_document(path.read_text(encoding="utf-8-sig"), file)
    if not compose.recognise(document):
        raise PagecageError(f"{file} is not a Compose file", "docker compose config > compose.yaml")
    names = [str(name) for name in document.tree["services"]]
    if service is None and len(names) > 1:
        raise PagecageError(
            f"{file} has {len(names)} services: {', '.join(names)}", f"--service {names[0]}"
        )
    name = service if service is not None else names[0]
    found = read_service(document, name, file)
    imported = _limits(document, name, file)
    notes: list[str] = list(found.notes)
    mounts = (parse_mount(volume.text, "volumes", path.parent) for volume in found.volumes)
    variables = tuple(_variables(found, path.parent, notes))
    settings = ContainerSettings(
        *(found.entrypoint, found.command, variables, (), tuple(mounts)),
        *(found.ports, found.directory, found.user),
    )
    cage = cage_of_tables(CAGE, imported.cage()) if imported.limits else None
    lost = tuple(f"{item.what}: {item.reason}" for item in imported.unsupported)
    return ComposedContainer(found.image, settings, cage, tuple(notes), lost)


def _limits(document: Document, name: str, file: str) -> ImportResult:
    try:
        return compose.read(document, Selection((name,)))
    except PagecageError as error:
        hint = f"pagecage cage import {file} --pick {name} shows the limits"
        raise PagecageError(f"{file}: {error.message}", hint) from None
    except (ValueError, ArithmeticError, TypeError, LookupError):
        reason = f"{file}: a limit of service {name} is not a number"
        raise PagecageError(reason, f"pagecage cage import {file}") from None


def _variables(found: ComposeService, folder: Path, notes: list[str]) -> Iterator[str]:
    """Yield NAME=VALUE of the files and then of the service, which count more."""
    of_files = [
        entry
        for name in found.env_files
        for entry in compose_variables(env_file(str(folder / name), "env_file").read_text(), name)
    ]
    for entry in (*of_files, *found.environment):
        if "=" in entry:
            yield entry
        elif entry in os.environ:
            yield f"{entry}={os.environ[entry]}"
        else:
            notes.append(f"the variable {entry} is not set here, and left out")
