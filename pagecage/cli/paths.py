"""Types of path options, which refuse unsuitable paths while the command line is parsed."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from pagecage.errors import PagecageError


def refusal(text: str, *, is_folder: bool | None = None, must_exist: bool = False) -> str | None:
    """Return a clause that says why a path is unsuitable, or None if it is suitable.

    `is_folder` is True if the path must be a directory, False if it must not be one, None for
    either. With `is_there` something must exist at the path. Otherwise it may be missing, if its
    nearest existing parent is writable.
    """
    if not text or "\0" in text:
        return "is not a valid path"
    try:
        is_directory = stat.S_ISDIR(os.stat(text).st_mode)  # noqa: PTH116 - Path.is_dir() hides the reason
    except FileNotFoundError:
        return (
            "does not exist"
            if must_exist
            else _creation_obstacle(Path(text), is_folder is not False)
        )
    except (
        OSError
    ) as error:  # name too long, file instead of a directory, loop of links, no permission
        return f"cannot be used: {error.strerror}"
    if is_folder is None or is_folder is is_directory:
        return None
    return "is not a directory" if is_folder else "is a directory"


def _creation_obstacle(path: Path, is_folder: bool) -> str | None:
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not is_folder and above != path.absolute().parent:
        return f"cannot be created: {path.parent} does not exist"
    return (
        None
        if os.access(above, os.W_OK | os.X_OK)
        else f"cannot be created: {above} is not writable"
    )


def _option(*, is_folder: bool | None, must_exist: bool) -> Parameter:
    def converted(_: type[Path], tokens: Sequence[Token]) -> Path:
        text = tokens[0].value
        if reason := refusal(text, is_folder=is_folder, must_exist=must_exist):
            raise ValueError(f"{text!r} {reason}")
        return Path(text)

    return Parameter(converter=converted, metavar="DIR" if is_folder else "FILE")


Folder = Annotated[Path, _option(is_folder=True, must_exist=False)]
"""A directory that exists or can be created."""
ExistingFolder = Annotated[Path, _option(is_folder=True, must_exist=True)]
ExistingFile = Annotated[Path, _option(is_folder=False, must_exist=True)]
NewFile = Annotated[Path, _option(is_folder=False, must_exist=False)]
"""A file to write."""


def shown(path: Path) -> str:
    """Return a path below the working directory as relative to it, and any other unchanged."""
    here = _working_directory()
    return str(path.relative_to(here)) if here and path.is_relative_to(here) else str(path)


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an OSError from writing to `target`, which the user named, into a PagecageError."""
    try:
        yield
    except OSError as error:
        above = shlex.quote(str(target.parent))
        raise PagecageError(
            f"{target} cannot be written: {error.strerror or error}", f"ls -ld {above}"
        ) from None
