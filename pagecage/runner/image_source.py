"""The image of a replay on this machine: in an archive, or in a container engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.host import Progress
from pagecage.model.container.image import DIGEST, IMAGE_DRIVERS
from pagecage.process import Completed, find_tool, run, spawn
from pagecage.runner.image_archive import read_archive
from pagecage.runner.image_config import ImageConfig, check_platform, image_config
from pagecage.runner.run_folder import path_exists
from pagecage.units import format_bytes

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
    """Return the image that the user names: by the path of an archive, or as an engine knows it.

    With `driver` only this engine is asked, and with `pulls` the first engine fetches an image that
    none has. Raises PagecageError.
    """
    if not name or "\0" in name or name.startswith("-"):
        raise PagecageError(f"--image: {name!r} is not the name of an image", "docker images")
    found = _in_archive(name) if _is_path(name) else _in_engines(name, driver, pulls=pulls)
    check_platform(found.config, name)
    return found


def _is_path(name: str) -> bool:
    return (
        name.startswith(("/", "./", "../"))
        or name.endswith((".tar", ".tgz", ".gz"))
        or (path_exists(Path(name)))
    )


def _in_archive(name: str) -> FoundImage:
    path = Path(name).absolute()
    if not path_exists(path):
        raise PagecageError(f"--image: {name!r} does not exist", "docker save IMAGE -o image.tar")
    if path.is_dir():
        raise PagecageError(f"--image: {name!r} is a directory", "docker save IMAGE -o image.tar")
    return FoundImage(name, read_archive(path), path)


def _in_engines(name: str, driver: str | None, *, pulls: bool) -> FoundImage:
    engines = _installed((driver,) if driver else IMAGE_DRIVERS, name)
    for engine in engines:
        if (config := _inspect(engine, name)) is not None:
            return _found(engine, name, config)
    if not pulls:
        raise PagecageError(
            f"{' and '.join(engines)} {'has' if len(engines) == 1 else 'have'} no image {name!r}",
            f"{engines[0]} pull {shlex.quote(name)}, or add --pull",
        )
    _pull(engines[0], name)
    config = _inspect(engines[0], name)
    if config is None:
        raise PagecageError(f"{engines[0]} has no image {name!r} after the pull", "docker images")
    return _found(engines[0], name, config)


def _found(engine: str, name: str, config: ImageConfig) -> FoundImage:
    digest = config.image_id.removeprefix(DIGEST)
    return FoundImage(name, config, _SAVED / f"{digest}.tar", engine)


def _installed(engines: Sequence[str], name: str) -> list[str]:
    """Return the engines of this machine that answer.

    Raises PagecageError if none is installed, and HostError if none of them answers.
    """
    installed = [engine for engine in engines if find_tool(engine)]
    if not installed:
        raise PagecageError(
            f"this machine has no {' or '.join(engines)} that could have the image {name!r}",
            f"where it is: docker save {shlex.quote(name)} -o image.tar; then --image image.tar",
        )
    silent = {engine: reason for engine in installed if (reason := _why_silent(engine))}
    if answering := [engine for engine in installed if engine not in silent]:
        return answering
    engine, reason = next(iter(silent.items()))
    fix = "systemctl start docker" if engine == "docker" else "podman info"
    raise HostError(
        f"{engine} does not answer: {reason}", f"{fix}, or name an archive by docker save"
    )


def _why_silent(engine: str) -> str | None:
    """Return why an engine does not answer; None if it does."""
    done = run([engine, "info"], check=False, timeout_seconds=_ANSWER_SECONDS)
    if done.ok and "Cannot connect" not in done.stderr:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return (lines or [f"status {done.status}"])[-1].strip().removeprefix("Error: ")


def _inspect(engine: str, name: str) -> ImageConfig | None:
    """Return the configuration of an image; None if the engine does not have it."""
    done = run([engine, "image", "inspect", name], check=False, timeout_seconds=_ANSWER_SECONDS)
    return _config(engine, done) if done.ok else None


def _config(engine: str, done: Completed) -> ImageConfig:
    try:
        found: dict[str, Any] = json.loads(done.stdout)[0]
        platform_of = {"architecture": found["Architecture"], "os": found["Os"]}
        return image_config(found["Id"], platform_of, found.get("Config") or {}, int(found["Size"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise HostError(
            f"{engine} describes the image in an unknown form", f"{engine} info"
        ) from None


def _pull(engine: str, name: str) -> None:
    """Fetch an image, with the engine's own progress on standard error."""
    status = spawn([engine, "pull", name], stdout=_STDERR, stderr=_STDERR).wait()
    if status != 0:
        raise PagecageError(
            f"{engine} pull {name} ended with status {status}",
            "look at its message above, or name an archive by docker save",
        )
