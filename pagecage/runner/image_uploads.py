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
        image = replace(
            image,
            archive=str(found.archive) if found.engine is None else None,
            mounts=tuple(mounts),
            env_files=tuple(map(str, env_files)),
        )
        return ContainerFiles(image, (), str(Path.cwd()))
    directory = f"{host.data_dir}/{FOLDER}"
    archive = UploadedFile(
        *(found.name, str(found.archive), f"{config.image_id.removeprefix(DIGEST)}.tar"),
        found.archive_bytes,
    )
    volumes = [_volume(mount, n, directory) for n, mount in enumerate(mounts, 1)]
    variables = [_copy(str(path), f"env-{n}") for n, path in enumerate(env_files, 1)]
    image = replace(
        image,
        archive=f"{directory}/{archive.name}",
        mounts=tuple(volume.mount for volume in volumes),
        env_files=tuple(f"{directory}/{copy.name}" for copy in variables),
    )
    carried = (archive, *(volume.copy for volume in volumes), *variables)
    return ContainerFiles(image, carried, directory, _restored(volumes, directory))


@dataclass(frozen=True)
class _Volume:
    """The copy of a volume, and its mount with the path that the container uses."""

    copy: UploadedFile
    mount: BindMount


def _volume(mount: BindMount, number: int, directory: str) -> _Volume:
    """Return a volume; if the container may write to it, its copy is a restored one's original."""
    name = f"volume-{number}"
    if mount.is_read_only:
        return _Volume(_copy(mount.source, name), replace(mount, source=f"{directory}/{name}"))
    used = replace(mount, source=f"{directory}/{_RESTORED}/{DATA}/{name}")
    return _Volume(_copy(mount.source, f"{_RESTORED}/{ORIGINAL}/{name}"), used)


def _restored(volumes: Sequence[_Volume], directory: str) -> TrialData | None:
    """Return the data of the volumes that the container may write to."""
    sizes = [volume.copy.size_bytes for volume in volumes if not volume.mount.is_read_only]
    if not sizes:
        return None
    return TrialData(writes=True, size_bytes=sum(sizes), copied_to=f"{directory}/{_RESTORED}")


def _copy(source: str, name: str) -> UploadedFile:
    """Return a copy that keeps its owner, which programs of images check (initdb, sshd)."""
    return UploadedFile(source, source, name, size_of(Path(source)), keeps_owner=True)
