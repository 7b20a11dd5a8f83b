"""The order of imports, and an agent that needs nothing installed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagecage.process import run
from tests.tree import ROOT, files

# A part imports only itself and parts of the lines above. The first line reads from left to right.
ORDER = (
    *(
        "version",
        "errors",
        "terminal",
        "units",
        "checkout",
        "process",
        "whole_files",
        "ansible",
        "report",
    ),
    "model",
    "linux",
    "verdicts agent eviction",
    "definitions importers exporters bundle memory_search",
    "cloud",
    "hosts verify",
    "runner",
    "planning fleet",
    "cli",
)
AGENT_ORDER = (
    "data_files file_trees protocol settings volume_server",
    "drivers facts mounted_volume",
    "collectors",
    "limits",
    "host_session",
    "trial_run shell",
    "responses storage",
    "caging",
    "programs",
    "cache_state prepared_data preview trial_collectors",
    "phases",
    "session",
    "main",
)
LINUX_ORDER = (
    "procfs",
    "block_device processes",
    "cgroup child_processes page_cache",
    "cgroup_files systemd",
    "cgroupfs",
    "trial_processes",
)
ANALYSIS_ORDER = (
    "stats",
    "formatting",
    "data",
    "cells",
    "comparison volumes",
    "articles memory sweep",
    "figures exchange",
    "strip",
    "run_frames",
    "views",
    "execution",
    "fleet history site notebooks __main__",
    "results",
)
LAYERS = {
    "pagecage": ORDER,
    "pagecage.linux": LINUX_ORDER,
    "pagecage.agent": AGENT_ORDER,
    "analysis": ANALYSIS_ORDER,
}
AGENT_MAY = {"errors", "units", "process", "whole_files", "model", "linux", "agent"}
ANALYSIS_MAY = {
    *("errors", "units", "checkout", "process", "report", "model", "verdicts", "bundle"),
    *("memory_search", "whole_files"),
}
# Installed packages that a part of pagecage may import; the longest matching name counts.
INSTALLED_MAY = {
    "pagecage": {"rich", "cyclopts"},
    "pagecage.definitions": {"pydantic", "pydantic_core"},
    "pagecage.cloud": {"pydantic", "pydantic_core"},
    "pagecage.importers": {"yaml"},
    "pagecage.exporters": {"yaml"},
    "pagecage.hosts.vm": {"qemu", "rich"},
    "pagecage.agent": set[str](),
    "pagecage.model": set[str](),
}
MAY_START = {"pagecage.process", "pagecage.agent.drivers.supervise"}
"""The supervisor runs alone, without the rest of pagecage."""
LATE = ("agent", "bundle", "definitions", "hosts", "model.record", "planning", "runner", "verdicts")
"""Parts of pagecage that are slow to import and that only some verbs need."""
STARTS_PROCESSES = {
    "system",
    "popen",
    "fork",
    "forkpty",
    "posix_spawn",
    "posix_spawnp",
    "startfile",
}


@dataclass(frozen=True)
class Import:
    """One import: the importing module, its line, the imported name, and if a function has it."""

    by: str
    line: int
    name: str
    is_late: bool = False


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    by = module_name(path, root)
    tree = ast.parse(path.read_text(), str(path))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    late = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                Import(by, node.lineno, alias.name, id(node) in late) for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield Import(by, node.lineno, f"{by.split('.')[0]}.<relative>")
        elif isinstance(node, ast.ImportFrom) and node.module == "pagecage":
            yield from (Import(by, node.lineno, f"pagecage.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(by, node.lineno, node.module or "", id(node) in late)


def all_imports(root: Path) -> list[Import]:
    paths = [p for package in ("pagecage", "analysis") for p in files(root / package, ".py")]
    return [found for path in paths for found in imports_of(path, root)]


def layer_of(part: str, order: Sequence[str]) -> int | None:
    """Return the line of `order` that has a part, or None."""
    return next((line for line, parts in enumerate(order) if part in parts.split()), None)


def part_below(name: str, package: str) -> str:
    """Return the module or folder directly below `package` in a dotted name; "" for none."""
    return name.removeprefix(f"{package}.").split(".")[0] if name.startswith(f"{package}.") else ""


def against_order(found: Import) -> str | None:
    """Return why an import between parts of a package breaks the package's order, or None."""
    for package, order in LAYERS.items():
        importer, imported = part_below(found.by, package), part_below(found.name, package)
        if not importer or not imported or importer == imported:
            continue
        above, below = (layer_of(part, order) for part in (imported, importer))
        if above is None or below is None:
            unplaced = importer if below is None else imported
            return f"{unplaced} has no place in the order of {package} yet"
        if above >= below:
            return f"{imported} does not stand above {importer} in the order of {package}"
    return None


