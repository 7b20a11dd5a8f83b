"""The files of a new project."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

_MARKER = """# The top of a project for pagecage, with its experiments/ and cgroups/.
"""
_CAGE = """about = "A slow disk: 20 MB/s and 500 reads per second."
IOReadBandwidthMax = "20MB"
IOReadIOPSMax = 500
"""
FILES = {
    "pagecage.toml": _MARKER,
    "cgroups/slow-disk.toml": _CAGE,
    ".gitignore": "/runs/\n/site/\n",
}
"""Contents of a new project by path, besides its experiments."""
_EXPERIMENT = """question = {question}
# The time from the start of the command to its exit.
response = "wall_seconds"
repeats = 3
{copies}
[workload]
kind = "command"
program = {program}
arguments = {arguments}
{data_paths}timeout_seconds = 600

# `uncaged` is the control without limits. The other levels are cages: those of cgroups/, and
# pagecage's own (`pagecage cage list`).
[factors]
cage = ["uncaged", "slow-disk"]
{levels}
# Sizes differ in `dataset` (a file that pagecage makes, {file}), repeats and limits of time.
{sizes}"""
_COPIES = """# Copied to the guest. On this machine they are used in place.
copies = {copies}
"""
LEVELS = """
# Nothing of the files is in the page cache when the command starts.
[levels.cage.uncaged]
cache = "cold"
[levels.cage.slow-disk]
cache = "cold"
"""
_DATASETS = {"full": "1GiB", "default": "256MiB", "emulated": "64MiB", "smoke": "16MiB"}


def experiment_text(words: Sequence[str], files: Sequence[str]) -> str:
    """Return the definition of an experiment with a command.

    `files` are the words that are files of the project. They are data, except for the program.
    """
    data = [file for file in files if file != words[0]]
    has_dataset = any("{file}" in word for word in words)
    return _EXPERIMENT.format(
        question=_quoted(f"What does a slow disk cost `{shlex.join(words)}`?"),
        copies=_COPIES.format(copies=_array(files)) if files else "",
        program=_quoted(words[0]),
        arguments=_array(words[1:]),
        data_paths=f"data_paths = {_array(data)}\n" if data else "",
        levels=LEVELS if data or has_dataset else "",
        sizes=data_sizes() if has_dataset else "".join(_size(name, False) for name in _DATASETS),
        file="{file}",
    )


def data_sizes() -> str:
    """Return the tables of the sizes, with a dataset each."""
    return "".join(_size(name, True) for name in _DATASETS)


def _size(name: str, has_dataset: bool) -> str:
    dataset = f'dataset = "{_DATASETS[name]}"\n' if has_dataset else ""
    repeats = "repeats = 1\n" if name == "smoke" else ""
    return f"[sizes.{name}]\n{dataset}{repeats}"


def _array(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, words))}]"


def _quoted(text: str) -> str:
    """Return a basic string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
