"""The plugin of simulated volumes is loaded only where the C library is new enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.agent import volume_server
from pagecage.agent.volume_server import glibc_version, require_c_library
from pagecage.errors import HostError


def plugin(folder: Path, *symbols: str) -> Path:
    path = folder / "libpcvolume.so"
    path.write_bytes(b"\x7fELF\0" + b"\0".join(symbol.encode() for symbol in symbols) + b"\0")
    return path


def test_an_old_glibc_is_refused_with_both_versions(tmp_path: Path) -> None:
    with pytest.raises(HostError) as refusal:
        require_c_library(plugin(tmp_path, "GLIBC_2.2.5", "GLIBC_2.100", "GLIBC_2.34"))
    major, minor = glibc_version() or (0, 0)
    assert refusal.value.message == (
        f"libpcvolume.so needs glibc 2.100 or newer, and this machine has glibc {major}.{minor}"
    )


def test_this_machine_loads_what_it_can(tmp_path: Path) -> None:
    require_c_library(plugin(tmp_path, "GLIBC_2.2.5", "GLIBC_2.17"))


def test_musl_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise ValueError(f"unrecognized configuration name {name}")

    monkeypatch.setattr(volume_server.os, "confstr", refuse)
    with pytest.raises(HostError, match="a C library other than glibc"):
        require_c_library(plugin(tmp_path, "GLIBC_2.17"))
