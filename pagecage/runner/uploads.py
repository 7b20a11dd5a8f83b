"""Files that a host needs: those of a user's project, workloads, programs and their libraries."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from pagecage.definitions.experiment import Experiment
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.host import Host, Progress, SizedHost
from pagecage.model.json_codec import Json, to_json
from pagecage.model.trial import CommandSpec, Workload
from pagecage.process import PIPE, run, spawn
from pagecage.units import format_bytes

_BLOCK_BYTES = 1 << 20
FOLDER = "replay"
RESTORED_FOLDER = "replay-restored"


@dataclass(frozen=True)
class UploadedFile:
    """A file or directory to copy: as `typed`, its `source` here, its `name` on the host.

    A copy belongs to the host's user, or with `keeps_owner` to the source's owner if that user is
    root.
    """

    typed: str
    source: str
    name: str
    size_bytes: int
    keeps_owner: bool = False


def find_uploads(
    paths: Sequence[str], known: Sequence[UploadedFile] = ()
) -> tuple[UploadedFile, ...]:
    """Return `known` and the files that `--copy` names. Raises PagecageError."""
    found = {file.name: file for file in known}
    for path in paths:
        source = Path(os.path.abspath(path))  # noqa: PTH100 - without "..", and with its symbolic links
        if not path or not os.path.exists(source):  # noqa: PTH110 - Path.exists() raises for a name that is too long
            raise PagecageError(f"--copy: {path!r} does not exist", f"ls -d {shlex.quote(path)}")
        if source.name in found:
            reason = f"--copy: two files are named {source.name!r}"
            raise PagecageError(reason, "rename one of them")
        found[source.name] = UploadedFile(path, str(source), source.name, size_of(source))
    return tuple(found.values())


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all regular files below a directory."""
    if path.is_file():
        return path.stat().st_size
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_size for file in files if not file.is_symlink())


def path_on_host(path: str, uploads: Sequence[UploadedFile], directory: str) -> str | None:
    """Return the path on the host of a file of the controller; None if it is not copied."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - symbolic links stay: the names that were typed count
    for file in uploads:
        if absolute == file.source or absolute.startswith(f"{file.source}/"):
            return f"{directory}/{file.name}{absolute[len(file.source) :]}"
    return None


def translate_command(
    argv: Sequence[str], uploads: Sequence[UploadedFile], directory: str
) -> tuple[str, ...]:
    """Return the command with the copied paths, as the user typed them, on the host."""
    paths = {file.typed: f"{directory}/{file.name}" for file in uploads}
    return tuple(paths.get(word, word) for word in argv)


def uploads_to_json(uploads: Sequence[UploadedFile]) -> list[Json]:
    return list(to_json(uploads))


def upload(
    host: Host,
    files: Sequence[UploadedFile],
    directory: str,
    progress: Progress,
    removed: str | None = None,
) -> None:
    """Copy files to a new directory on the host, through one tar stream.

    A directory of an earlier replay is removed, or `removed`, which contains it. Raises
    PagecageError if a file has gone since the plan was made, and HostError if the host cannot
    write.
    """
    if gone := [file.source for file in files if not os.path.exists(file.source)]:  # noqa: PTH110
        raise PagecageError(f"{gone[0]}, which the run copies, has gone", "start a new run")
    size = format_bytes(sum(file.size_bytes for file in files))
    progress(f"copying {size} to the {host.name} host")
    target, old = shlex.quote(directory), shlex.quote(removed or directory)
    unpack = f"rm -rf {old} && mkdir -p {target} && tar -xf - --numeric-owner -C {target}"
    with tempfile.TemporaryFile() as stderr:
        process = spawn(host.command(["sh", "-c", unpack]), stdin=PIPE, stderr=stderr)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the reason is in the standard error of tar
            _pack(files, process.stdin)
        status = process.wait()
        stderr.seek(0)
        if status != 0:
            lines = stderr.read().decode(errors="replace").strip().splitlines()
            reason = (lines or [f"exit status {status}"])[-1]
            message = f"--copy could not write to {directory} on the {host.name} host: {reason}"
            raise HostError(message, "copy fewer or smaller files")


def _pack(files: Sequence[UploadedFile], raw: IO[bytes]) -> None:
    """Write the archive through a buffer, because the pipe may accept partial writes."""
    with (
        raw,
        open(raw.fileno(), "wb", buffering=_BLOCK_BYTES, closefd=False) as pipe,
        tarfile.open(fileobj=pipe, mode="w|", bufsize=_BLOCK_BYTES) as archive,
    ):
        for file in files:
            source, own = os.path.realpath(file.source), None if file.keeps_owner else _of_root
            archive.add(source, arcname=file.name, filter=own)


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


_LINKED = re.compile(r"^\s*(?P<name>\S+)(?: => (?P<path>/\S+|not found))?(?: \(0x[0-9a-f]+\))?$")
_FOLDER = "program"
_ELF = b"\x7fELF"


def parse_ldd(text: str) -> dict[str, str | None]:
    """Return the libraries and the loader in ldd(1)'s output by name; None if not found."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        match = _LINKED.match(line)
        if not match or match["name"] in ("statically", "linux-vdso.so.1", "linux-gate.so.1"):
            continue
        if match["path"] is None and not match["name"].startswith("/"):
            continue
        path = match["path"] or match["name"]
        found[Path(match["name"]).name] = None if path == "not found" else path
    return found


