"""Files of the controller that a replay needs on the host: where they lie there, and how they get there."""

from __future__ import annotations

import os
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pagecage.errors import HostError, PagecageError
from pagecage.hosts.host import Host, Progress
from pagecage.process import PIPE, spawn
from pagecage.units import format_bytes

_BLOCK_BYTES = 1 << 20
FOLDER = "replay"


@dataclass(frozen=True)
class UploadedFile:
    """One file or directory: `typed` by the user, `source` here, `name` in the replay's directory on the host."""

    typed: str
    source: str
    name: str
    size_bytes: int


def make_carried(paths: Sequence[str]) -> tuple[UploadedFile, ...]:
    """What `--copy` names, each under its own last name. Raises PagecageError for what is missing or named twice."""
    found: dict[str, UploadedFile] = {}
    for path in paths:
        source = Path(path).absolute()
        if not path or not os.path.exists(source):  # noqa: PTH110 - Path.exists() raises for a name that is too long
            raise PagecageError(f"--copy: there is no {path}", f"ls -d {shlex.quote(path)}")
        if source.name in found:
            raise PagecageError(f"--copy: two things are named {source.name!r}", "rename one of them")
        found[source.name] = UploadedFile(path, str(source), source.name, size_of(source))
    return tuple(found.values())


def size_of(path: Path) -> int:
    """Bytes of a file, or of all regular files below a directory."""
    if path.is_file():
        return path.stat().st_size
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_size for file in files if not file.is_symlink())


def on_host(path: str, carried: Sequence[UploadedFile], directory: str) -> str | None:
    """Where a path of the controller lies on the host; None when it is not carried."""
    here = os.path.abspath(path)  # noqa: PTH100 - symbolic links stay: the names that were typed count
    for one in carried:
        if here == one.source or here.startswith(f"{one.source}/"):
            return f"{directory}/{one.name}{here[len(one.source) :]}"
    return None


def translated(argv: Sequence[str], carried: Sequence[UploadedFile], directory: str) -> tuple[str, ...]:
    """The command with each word that is exactly a carried path, as it was typed there, replaced by its copy's."""
    places = {one.typed: f"{directory}/{one.name}" for one in carried}
    return tuple(places.get(word, word) for word in argv)


def carried_to_json(carried: Sequence[UploadedFile]) -> list[dict[str, Any]]:
    """As it stands in a plan."""
    return [asdict(one) for one in carried]


def carried_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[UploadedFile, ...]:
    """The inverse of `carried_to_json`."""
    return tuple(UploadedFile(**one) for one in data)


def carry(host: Host, carried: Sequence[UploadedFile], directory: str, progress: Progress) -> None:
    """Put everything into a new directory on the host, through one tar stream. Raises HostError saying why it cannot.

    What is there already is removed: it is an earlier replay's.
    """
    progress(f"copying {format_bytes(sum(one.size_bytes for one in carried))} to the {host.name} host")
    place = shlex.quote(directory)
    unpack = f"rm -rf {place} && mkdir -p {place} && tar -xf - --no-same-owner -C {place}"
    with tempfile.TemporaryFile() as said:
        process = spawn(host.command(["sh", "-c", unpack]), stdin=PIPE, stderr=said)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # what went wrong is told at the other end
            _pack(carried, process.stdin)
        status = process.wait()
        said.seek(0)
        if status != 0:
            reason = (said.read().decode(errors="replace").strip().splitlines() or [f"exit status {status}"])[-1]
            raise HostError(f"--copy could not write to {directory} on the {host.name} host: {reason}", "copy less")


def _pack(carried: Sequence[UploadedFile], raw: IO[bytes]) -> None:
    """Write the archive; a pipe of ours is unbuffered and may take less than it is given, so it is opened again."""
    with (
        raw,
        open(raw.fileno(), "wb", buffering=_BLOCK_BYTES, closefd=False) as pipe,
        tarfile.open(fileobj=pipe, mode="w|", bufsize=_BLOCK_BYTES) as archive,
    ):
        for one in carried:
            archive.add(os.path.realpath(one.source), arcname=one.name)