def against_agent(found: Import) -> str | None:
    """Return why an import by the agent, which is copied to hosts with few other parts, breaks the
    rule, or None.
    """
    imported = part_below(found.name, "pagecage")
    if part_below(found.by, "pagecage") != "agent" or not imported or imported in AGENT_MAY:
        return None
    return f"the agent may import only {' '.join(sorted(AGENT_MAY))}"


def against_analysis(found: Import) -> str | None:
    """Return why an import between harness and analysis breaks the rule, or None."""
    top = found.name.split(".")[0]
    if found.by.startswith("pagecage") and top == "analysis":
        is_command_line = part_below(found.by, "pagecage") == "cli"
        return None if is_command_line and found.is_late else "only verbs import the analysis, late"
    package = found.by.split(".")[0]
    if package in {"pagecage", "analysis"} and top == "reliability":
        return f"nothing in {package} imports reliability"
    may_be_imported = part_below(found.name, "pagecage") in ANALYSIS_MAY
    if found.by.startswith("analysis") and top == "pagecage" and not may_be_imported:
        return f"the analysis may import only {' '.join(sorted(ANALYSIS_MAY))} of pagecage"
    return None


def against_installed(found: Import) -> str | None:
    """Return why an import of an installed package breaks the rule, or None."""
    top = found.name.split(".")[0]
    own = {"pagecage", "analysis", "reliability"}
    if not found.by.startswith("pagecage") or top in {*sys.stdlib_module_names, *own}:
        return None
    part = max((name for name in INSTALLED_MAY if f"{found.by}.".startswith(f"{name}.")), key=len)
    return None if top in INSTALLED_MAY[part] else f"{part} may not need {top} installed"


def against_process(found: Import) -> str | None:
    """Return why an import of something that starts processes breaks the rule, or None."""
    starts = found.name.split(".")[0] in {"subprocess", "multiprocessing", "pty"}
    if starts and found.by != "pagecage.process":
        return "only pagecage/process.py starts processes"
    return None


RULES = (against_order, against_agent, against_analysis, against_installed, against_process)


def violations(root: Path) -> list[str]:
    """Return every import that breaks a rule, as `module:line imports name: reason`."""
    pairs = ((found, rule(found)) for found in all_imports(root) for rule in RULES)
    return [f"{found.by}:{found.line} imports {found.name}: {why}" for found, why in pairs if why]


def process_starts(root: Path) -> list[str]:
    """Return every call that starts a process without pagecage/process.py."""
    found = []
    for path in [*files(root / "pagecage", ".py"), *files(root / "analysis", ".py")]:
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if not isinstance(node, ast.Attribute) or module_name(path, root) in MAY_START:
                continue
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            by_os = owner == "os" and node.attr in STARTS_PROCESSES
            if by_os or node.attr.startswith("create_subprocess_"):
                found.append(f"{module_name(path, root)}:{node.lineno} {owner}.{node.attr}")
    return found


def test_imports_go_one_way() -> None:
    assert all_imports(ROOT), "no imports found: is the tree where this test thinks?"
    assert not violations(ROOT), "\n" + "\n".join(violations(ROOT))


