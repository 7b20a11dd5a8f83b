"""Bundles made to harm their reader: nothing in them is executed."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pagecage.bundle.pack import pack
from pagecage.bundle.unpack import unpack
from pagecage.cli.bundle import render
from pagecage.cli.known_definitions import remember_sections
from pagecage.errors import PagecageError
from tests.builders.pages import loads_of
from tests.fixtures.bundles import contents
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import FOLDER

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
LARGE_BYTES = 64 << 20
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {
            "cell_type": "code",
            "id": "a",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": "open('hacked', 'w'); raise SystemExit",
        }
    ],
}


def with_files(source: Path, target: Path, changed: dict[str, bytes]) -> None:
    """Write a bundle with other files, and with their sizes and hashes in its manifest."""
    files: dict[str, bytes] = {**contents(source), **changed}  # type: ignore[no-untyped-call]
    manifest = json.loads(files.pop("bundle.json"))
    manifest["files"] = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in files.items()
    ]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bundle.json", json.dumps(manifest))
        for name, data in files.items():
            archive.writestr(name, data)


def scripted(value: Any) -> Any:
    """Return a definition with a script behind every text that is shown as it is."""
    if isinstance(value, dict):
        return {
            key: f"{item} {SCRIPT}"
            if key in ("question", "says", "title", "note")
            else scripted(item)
            for key, item in value.items()
        }
    return [scripted(item) for item in value] if isinstance(value, list) else value


def test_no_code_of_a_bundle_runs_when_it_is_rendered(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "20261121T100000Z-constrained-random-vm")
    plan = json.loads((folder / "plan.json").read_text())
    plan["definition"] = scripted(plan["definition"])
    plan["size_reason"] = SCRIPT
    del plan["plan_sha256"]
    (folder / "plan.json").write_text(json.dumps(plan))
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for record in records:
        record["error"] = SCRIPT
        record["exit"]["stderr_tail"] = [SCRIPT]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "records.jsonl").write_text(text)
    pack(folder, tmp_path / "plain.zip", redacted=False)
    bad = tmp_path / "bad.zip"
    with_files(tmp_path / "plain.zip", bad, {"report.ipynb": json.dumps(NOTEBOOK).encode()})
    assert render(bad, out=tmp_path / "out") == 0
    page = (tmp_path / "out/report.html").read_text()
    assert "&lt;script&gt;alert(1)" in page, "the texts are shown"
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert loads_of(page) == []
    assert not list(tmp_path.rglob("hacked"))


def test_a_section_of_a_bundle_is_not_executed_even_if_it_was_accepted_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    sections = {"mine.py": "# %%\nopen('hacked', 'w')\n", "other.py": f"# {SCRIPT}"}
    remember_sections(sections)
    folder = build_run(
        tmp_path / "20261121T100000Z-constrained-random-vm", repeats=1, sections=sections
    )
    pack(folder, tmp_path / "plain.zip", redacted=False)
    assert render(tmp_path / "plain.zip", out=tmp_path / "out") == 0
    page = (tmp_path / "out/report.html").read_text()
    assert "<h2>mine.py was left out</h2>" in page
    assert "<script>alert" not in page
    assert not list(tmp_path.rglob("hacked"))


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    source = FOLDER / "smoke.pagecage.zip"
    bomb = tmp_path / "bomb.zip"
    with_files(source, bomb, {"trials/a/zeros": bytes(LARGE_BYTES)})
    with pytest.raises(PagecageError, match="times its size"):
        unpack(bomb, tmp_path / "out")
    assert not (tmp_path / "out").exists()
