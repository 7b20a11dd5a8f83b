"""Files of experiments and cages: pagecage's own, and those of the user's project."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.checkout import MARKER
from pagecage.errors import PagecageError, nearest, why_unreadable
from pagecage.model.cage import UNCAGED
from pagecage.model.identifiers import DEFINITION


@dataclass(frozen=True)
class DefinitionFiles:
    """The files of one kind, `experiment` or `cage`.

    `built_in` is pagecage's folder, `own` that of the user's project; None without a project. Of
    two files with one name, the project's counts.
    """

    kind: str
    built_in: Path
    own: Path | None

    def names(self) -> list[str]:
        """Return all names."""
        return sorted({*_names(self.built_in), *self.own_names()})

    def own_names(self) -> list[str]:
        """Return the names in the user's project."""
        return _names(self.own) if self.own else []

    def replacing(self) -> list[str]:
        """Return the names in the user's project that pagecage has too."""
        return sorted({*self.own_names()} & {*_names(self.built_in)})

    def find(self, name: str, where: str = "") -> Path:
        """Return the file of a definition.

        Raises PagecageError with the nearest name if there is none.
        """
        if name in self.own_names() and self.own:
            return check_stem(self.own / f"{name}.toml", self.kind)
        if name in _names(self.built_in):
            return self.built_in / f"{name}.toml"
        prefix, hint = f"{where}: " if where else "", nearest(name, self.names())
        lacking = self._lacking()
        if lacking and not hint.startswith("did you mean"):
            hint = "pagecage init -- COMMAND makes one"
        raise PagecageError(f"{prefix}there is no {self.kind} {name!r}{lacking}", hint)

    def _lacking(self) -> str:
        """Return a clause about a project without experiments; empty for any other."""
        if self.own is None or self.own_names() or self.kind != "experiment":
            return ""
        top = self.own.parent
        is_project = self.own.is_dir() or (top / MARKER).is_file()
        return f", and the project {top} defines none" if is_project else ""


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def is_path(name: str) -> bool:
    """Return whether the user gave the path of a definition instead of its name."""
    return "/" in name and name.endswith(".toml")


def check_stem(path: Path, kind: str) -> Path:
    """Return the path of a definition. Raises PagecageError if its stem is not a valid name.

    `uncaged` is the control without limits, which no project may replace.
    """
    if kind == "cage" and path.stem == UNCAGED:
        raise PagecageError(
            f"{path}: {UNCAGED} is the control without limits, in every project", f"rename {path}"
        )
    if not DEFINITION.fullmatch(path.stem):
        raise _invalid(path.stem, kind, f"rename {path}")
    return path


def check_name(name: str) -> str:
    """Return the name of an experiment. Raises PagecageError if it cannot name runs and cgroups."""
    if not DEFINITION.fullmatch(name):
        raise _invalid(name, "experiment", "choose another")
    return name


def _invalid(name: str, kind: str, fix: str) -> PagecageError:
    return PagecageError(
        f"{name!r} is not a valid name for {'an' if kind[0] == 'e' else 'a'} {kind}",
        f"{fix}: small letters, digits and dashes",
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a file. Raises PagecageError if it cannot be read."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise PagecageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    except (ValueError, RecursionError) as error:
        reason = why_unreadable(error)
        raise PagecageError(
            f"{path.name}: {reason}", f"edit {path}; https://toml.io describes the syntax"
        ) from None
    if _contains_nul(data):
        raise PagecageError(
            f"{path.name}: a string contains a NUL byte, which cannot be passed to a program",
            f"edit {path}",
        )
    return data


def _contains_nul(tree: Any) -> bool:
    if isinstance(tree, str):
        return "\0" in tree
    values = (
        [*tree, *tree.values()]
        if isinstance(tree, dict)
        else tree
        if isinstance(tree, list)
        else ()
    )
    return any(map(_contains_nul, values))
