"""The programs that an experiment may name, as the folders of workloads/ tell them."""

from __future__ import annotations

from pathlib import Path


def known_programs(top: Path) -> list[str]:
    """Names of what tools/build-workloads makes: crates as they are, the others with their language after a dash."""
    folder = top / "workloads"
    rust = (path.name for path in folder.glob("pc*") if (path / "src/main.rs").exists())
    c = (f"{path.name}-c" for path in (folder / "c").glob("*") if any(path.glob("*.c")))
    python = (f"{path.stem}-python" for path in (folder / "python").glob("pc*.py"))
    java = (f"{path.stem.lower()}-java" for path in (folder / "java").glob("Pc*.java"))
    return sorted({*rust, *c, *python, *java})
