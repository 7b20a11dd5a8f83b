"""Versions of a host's packages, and a definition's own programs on it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.protocol import RunRequest
from pagecage.errors import PagecageError
from pagecage.linux.procfs import read_text
from pagecage.model.trial import Package
from pagecage.process import run

_QUERIES = {
    "debian": [
        "dpkg-query",
        "--show",
        "--showformat=${db:Status-Status}\t${Package}\t${Version}\t${Depends}\n",
    ],
    "redhat": ["rpm", "--query", "--queryformat=installed\t%{NAME}\t%{VERSION}-%{RELEASE}\t\n"],
}
_RELATIVES = {"debian": "debian", "fedora": "redhat", "rhel": "redhat"}
"""Family of a distribution by a word of ID or ID_LIKE in os-release(5)."""
_NAME = re.compile(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)")
_OS_RELEASE = Path("/etc/os-release")


def read_packages(packages: Sequence[Package], os_release: Path = _OS_RELEASE) -> dict[str, Any]:
    """Return the family of the distribution, and the version of each package by name.

    A package that is not installed has the version None. The versions of the packages on which
    these depend directly are included, because the name may be that of a metapackage.
    """
    family = distribution_family(read_text(os_release) or "")
    names = [name for package in packages if (name := package.name_on(family))]
    if family is None or not names:
        return {"family": family, "versions": {}}
    rows = _query(family, names)
    # A Depends field is "a (>= 1), b | c:any".
    found = (word for _, depends in rows.values() for word in _NAME.findall(depends))
    needed = set(found) - set(names)
    versions: dict[str, str | None] = dict.fromkeys(names)
    others = _query(family, sorted(needed)) if needed else {}
    return {
        "family": family,
        "versions": versions | {name: row[0] for name, row in {**others, **rows}.items()},
    }


def distribution_family(os_release: str) -> str | None:
    """Return the family of a distribution from the text of os-release(5); None if unknown."""
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key in ("ID", "ID_LIKE"):
            for word in value.strip("\"'").split():
                if word in _RELATIVES:
                    return _RELATIVES[word]
    return None


def _query(family: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    try:
        done = run([*_QUERIES[family], *names], check=False, timeout_seconds=30)
    except PagecageError:  # without the package manager, none is known to be installed
        return {}
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {row[1]: (row[2], row[3]) for row in rows if len(row) == 4 and row[0] == "installed"}


def programs_folder(request: RunRequest) -> Path:
    """Return the folder that {programs} stands for."""
    return request.spool / "programs"


def write_own_programs(request: RunRequest) -> None:
    """Write the request's programs to their folder; those of an earlier request are removed.

    Every user may run them: a program that root starts may go on as another user.
    """
    folder = programs_folder(request)
    shutil.rmtree(folder, ignore_errors=True)
    if request.own_programs:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    for name, text in request.own_programs.items():
        path = folder / Path(name).name
        path.write_text(text)
        path.chmod(0o755)
