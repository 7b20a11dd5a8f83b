"""A container's settings as `docker run` and Compose files name them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import PagecageError
from pagecage.importers import compose
from pagecage.importers.compose import ComposeService, compose_variables, read_service
from pagecage.importers.document import Document, read_document
from pagecage.importers.result import ImportResult, Selection
from pagecage.model.cage import Cage
from pagecage.model.plan import Plan
from pagecage.model.trial import BindMount, Variable

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
    """Settings that replace or add to those of an image.

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
        """Return these settings with those of the command line, `other`, which count more."""
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
