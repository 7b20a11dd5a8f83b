"""Scenarios `bundle` and `render`: an archive, or the run in it, is whole or absent."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagecage.bundle.pack import pack
from reliability.faults import runs
from reliability.faults.scenario import Scenario, hashes_of, own_role, pagecage, wrong_result

_ARCHIVE = "out.pagecage.zip"
_FOLDER = "unpacked"


def prepare(root: Path) -> None:
    runs.prepare_resumed(root)
    folder = runs.newest(root)
    assert folder is not None
    (folder.path / "report.ipynb").write_text("{}")
    (root / "told").unlink()


def bundle(root: Path) -> int:
    runs.arrange(root)
    return pagecage(root, "export", runs.NAME, "--out", _ARCHIVE)


def again(root: Path) -> int:
    return 0 if (root / _ARCHIVE).exists() else bundle(root)


def archive(root: Path) -> dict[str, str] | None:
    """Return the hash of what has the archive's name, whole or not; None without it."""
    return hashes_of(root, _ARCHIVE)


def wrong(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("archive", before, archive(root), expected)
    if archive(root) == expected and zipfile.ZipFile(root / _ARCHIVE).testzip():
        yield "the archive is damaged"


_EXTRA = (r"log(/.*)?", r"tmp/[a-z0-9_N]+")
BUNDLE = Scenario(
    "bundle", prepare, bundle, again, archive, archive, wrong, own_role, extra_files=_EXTRA
)


def prepare_archive(root: Path) -> None:
    prepare(root)
    folder = runs.newest(root)
    assert folder is not None
    pack(folder.path, root / _ARCHIVE)


def render(root: Path) -> int:
    runs.arrange(root)
    return pagecage(root, "import", _ARCHIVE, "--out", _FOLDER)


def render_again(root: Path) -> int:
    return 0 if (root / _FOLDER).exists() else render(root)


def unpacked(root: Path) -> dict[str, str] | None:
    """Return the hashes of the unpacked files; None without the folder."""
    return hashes_of(root, _FOLDER)


def wrongly_unpacked(root: Path, before: Any, expected: dict[str, str]) -> Iterator[str]:
    yield from wrong_result("unpacked run", before, unpacked(root), expected)


RENDER = Scenario(
    *("render", prepare_archive, render, render_again, unpacked, unpacked, wrongly_unpacked),
    *(own_role,),
    extra_files=_EXTRA,
)
