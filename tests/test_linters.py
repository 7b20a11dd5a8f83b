"""Every linter as an ordinary test, and each on a file that it must refuse. A missing tool is a
failure.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagecage.process import run
from tests.cargo import cargo
from tests.tree import ROOT, files, python_scripts, shell_scripts

BIN = Path(sys.prefix) / "bin"
ANSIBLE_BIN = ROOT / ".venv-ansible" / "bin"
ANSIBLE_LINT = (ANSIBLE_BIN / "ansible-lint", "--offline", "--profile", "production")
MYPY_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagecage/mypy"
"""Shared by all checkouts: mypy compares contents, so a new clone is checked in two seconds."""
UTF8 = {"LC_ALL": "C.UTF-8"}  # ansible-lint refuses any other locale


def refused(argv: Sequence[str | Path], cwd: Path = ROOT) -> str:
    """Return what a linter reports about its files; empty if it accepts them."""
    paths = ":".join(
        map(str, (BIN, ANSIBLE_BIN, os.environ["PATH"], Path.home() / ".cargo" / "bin"))
    )
    done = run(
        argv,
        check=False,
        timeout_seconds=600,
        cwd=cwd,
        env={**UTF8, "PATH": paths, "NO_COLOR": "1"},
    )
    return "" if done.ok else f"{done.stdout}{done.stderr}\nexit status {done.status}"


def check(argv: Sequence[str | Path]) -> None:
    """Fail with the linter's report and nothing else."""
    printed = refused(argv)
    if printed:
        pytest.fail(printed, pytrace=False)


def schema_pairs(root: Path) -> list[tuple[Path, list[Path]]]:
    """Return each schema with its files."""
    schemas = root / "docs" / "schema"
    kinds = (("experiment", "experiments"), ("cage", "cgroups"))
    return [
        (schemas / f"{kind}.schema.json", sorted((root / folder).glob("*.toml")))
        for kind, folder in kinds
    ]


def test_ruff() -> None:
    check([BIN / "ruff", "check", "."])


def test_ruff_format() -> None:
    check([BIN / "ruff", "format", "--check", "."])


def test_mypy() -> None:
    scripts = python_scripts(ROOT)
    folders = ("pagecage", "analysis", "reliability", "tests")
    cache = ("--cache-dir", MYPY_CACHE)
    check([BIN / "mypy", *cache, "--scripts-are-modules", *scripts, *folders])


def test_shellcheck() -> None:
    check([BIN / "shellcheck", "-x", *shell_scripts(ROOT)])


def test_yamllint() -> None:
    check([BIN / "yamllint", "--strict", "."])


def test_ansible_lint() -> None:
    """All files except Molecule's. Roles are passed as files, so that only playbooks have syntax
    checks.
    """
    check(
        [
            *ANSIBLE_LINT,
            *(path for path in files(ROOT / "ansible", ".yml") if "molecule" not in path.parts),
        ]
    )


@pytest.mark.long
def test_ansible_lint_of_each_role_and_of_molecule() -> None:
    check([*ANSIBLE_LINT, "ansible"])


def test_codespell() -> None:
    check([BIN / "codespell"])


def test_hadolint() -> None:
    recipes = [
        p
        for p in files(ROOT / "containers")
        if p.name.lower().endswith(("containerfile", "dockerfile"))
    ]
    if recipes:
        check([BIN / "hadolint", *recipes])


def test_cargo_fmt() -> None:
    check(["cargo", "fmt", "--all", "--check"])


def test_cargo_clippy() -> None:
    check([*cargo("clippy"), "--all-targets", "--", "-D", "warnings"])


@pytest.mark.parametrize(
    ("schema", "definitions"), schema_pairs(ROOT), ids=["experiments", "cages"]
)
def test_definitions_follow_their_schema(schema: Path, definitions: list[Path]) -> None:
    assert definitions
    check([BIN / "check-jsonschema", "--schemafile", schema, *definitions])


def test_locks_answer_their_requests(tmp_path: Path) -> None:
    """Each *.txt is pinned and hashed throughout, names no index, and has every package of its
    *.in.
    """
    for request in files(ROOT / "requirements", ".in"):
        lock = request.with_suffix(".txt").read_text()
        pinned = {line.split("==")[0] for line in lock.splitlines() if line[:1].isalnum()}
        lines = [line.split("#")[0].strip() for line in request.read_text().splitlines()]
        asked = {
            line.split(">")[0].split("=")[0].replace(".", "-")
            for line in lines
            if line[:1].isalpha()
        }
        assert asked
        assert asked <= pinned, (
            f"{request.name}: `make lock` was not run after {sorted(asked - pinned)}"
        )
        assert "://" not in lock
        assert "index" not in [word for line in lock.splitlines() for word in line.split()]
        assert lock.count("==") <= lock.count("--hash=sha256:")


# --- each linter refuses a bad file ---------------------------------------------------------


@dataclass(frozen=True)
class Breach:
    """A file that a linter must refuse."""

    linter: str
    name: str
    text: str
    argv: tuple[str | Path, ...]


CLIPPY = ("--crate-type=lib", "-Dwarnings", "-Dclippy::all")
CONFIG = ("--config", ROOT / "pyproject.toml")
TASK = "---\n- hosts: all\n  tasks:\n    - shell: echo\n"
BREACHES = [
    Breach("ruff", "a.py", "import os\n", (BIN / "ruff", "check", *CONFIG, "a.py")),
    Breach(
        "ruff format", "a.py", "x = 'a'\n", (BIN / "ruff", "format", "--check", *CONFIG, "a.py")
    ),
    Breach(
        "mypy",
        "a.py",
        "def f(x):\n    return x\n",
        (BIN / "mypy", "--config-file", CONFIG[1], "a.py"),
    ),
    Breach("shellcheck", "a.sh", "#!/bin/sh\necho $1\n", (BIN / "shellcheck", "a.sh")),
    Breach(
        "yamllint", "a.yml", "---\na: 0644\n", (BIN / "yamllint", "-c", ROOT / ".yamllint", "a.yml")
    ),
    Breach("codespell", "a.md", "recieve\n", (BIN / "codespell", "--toml", CONFIG[1], "a.md")),
    Breach("hadolint", "Dockerfile", "FROM debian\nRUN cd /\n", (BIN / "hadolint", "Dockerfile")),
    Breach("rustfmt", "a.rs", "fn a( ) {}\n", ("rustfmt", "--check", "a.rs")),
    Breach(
        "clippy", "a.rs", "pub fn a() -> u8 { return 1; }\n", ("clippy-driver", *CLIPPY, "a.rs")
    ),
    pytest.param(
        Breach("ansible-lint", "a.yml", TASK, (*ANSIBLE_LINT, "a.yml")), marks=pytest.mark.long
    ),
]


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.linter)
def test_a_breach_is_seen(tmp_path: Path, breach: Breach) -> None:
    (tmp_path / breach.name).write_text(breach.text)
    printed = refused(breach.argv, cwd=tmp_path)
    assert breach.name in printed, printed


@pytest.mark.parametrize(
    ("schema", "definitions"), schema_pairs(ROOT), ids=["experiments", "cages"]
)
def test_an_unknown_key_is_seen(tmp_path: Path, schema: Path, definitions: list[Path]) -> None:
    wrong = tmp_path / definitions[0].name
    wrong.write_text("no_such_key = 1\n" + definitions[0].read_text())
    assert "no_such_key" in refused([BIN / "check-jsonschema", "--schemafile", schema, wrong])
