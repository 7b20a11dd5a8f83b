"""The command line in this process, for a scenario's folder and a host that a test gives."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from reliability.faults.scenario import tell

_OWN_FOLDERS = {"RUNS": "runs", "BUILD": "build", "LOGS": "log", "LOG": "log/defect.log", "OWN": ""}
_ANALYSIS = 'printf "the tables\\n"; for one; do last=$one; done'


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


def analysed(argv: Sequence[str | Path], **given: Any) -> Any:
    """Run a small program instead of `python -m analysis`, whose imports take seconds."""
    from pagecage.process import run

    return run(["sh", "-c", _ANALYSIS, "sh", *argv[3:]], **given)


def with_small_analysis() -> None:
    import pagecage.cli.analyse

    pagecage.cli.analyse.run = partial(analysed)  # type: ignore[attr-defined]
