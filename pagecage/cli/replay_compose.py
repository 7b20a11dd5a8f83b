"""The image, the container's settings and the limits of a service in a Compose file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagecage.cli.container_settings import ContainerSettings, env_file, parse_mount
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import PagecageError
from pagecage.importers import compose
from pagecage.importers.compose_service import ComposeService, read_service
from pagecage.importers.document import Document, read_document
from pagecage.importers.env_file import compose_variables
from pagecage.importers.result import ImportResult, Selection
from pagecage.model.cage import Cage

CAGE = "compose"
"""The name of a cage with the limits of the file itself."""


@dataclass(frozen=True)
class ComposedContainer:
    """A service as a container. `cage` has its limits, None without any.

    `notes` are sentences about what is left out, `lost` about its limits.
    """

    image: str
    settings: ContainerSettings
    cage: Cage | None
    notes: tuple[str, ...]
    lost: tuple[str, ...]


def read_compose(file: str, service: str | None) -> ComposedContainer:
    """Return a service of a Compose file; without a name the only one. Raises PagecageError."""
    document = read_document(_text(file), file)
    if not compose.recognise(document):
        raise PagecageError(f"{file} is not a Compose file", "docker compose config > compose.yaml")
    name = service if service is not None else _only_service(document, file)
    found = read_service(document, name, file)
    imported = _limits(document, name, file)
    notes: list[str] = list(found.notes)
    settings = _settings(found, Path(file).absolute().parent, notes)
    cage = cage_of_tables(CAGE, imported.cage()) if imported.limits else None
    lost = tuple(f"{item.what}: {item.reason}" for item in imported.unsupported)
    return ComposedContainer(found.image, settings, cage, tuple(notes), lost)


def _text(file: str) -> str:
    return env_file(file, "--compose").read_text(encoding="utf-8-sig")


def _only_service(document: Document, file: str) -> str:
    names = [str(name) for name in document.tree["services"]]
    if len(names) > 1:
        raise PagecageError(
            f"{file} has {len(names)} services: {', '.join(names)}", f"--service {names[0]}"
        )
    return names[0]


def _limits(document: Document, name: str, file: str) -> ImportResult:
    try:
        return compose.read(document, Selection((name,)))
    except PagecageError as error:
        hint = f"pagecage cage import {file} --pick {name} shows the limits"
        raise PagecageError(f"{file}: {error.message}", hint) from None
    except (ValueError, ArithmeticError, TypeError, LookupError):
        raise PagecageError(
            f"{file}: a limit of service {name} is not a number", f"pagecage cage import {file}"
        ) from None


def _settings(found: ComposeService, folder: Path, notes: list[str]) -> ContainerSettings:
    mounts = (parse_mount(volume.text, "volumes", folder) for volume in found.volumes)
    return ContainerSettings(
        entrypoint=found.entrypoint,
        arguments=found.command,
        environment=tuple(_variables(found, folder, notes)),
        mounts=tuple(mounts),
        ports=found.ports,
        directory=found.directory,
        user=found.user,
    )


def _variables(found: ComposeService, folder: Path, notes: list[str]) -> Iterator[str]:
    """Yield NAME=VALUE of the files and then of the service, which count more.

    A name without a value takes that of this machine; one that is not set here is noted.
    """
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
