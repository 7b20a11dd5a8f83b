"""Definitions, projects and report sections whose code may run on this machine.

They are kept in the user's state folder (XDG Base Directory Specification), one file each, so that
two commands at the same time do not overwrite each other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pagecage.checkout import find_project, user_folder
from pagecage.digests import json_sha256, text_sha256
from pagecage.model.experiment import Experiment

HARMLESS = frozenset(
    {
        *("question", "story", "source", "response", "repeats", "claims", "findings", "tables"),
        *("ratio_tables", "identical", "exclude", "fresh", "fill"),
    }
)
"""Keys of a definition that name neither a command nor a file."""


def _store() -> Path:
    return user_folder("XDG_STATE_HOME", ".local/state") / "known"


def commands_sha256(experiment: Experiment) -> str:
    """Return the hash of all that a definition can make a host run.

    It covers the definition without its harmless keys, and the texts of its own files.
    """
    told = {key: value for key, value in experiment.definition.items() if key not in HARMLESS}
    return json_sha256([told, dict(experiment.own_programs), dict(experiment.sections)])


def is_known(experiment: Experiment) -> bool:
    """Return whether a definition is pagecage's own, the user's own, or was accepted before."""
    if experiment.file is None:
        return True
    project = find_project(experiment.file.resolve().parent)
    if project is not None and _has("projects", text_sha256(str(project.resolve()))):
        return True
    return _has("definitions", commands_sha256(experiment))


def remember_project(folder: Path) -> None:
    """Keep that the definitions of a project are the user's own."""
    _keep("projects", text_sha256(str(folder.resolve())), str(folder.resolve()))


def remember_definition(experiment: Experiment) -> None:
    """Keep that the commands of a definition were accepted."""
    _keep("definitions", commands_sha256(experiment), experiment.name)


def remember_sections(sections: Mapping[str, str]) -> None:
    """Keep that these parts of a report may be executed on this machine."""
    for name, text in sections.items():
        _keep("sections", text_sha256(text), name)


def accepted_sections(texts: Iterable[str]) -> list[str]:
    """Return the hashes of those parts of a report that may be executed."""
    return [key for key in map(text_sha256, texts) if _has("sections", key)]


def _has(kind: str, key: str) -> bool:
    with suppress(OSError):
        return (_store() / kind / key).is_file()
    return False


def _keep(kind: str, key: str, about: str) -> None:
    """Write one file. Without a writable state folder, the user is asked again the next time."""
    folder = _store() / kind
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / key).write_text(f"{about}\n", errors="surrogateescape")
