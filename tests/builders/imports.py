"""Files that users import as cages."""

from __future__ import annotations

from pathlib import Path

from pagecage.importers.formats import NamedText, import_files
from pagecage.importers.result import ImportResult, Rounding, Selection

FOLDER = Path(__file__).parent.parent / "fixtures/imports"


def read(text: str, *picks: str, digits: int = 2, memory_qos: float | None = None) -> ImportResult:
    return import_files([NamedText("it", text)], Selection(picks, memory_qos), Rounding(digits))


def fixture(name: str, *picks: str) -> ImportResult:
    return read((FOLDER / name).read_text(), *picks)


def read_files(
    *texts: str, seconds: float | None = None, is_described: bool = False
) -> ImportResult:
    """Read several files, named a, b and so on."""
    files = [NamedText(name, text) for name, text in zip("abcdef", texts, strict=False)]
    return import_files(files, Selection(), Rounding(), seconds, is_described=is_described)