def test_processes_start_in_one_place() -> None:
    assert not process_starts(ROOT), "\n" + "\n".join(process_starts(ROOT))


def test_every_folder_of_modules_is_a_package() -> None:
    """A folder without its package file is imported from a checkout, and not from an archive."""
    packages = (*LAYERS, "reliability")
    paths = [p for package in packages for p in files(ROOT / package.replace(".", "/"), ".py")]
    bare = {path.parent for path in paths if not (path.parent / "__init__.py").exists()}
    bare -= {path for path in bare if path.is_relative_to(ROOT / "analysis/notebooks")}
    assert bare <= {ROOT / "analysis/theme"}, bare


def test_package_files_are_empty() -> None:
    """That of the analysis alone has what a notebook needs, imported when it is used."""
    full = [
        str(p.relative_to(ROOT))
        for p in files(ROOT, ".py")
        if p.name == "__init__.py" and p.stat().st_size and p.parent != ROOT / "analysis"
    ]
    assert not full, f"these should be empty: {full}"


TOO_LOW = "does not stand above"


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("pagecage/units.py", "from pagecage.model.cage import Cage", TOO_LOW),
        ("pagecage/verdicts/limits.py", "from pagecage.planning.plan import Plan", TOO_LOW),
        ("pagecage/agent/run.py", "import pydantic", "installed"),
        ("pagecage/agent/run.py", "from pagecage.report.model import table", "agent may import"),
        ("pagecage/agent/run.py", "from pagecage import report", "agent may import"),
        ("pagecage/cli.py", "from analysis.views.evidence_tables import table", "only verbs"),
        ("pagecage/fleet.py", "def f():\n    from analysis import results", "only verbs"),
        ("pagecage/cli.py", "from reliability.page import page", "nothing in pagecage"),
        ("analysis/data/load.py", "from reliability.page import page", "nothing in analysis"),
        ("pagecage/cli.py", "import pandas", "installed"),
        ("pagecage/cli.py", "import pydantic", "installed"),
        ("pagecage/cli.py", "def f():\n    import subprocess", "process.py"),
        ("pagecage/model/cage.py", "from .units import MIB", "no place"),
        ("pagecage/new.py", "from pagecage.units import MIB", "no place"),
        ("analysis/data/load.py", "from pagecage.runner.runs import run", "analysis may import"),
        ("analysis/data/load.py", "from analysis.views.html import page", TOO_LOW),
        ("analysis/articles/sides.py", "from analysis.figures.style import Look", TOO_LOW),
        ("analysis/data/load.py", "from subprocess import run", "process.py"),
    ],
)
def test_a_breach_is_seen(tmp_path: Path, module: str, line: str, why: str) -> None:
    for package in ("pagecage", "analysis"):
        (tmp_path / package).mkdir()
    (tmp_path / module).parent.mkdir(exist_ok=True)
    (tmp_path / module).write_text(line + "\n")
    assert [why in v for v in violations(tmp_path)] == [True]


def test_a_process_started_elsewhere_is_seen(tmp_path: Path) -> None:
    for package in ("pagecage", "analysis"):
        (tmp_path / package).mkdir()
    (tmp_path / "pagecage" / "cli.py").write_text("import os\nos.system('true')\n")
    assert process_starts(tmp_path) == ["pagecage.cli:2 os.system"]


def test_the_command_line_starts_without_what_only_some_verbs_need() -> None:
    program = "import sys, pagecage.cli.main; print(*sys.modules)"
    loaded = set(run([sys.executable, "-c", program], cwd=ROOT).stdout.split())
    late = {"pydantic", "qemu", "rich.console", "analysis", *(f"pagecage.{part}" for part in LATE)}
    assert not {name for name in loaded if any(f"{name}.".startswith(f"{part}.") for part in late)}
    assert "pagecage.cli.failures" in loaded
