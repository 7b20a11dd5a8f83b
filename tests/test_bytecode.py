"""Compiled modules in the environment: starts and reports stay fast if PYTHONDONTWRITEBYTECODE is
set.
"""

from __future__ import annotations

import sys

import pytest

from pagecage.process import run
from tests.tree import ROOT

LACKING = """
import sys, sysconfig
from importlib.util import cache_from_source
from pathlib import Path
import {modules}
inside = sysconfig.get_path("purelib")
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
ours = [file for file in files if file.startswith(inside) and file.endswith(".py")]
print(len(ours), *(file for file in ours if not Path(cache_from_source(file)).exists()))
"""


@pytest.mark.parametrize(
    ("modules", "fewest"),
    [
        (
            (
                "pagecage.cli.run, pagecage.agent.preview, pagecage.definitions.reader,"
                " pagecage.hosts.vm.vm_host"
            ),
            50,
        ),
        (
            (
                "analysis.results, analysis.views.render, analysis.views.notebook, jinja2,"
                " markdown_it"
            ),
            400,
        ),
    ],
)
def test_what_is_imported_is_compiled(modules: str, fewest: int) -> None:
    done = run(
        [sys.executable, "-c", LACKING.format(modules=modules)],
        cwd=ROOT,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )
    number, *lacking = done.stdout.split()
    assert int(number) >= fewest
    assert not lacking, "tools/bootstrap compiles them: make setup"
