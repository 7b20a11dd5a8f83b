"""The contents of a wheel for this machine's architecture and for the other."""

from __future__ import annotations

import importlib.util
import platform
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.tree import ROOT

ELF = {"x86_64": 62, "aarch64": 183}
PROGRAMS = ("bin/pcgen", "bin/pcprobe", "bin/pcgate", "lib/libpcvolume.so", "lib/pcvolume-fuse")


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook. Its base class is hatchling's, which only pip's own environment has."""
    interface = ModuleType("hatchling.builders.hooks.plugin.interface")
    vars(interface)["BuildHookInterface"] = object
    sys.modules.setdefault(interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("wheel", ROOT / "tools/wheel_contents.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["wheel"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=ELF)
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("PAGECAGE_MACHINE", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    return str(request.param)


def compiled(top: Path, folder: str, machine: str, *names: str) -> None:
    head = b"\x7fELF" + bytes(14) + ELF[machine].to_bytes(2, "little")
    for name in names:
        (top / "build" / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (top / "build" / folder / name).write_bytes(head)


def test_the_wheel_is_for_the_named_machine(
    hook: ModuleType, here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other,) = set(ELF) - {here}
    assert hook.target_machine() == here
    monkeypatch.setenv("PAGECAGE_MACHINE", other)
    assert hook.target_machine() == other
    assert hook.compiled_folder(tmp_path, here) == tmp_path / "build/host"
    assert hook.compiled_folder(tmp_path, other) == tmp_path / "build" / other


def test_a_wheel_has_programs_of_its_machine_only(
    hook: ModuleType, here: str, tmp_path: Path
) -> None:
    (other,) = set(ELF) - {here}
    compiled(tmp_path, "host", here, *PROGRAMS)
    compiled(tmp_path, other, other, *PROGRAMS)
    assert hook.refused(tmp_path, here) is None
    assert hook.refused(tmp_path, other) is None
    compiled(tmp_path, other, here, "bin/pcgate")
    assert "bin/pcgate was compiled for another processor" in hook.refused(tmp_path, other)


def test_a_wheel_without_rust_names_what_it_lacks(
    hook: ModuleType, here: str, tmp_path: Path
) -> None:
    """For this machine it is refused, for the other it is made with a note."""
    (other,) = set(ELF) - {here}
    compiled(tmp_path, "host", here, "bin/pcgate")
    compiled(tmp_path, other, other, "bin/pcgate")
    lacks = "bin/pcgen, bin/pcprobe, lib/libpcvolume.so, lib/pcvolume-fuse"
    assert hook.refused(tmp_path, here) == f"build/host lacks {lacks}"
    assert hook.refused(tmp_path, other) is None
    assert hook.without(hook.compiled_folder(tmp_path, other)) == lacks


def test_the_analysis_is_a_package_of_the_wheel_and_no_part_of_its_data(hook: ModuleType) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    assert "analysis" in settings["build"]["targets"]["wheel"]["packages"]
    assert not [path for path in hook.contents(ROOT) if path.is_relative_to(ROOT / "analysis")]


def test_nothing_compiled_is_no_wheel(hook: ModuleType, here: str, tmp_path: Path) -> None:
    (other,) = set(ELF) - {here}
    assert hook.refused(tmp_path, other) == f"the programs for {other} are not built"
    assert hook.refused(tmp_path, "riscv64") == "there is no wheel for riscv64"