def program_uploads(program: str) -> tuple[tuple[UploadedFile, ...], tuple[str, ...]]:
    """Return the files to copy, and the command with {directory} that starts the program.

    Raises PagecageError for a script, for a missing library, and for a file that is not a program.
    """
    path = shutil.which(program)
    if path is None:
        reason = f"--copy-program: there is no program {program!r} on this machine"
        raise PagecageError(reason, "check PATH")
    file = Path(path)
    with file.open("rb") as opened:
        head = opened.readline(200)
    if head.startswith(b"#!"):
        interpreter = head[2:].decode(errors="replace").split()[:1]
        raise PagecageError(
            f"--copy-program: {file} is a script for {' '.join(interpreter)}, not a binary",
            f"copy the script with --copy {file}, and name its interpreter in the command",
        )
    if not head.startswith(_ELF):
        raise PagecageError(f"--copy-program: {file} is not an ELF program", f"file {file}")
    # ldd(1) fails for a static program, which has no libraries.
    libraries = parse_ldd(run(["ldd", path], check=False, timeout_seconds=30).stdout)
    name = Path(path).name
    files = [_upload(program, path, f"{_FOLDER}/{name}")]
    for library, source in libraries.items():
        if source is None:
            message = f"--copy-program: {path} needs {library}, which is not installed"
            raise PagecageError(message, f"ldd {path}")
        files.append(_upload(library, source, f"{_FOLDER}/lib/{library}"))
    loader = next((library for library in libraries if library.startswith("ld")), None)
    folder = f"{{directory}}/{_FOLDER}"
    if loader is None:
        return tuple(files), (f"{folder}/{name}",)
    load = (f"{folder}/lib/{loader}", "--library-path", f"{folder}/lib")
    return tuple(files), (*load, "--argv0", name, f"{folder}/{name}")


def _upload(typed: str, source: str, name: str) -> UploadedFile:
    return UploadedFile(typed, source, name, Path(source).stat().st_size)


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == _ELF


