"""A scenario: a command, its next start, and what must hold afterwards; the command line in this
process, for a scenario's folder and a host that a test gives.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pagecage.errors import EXIT_HOST, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from reliability.faults.calls import command_line
from reliability.faults.injection import Point, faults_at
from reliability.faults.supervisor import DEFAULT, Limits

DOCUMENTED = (EXIT_OK, EXIT_USAGE, EXIT_HOST, EXIT_INCOMPLETE, EXIT_INTERRUPTED)
"""Exit statuses after a fault. 1 means a defect, so it is not among them."""
TOLD = "told"
"""The file below a scenario's folder with what its command printed."""
_UNSTABLE = re.compile(r"\d{8}T\d{6}Z|\d{2,}|[0-9a-f]{16,}")


@dataclass(frozen=True)
class Scenario:
    """One command on a simulated host.

    `prepare` fills a new folder. `start` runs the command there, `again` what a user does next, in
    a forked child; both return the exit status. `acknowledged` returns what the command has told or
    stored for good; `wrong` returns sentences about what does not hold after the next start, given
    what was acknowledged. `expected` returns an unharmed execution's result, for the comparison.
    """

    name: str
    prepare: Callable[[Path], None]
    start: Callable[[Path], int]
    again: Callable[[Path], int]
    result: Callable[[Path], Any]
    acknowledged: Callable[[Path], Any]
    wrong: Callable[[Path, Any, Any], Iterator[str]]
    role: Callable[[int], str | None]
    faults: Callable[[Point], Iterator[str]] = faults_at
    extra_files: Sequence[str] = field(default=())
    """Patterns of files that an interrupted execution may leave for good."""
    is_copied: bool = True
    """Whether a prepared folder can be copied; else each execution prepares its own."""
    wrong_at_once: Callable[[Path, Any], Iterator[str]] | None = None
    """Checks an execution that met a fault and ended with success; `wrong` by default."""
    before: Callable[[Path], None] = lambda _: None
    """Called in the parent before each execution."""
    limits: Limits = DEFAULT


def own_role(pid: int) -> str | None:
    """Return `main` for a process that was forked and has not become another program."""
    return "main" if command_line(pid) == command_line(os.getpid()) else None


def tell(root: Path, command: Callable[[], int]) -> int:
    """Run a command with its output in a file; return its status, or 120 with a traceback."""
    with (root / TOLD).open("ab", buffering=0) as told:
        for descriptor in (1, 2):
            os.dup2(told.fileno(), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        return command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - what Python itself would print and end with
        sys.excepthook(*sys.exc_info())
        return 120
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def files_below(root: Path) -> Counter[str]:
    """Return the names of all files and folders below a folder, without what differs by time."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*"))
    return Counter(_UNSTABLE.sub("N", name) for name in found if name != TOLD)


def extra_files(root: Path, usual: Counter[str], allowed: Sequence[str]) -> list[str]:
    """Return the files that an unharmed execution does not leave."""
    patterns = [re.compile(text) for text in allowed]
    return sorted(
        name
        for name, count in files_below(root).items()
        if count > usual[name] and not any(pattern.fullmatch(name) for pattern in patterns)
    )


def hashes_of(root: Path, name: str) -> dict[str, str] | None:
    """Return the hashes of a file, or of all files in a folder; None if it does not exist."""
    top = root / name
    if not top.exists():
        return None
    files = (path for path in sorted([top, *top.rglob("*")]) if path.is_file())
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def wrong_result(what: str, before: Any, now: Any, expected: Any) -> Iterator[str]:
    """Yield what is wrong with a result that must be whole or absent.

    `before` is what had its name after the fault, `now` after the next start.
    """
    if before and before != expected:
        yield f"the {what} had its name and was not whole"
    if now != expected:
        yield f"the {what} differs from an unharmed execution's"


_OWN_FOLDERS = {"RUNS": "runs", "BUILD": "build", "LOGS": "log", "LOG": "log/defect.log", "OWN": ""}


def import_everything() -> None:
    """Import every module once, and keep what only costs CPU."""
    import pagecage
    from pagecage.hosts import agent_package

    for module in pkgutil.walk_packages(pagecage.__path__, "pagecage."):
        importlib.import_module(module.name)
    agent_package.agent_bytes = cache(agent_package.agent_bytes)
    agent_package.agent_bytes()


def modules_with(name: str) -> list[Any]:
    """Return the imported modules of pagecage that have a global of this name."""
    return [
        module
        for title, module in list(sys.modules.items())
        if title.startswith(("pagecage.", "analysis.")) and name in vars(module)
    ]


def replace_everywhere(name: str, value: Any) -> None:
    """Replace a global in every module that has it."""
    for module in modules_with(name):
        setattr(module, name, value)


def stay_in(root: Path) -> None:
    """Have this process write only below a folder."""
    for name, folder in _OWN_FOLDERS.items():
        replace_everywhere(name, root / folder)
    os.environ |= {
        "XDG_CACHE_HOME": str(root / "cache"),
        "HOME": str(root),
        "TMPDIR": str(root / "tmp"),
        "PATH": os.environ.get("FAULTS_PATH", "/usr/bin:/bin"),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "200",
    }
    import tempfile

    tempfile.tempdir = None
    os.chdir(root)


def pagecage(root: Path, *words: str) -> int:
    from pagecage.cli.main import main

    sys.argv = ["pagecage", *words]
    return tell(root, main)


def with_small_analysis() -> None:
    """Replace the analysis, whose imports take seconds."""
    small = ModuleType("analysis.results")
    vars(small).update(render=lambda *_: None, tables=lambda *_: "the tables\n")
    sys.modules["analysis.results"] = small
