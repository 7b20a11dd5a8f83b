"""Paths as options take them: what cannot be read, or cannot become what a verb makes there, is refused at once."""

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


def refusal(text: str, *, is_folder: bool | None = None, is_there: bool = False) -> str | None:
    """Return in a clause why a path cannot serve, or None where it can.

    `is_folder`: what stands there must be a folder, or (False) must not be one; None for either. `is_there`: something
    must stand there. Otherwise it may be made, a folder with those above it, where the nearest that is there lets us.
    """
    if not text or "\0" in text:
        return "is not a name of a file"
    try:
        is_directory = stat.S_ISDIR(os.stat(text).st_mode)  # noqa: PTH116 - Path.is_dir() hides why it cannot tell
    except FileNotFoundError:
        return "is not there" if is_there else _unmakeable(Path(text), is_folder is not False)
    except OSError as error:  # a name too long, a file in the place of a folder, a loop of links, no permission
        return f"cannot be used: {error.strerror}"
    if is_folder is None or is_folder is is_directory:
        return None
    return "is not a folder" if is_folder else "is a folder"


def _unmakeable(path: Path, is_folder: bool) -> str | None:
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not is_folder and above != path.absolute().parent:
        return f"cannot be made: {path.parent} is not there"
    return None if os.access(above, os.W_OK | os.X_OK) else f"cannot be made: {above} may not be written"


def _option(*, is_folder: bool | None, is_there: bool) -> Parameter:
    def converted(_: type[Path], tokens: Sequence[Token]) -> Path:
        text = tokens[0].value
        if why := refusal(text, is_folder=is_folder, is_there=is_there):
            raise ValueError(f"{text!r} {why}")
        return Path(text)

    return Parameter(converter=converted)


Folder = Annotated[Path, _option(is_folder=True, is_there=False)]
"""A folder that is there, or can be made."""
FolderThere = Annotated[Path, _option(is_folder=True, is_there=True)]
FileThere = Annotated[Path, _option(is_folder=False, is_there=True)]
NewFile = Annotated[Path, _option(is_folder=False, is_there=False)]
"""A file to write."""


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Raise PagecageError for what the file system refuses to write at a place that the user named."""
    try:
        yield
    except OSError as error:
        above = shlex.quote(str(target.parent))
        raise PagecageError(f"{target} cannot be written: {error.strerror or error}", f"ls -ld {above}") from None
