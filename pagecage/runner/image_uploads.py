"""Files of a container: where they are on the host, and which are copied there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.hosts.host import AgentHost
from pagecage.model.container.image import DIGEST, BindMount, ImageSpec
from pagecage.model.trial_data import DATA, ORIGINAL, TrialData
from pagecage.runner.image_source import FoundImage
from pagecage.runner.uploads import FOLDER, UploadedFile, size_of

_RESTORED = "volumes"
"""Below the directory of the copies: the volumes that the container may write to."""


@dataclass(frozen=True)
class ContainerFiles:
    """The image with its files on a host; `carried` are the files to copy.

    `directory` is the directory of the copies, else the current one. `volumes` are restored before
    each trial; None if there are no copies that the container may write to.
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
        archive = str(found.archive) if found.engine is None else None
        paths = tuple(map(str, env_files))
        image = replace(image, archive=archive, mounts=tuple(mounts), env_files=paths)
        return ContainerFiles(image, (), str(Path.cwd()))
    directory = f"{host.data_dir}/{FOLDER}"
    digest = config.image_id.removeprefix(DIGEST)
    archive_copy = UploadedFile(
        found.name, str(found.archive), f"{digest}.tar", found.archive_bytes
    )
    mounted = [_volume(mount, n) for n, mount in enumerate(mounts, 1)]
    variables = [_copy(str(path), f"env-{n}") for n, path in enumerate(env_files, 1)]
    image = replace(
        image,
        archive=f"{directory}/{archive_copy.name}",
        mounts=tuple(
            replace(mount, source=f"{directory}/{_used(copy.name)}")
            for mount, copy in zip(mounts, mounted, strict=True)
        ),
        env_files=tuple(f"{directory}/{copy.name}" for copy in variables),
    )
    written = sum(
        copy.size_bytes
        for mount, copy in zip(mounts, mounted, strict=True)
        if not mount.is_read_only
    )
    volumes = (
        TrialData(writes=True, size_bytes=written, copied_to=f"{directory}/{_RESTORED}")
        if not all(mount.is_read_only for mount in mounts)
        else None
    )
    return ContainerFiles(image, (archive_copy, *mounted, *variables), directory, volumes)


def _volume(mount: BindMount, number: int) -> UploadedFile:
    """Return the copy of a volume: the original of a restored one if the container may write."""
    folder = "" if mount.is_read_only else f"{_RESTORED}/{ORIGINAL}/"
    return _copy(mount.source, f"{folder}volume-{number}")


def _used(name: str) -> str:
    """Return the path that the container uses, of a volume's copy."""
    return name.replace(f"{_RESTORED}/{ORIGINAL}/", f"{_RESTORED}/{DATA}/", 1)


def _copy(source: str, name: str) -> UploadedFile:
    """Return a copy that keeps its owner, which programs of images check (initdb, sshd)."""
    return UploadedFile(source, source, name, size_of(Path(source)), keeps_owner=True)
