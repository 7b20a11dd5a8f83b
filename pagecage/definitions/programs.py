"""The programs that an experiment may name, as the folders of workloads/ tell them."""

from __future__ import annotations

from pathlib import Path


def known_programs(top: Path) -> list[str]:
    """Names of what tools/build-workloads makes: crates as they are, twins with their language after a dash.

    A program in C is a folder with a main.c; where a crate has its name it is that crate's twin.
    """
    folder = top / "workloads"
    rust = {path.name for path in folder.glob("pc*") if (path / "src/main.rs").exists()}
    c = (f"{p.parent.name}-c" if p.parent.name in rust else p.parent.name for p in (folder / "c").glob("pc*/main.c"))
    python = (f"{path.stem}-python" for path in (folder / "python").glob("pc*.py"))
    java = (f"{path.stem.lower()}-java" for path in (folder / "java").glob("Pc*.java"))
    return sorted({*rust, *c, *python, *java})