def place_files(experiment: Experiment, host: SizedHost) -> tuple[Experiment, Json | None]:
    """Return the experiment for a host, and the copies that its plan records; None without any."""
    project, copies = experiment.project, experiment.copies
    if project is None:
        return experiment, None
    tables = (level for levels in experiment.levels.values() for level in levels.values())
    for one in (experiment.workload, *(level.workload for level in tables if level.workload)):
        path = project / one.program
        if _speaks_handshake(one) and not (path.is_file() and os.access(path, os.X_OK)):
            reason = f"{experiment.name}.toml: workload.program: {path} is not an executable file"
            raise PagecageError(reason, f"build it in {path.parent}; a script needs chmod +x")
    if host.name == "vm" and copies:
        uploads = _uploads(project, copies, experiment.name)
        directory = f"{getattr(host, 'data_dir', '')}/{FOLDER}"
        place = partial(_copied, uploads=uploads, directory=directory, project=project)
        placed = _placed(experiment, uploads, directory, place)
        return placed, {"carried": uploads_to_json(uploads), "directory": directory}
    if copies and host.name != "local":
        reason = f"{experiment.name} copies files of its project, which works with --host vm alone"
        raise PagecageError(reason, "run it with --host vm or local")
    here = str(project) if host.name == "local" else None
    place = partial(_in_folder, directory=here, copies=copies)
    return _placed(experiment, (), here, place), None


def _speaks_handshake(workload: Workload) -> bool:
    return workload.kind == "handshake" and not workload.is_built_in


def _uploads(project: Path, copies: tuple[str, ...], name: str) -> tuple[UploadedFile, ...]:
    for path in copies:
        if not (project / path).resolve().is_relative_to(project.resolve()):
            reason = f"{name}.toml: copies: {path!r} is outside the project {project}"
            raise PagecageError(reason, "name a file or folder below it")
        if not (project / path).exists():
            raise PagecageError(
                f"{name}.toml: copies: {path!r} does not exist in {project}", f"ls {project}"
            )
    found = find_uploads([str(project / path) for path in copies])
    return tuple(replace(file, typed=path) for file, path in zip(found, copies, strict=True))


def _placed(
    experiment: Experiment,
    uploads: tuple[UploadedFile, ...],
    directory: str | None,
    place: Callable[[Workload], Workload],
) -> Experiment:

    def placed(one: Workload) -> Workload:
        return place(one) if one.command is not None or _speaks_handshake(one) else one

    levels = {
        factor: {
            name: level.model_copy(update={"workload": level.workload and placed(level.workload)})
            for name, level in table.items()
        }
        for factor, table in experiment.levels.items()
    }
    collectors = []
    for one in experiment.own_collectors:
        command = translate_command(one.command, uploads, directory or "")
        collectors.append(replace(one, directory=directory, command=command))
    return replace(
        experiment,
        workload=placed(experiment.workload),
        levels=levels,
        own_collectors=tuple(collectors),
    )


def _in_folder(one: Workload, directory: str | None, copies: tuple[str, ...] = ()) -> Workload:
    if _speaks_handshake(one):
        if directory is None:
            raise PagecageError(
                f"{one.program} is a file of the project, and is not copied to the host",
                f"name it in `copies`, and run it with --host vm: copies = [{one.program!r}]",
            )
        words = (f"{directory}/{word}" if word in copies else word for word in one.arguments)
        program = os.path.normpath(Path(directory, one.program))
        return replace(one, program=program, arguments=tuple(words))
    command = one.command or CommandSpec()
    return replace(one, command=replace(command, directory=command.directory or directory))


def _copied(
    one: Workload, uploads: tuple[UploadedFile, ...], directory: str, project: Path
) -> Workload:
    program, *arguments = translate_command((one.program, *one.arguments), uploads, directory)
    if _speaks_handshake(one):
        copy = path_on_host(str(project / one.program), uploads, directory)
        if copy is None:
            return _in_folder(one, None)
        return replace(one, program=copy, arguments=tuple(arguments))
    command = one.command or CommandSpec()
    paths = tuple(
        path_on_host(str(project / path), uploads, directory) or path for path in command.data_paths
    )
    command = replace(command, data_paths=paths, directory=directory)
    return replace(one, program=program, arguments=tuple(arguments), command=command)
