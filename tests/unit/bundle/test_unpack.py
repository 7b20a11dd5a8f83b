"""Bundles that harm their reader, were tampered with, cut off, or never were any: a sentence, and
nothing that stays behind or is executed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import stat
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from pagecage.bundle.pack import is_allowed, pack
from pagecage.bundle.unpack import unpack
from pagecage.cli.export import import_
from pagecage.definitions.known import remember_sections
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.units import MIB
from tests.builders.pages import loads_of
from tests.fixtures.bundles import contents, run, written
from tests.fixtures.hostile_bundles import NOTEBOOK, SCRIPT, scripted, with_files
from tests.fixtures.runs import Change, build_run
from tests.fixtures.small_runs import FOLDER

__all__ = ["run", "written"]


def rewritten(source: TODO, target: TODO, change: Change) -> None:
    """The bundle with its entries changed: {name: bytes} and the manifest go through `change`."""
    files = contents(source)
    manifest = json.loads(files.pop("bundle.json"))
    files, manifest = change(files, manifest)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("bundle.json", json.dumps(manifest))
        for name, data in files.items():
            archive.writestr(name, data)


def added(path: TODO, data: TODO = b"x") -> TODO:
    def change(files: TODO, manifest: TODO) -> TODO:
        told = {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return {**files, path: data}, {**manifest, "files": [*manifest["files"], told]}

    return change


CHANGES = {
    "has bundle version 2": lambda files, manifest: (files, {**manifest, "bundle_version": 2}),
    "lacks required keys": lambda files, manifest: (files, {**manifest, "bundle_version": "one"}),
    "its bundle.json lacks": lambda files, manifest: (files, {**manifest, "files": [{"path": 7}]}),
    "contains other files": lambda files, manifest: ({**files, "trials/a/more": b""}, manifest),
    "contains other files than": lambda files, manifest: (
        {path: text for path, text in files.items() if path != "plan.json"},
        manifest,
    ),
    "'../evil'": added("../evil"),
    "'/etc/evil'": added("/etc/evil"),
    "trials/../../evil": added("trials/../../evil"),
    "'trials/a/..'": added("trials/a/.."),
    "evil.py": added("facts/evil.py"),
    "C:": added("C:/evil"),
    "does not match its hash": lambda files, manifest: (
        {**files, "plan.json": files["plan.json"] + b" "},
        manifest,
    ),
    "plan.json does not match": lambda files, manifest: (
        {**files, "plan.json": files["plan.json"][::-1]},
        manifest,
    ),
    "lacks records.jsonl": lambda files, manifest: (
        {k: v for k, v in files.items() if k != "records.jsonl"},
        {
            **manifest,
            "files": [file for file in manifest["files"] if file["path"] != "records.jsonl"],
        },
    ),
    "times its size": lambda files, manifest: (
        files,
        {**manifest, "files": [{**file, "bytes": 10**15} for file in manifest["files"]]},
    ),
}


@pytest.mark.parametrize("says", CHANGES)
def test_a_bundle_that_was_tampered_with_is_refused(run: TODO, tmp_path: Path, says: str) -> None:
    pack(run, tmp_path / "good.zip")
    rewritten(tmp_path / "good.zip", tmp_path / "bad.zip", CHANGES[says])
    refused(tmp_path / "bad.zip", tmp_path, says)


def refused(path: TODO, top: TODO, says: str = "") -> None:
    """A sentence, and nothing that stays behind."""
    before = sorted(top.rglob("*"))
    with pytest.raises(PagecageError) as error:
        import_(path, out=top / "out")
    assert says in error.value.message
    assert (error.value.exit_code, "\n" in error.value.message) == (2, False)
    assert sorted(top.rglob("*")) == before


def test_a_file_given_twice_and_a_link_are_refused(run: TODO, tmp_path: Path) -> None:
    for name, kind in (("twice", 0), ("link", stat.S_IFLNK | 0o777)):
        pack(run, tmp_path / f"{name}.zip", redacted=False)
        with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / f"{name}.zip", "a") as archive:
            warnings.simplefilter("ignore")
            entry = zipfile.ZipInfo("plan.json" if name == "twice" else "trials/a/link")
            entry.external_attr = kind << 16
            archive.writestr(entry, "/etc/passwd")
    refused(tmp_path / "twice.zip", tmp_path, "contains other files")
    refused(tmp_path / "link.zip", tmp_path, "not a regular file")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.9999])
def test_a_bundle_that_was_cut_off_is_refused(run: TODO, tmp_path: Path, share: float) -> None:
    pack(run, tmp_path / "good.zip")
    data = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "bad.zip").write_bytes(data[: int(share * len(data))])
    refused(tmp_path / "bad.zip", tmp_path, "is damaged or not a bundle")


def test_a_bundle_with_any_byte_changed_is_refused_or_the_same(run: TODO, tmp_path: Path) -> None:
    pack(run, tmp_path / "good.zip")
    data = bytearray((tmp_path / "good.zip").read_bytes())
    good = contents(tmp_path / "good.zip")
    for place in range(0, len(data), len(data) // 150):
        changed = bytearray(data)
        changed[place] ^= 0x5A
        (tmp_path / "bad.zip").write_bytes(changed)
        folder = tmp_path / f"out{place}"
        try:
            unpack(tmp_path / "bad.zip", folder)
        except PagecageError:
            continue
        assert all(
            (folder / name).read_bytes() == good[name] for name in good if name != "bundle.json"
        )


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("hello")
    refused(tmp_path / "text.zip", tmp_path, "is damaged or not a bundle")
    refused(tmp_path / "nothing.zip", tmp_path, "cannot be read")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    refused(tmp_path / "other.zip", tmp_path, "not a bundle")


def test_a_report_that_fails_leaves_no_folder(run: TODO, tmp_path: Path) -> None:
    record = json.loads((run / "records.jsonl").read_text().splitlines()[0])
    (run / "records.jsonl").write_text(json.dumps({**record, "experiment": "other"}) + "\n")
    pack(run, tmp_path / "given.zip")
    refused(tmp_path / "given.zip", tmp_path, "mixes experiments")


def test_a_folder_that_is_there_is_left_alone(run: TODO, tmp_path: Path) -> None:
    pack(run, tmp_path / "given.zip")
    (tmp_path / "out").mkdir()
    refused(tmp_path / "given.zip", tmp_path, "already exists")


@pytest.mark.parametrize(
    "path", ["plan.json", "facts/b-1.json", "trials/r1_a.1/sar.json", "report.ipynb"]
)
def test_what_a_run_has_is_allowed(path: str) -> None:
    assert is_allowed(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/plan.json",
        "a/plan.json",
        "facts/.json",
        "facts/../x.json",
        "trials/a/b/c",
        "trials\\a\\b",
        "trials/.a/b",
        "plan.json\n",
        "report.html",
        "trials/a/",
        "facts/a.json.py",
    ],
)
def test_what_a_run_has_not_is_not(path: str) -> None:
    assert not is_allowed(path)


LARGE_BYTES = 64 << 20


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
    assert import_(bad, out=tmp_path / "out") == 0
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
    assert import_(tmp_path / "plain.zip", out=tmp_path / "out") == 0
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


@pytest.mark.parametrize("size", [-(10**12), 1.5, "1", None])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: object) -> None:
    """A negative one would make room for another file in the sum of all."""
    files = contents(FOLDER / "smoke.pagecage.zip")  # type: ignore[no-untyped-call]
    manifest = json.loads(files["bundle.json"])
    manifest["files"][0]["bytes"] = size
    bad = tmp_path / "bad.zip"
    with_files(FOLDER / "smoke.pagecage.zip", bad, {}, files=manifest["files"])
    with pytest.raises(PagecageError, match="lacks required keys"):
        unpack(bad, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_bytes_that_are_unpacked_are_counted_not_those_declared(tmp_path: Path) -> None:
    """The archive's headers and the manifest declare small files, and the data are large."""
    bomb = tmp_path / "bomb.zip"
    zeros = bytes(LARGE_BYTES)
    with_files(FOLDER / "smoke.pagecage.zip", bomb, {"trials/a/zeros": zeros})
    size = struct.pack("<I", LARGE_BYTES)
    bomb.write_bytes(bomb.read_bytes().replace(size, struct.pack("<I", 1000)))
    files = json.loads(contents(FOLDER / "smoke.pagecage.zip")["bundle.json"])["files"]  # type: ignore[no-untyped-call]
    digest = hashlib.sha256(zeros).hexdigest()
    files.append({"path": "trials/a/zeros", "bytes": 1000, "sha256": digest})
    with_manifest(bomb, tmp_path / "small.zip", files)
    with pytest.raises(PagecageError):
        unpack(tmp_path / "small.zip", tmp_path / "out")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in written) < LARGE_BYTES / 4


def test_entries_that_share_their_data_count_each_time(tmp_path: Path) -> None:
    """The central directory names one compressed file many times."""
    entries = 300
    source, bomb = tmp_path / "source.zip", tmp_path / "bomb.zip"
    zeros = bytes(MIB)
    with_files(FOLDER / "smoke.pagecage.zip", source, {"trials/a/zeros0": zeros})
    digest = hashlib.sha256(zeros).hexdigest()
    with zipfile.ZipFile(source, "a") as archive:
        first = archive.getinfo("trials/a/zeros0")
        for number in range(1, entries):
            copied = copy.copy(first)
            copied.filename = f"trials/a/zeros{number}"
            archive.filelist.append(copied)
            archive.NameToInfo[copied.filename] = copied
        archive._didModify = True  # type: ignore[attr-defined]
    files = json.loads(contents(FOLDER / "smoke.pagecage.zip")["bundle.json"])["files"]  # type: ignore[no-untyped-call]
    files += [
        {"path": f"trials/a/zeros{n}", "bytes": MIB, "sha256": digest} for n in range(entries)
    ]
    with_manifest(source, bomb, files)
    with pytest.raises(PagecageError, match="times its size"):
        unpack(bomb, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def with_manifest(source: Path, target: Path, files: list[Json]) -> None:
    """Copy an archive, with a manifest of these files in front of it."""
    shutil.copy(source, target)
    manifest = json.loads(zipfile.ZipFile(source).read("bundle.json")) | {"files": files}
    with warnings.catch_warnings(), zipfile.ZipFile(target, "a") as archive:
        warnings.simplefilter("ignore")
        archive.filelist[:] = [one for one in archive.filelist if one.filename != "bundle.json"]
        archive.writestr("bundle.json", json.dumps(manifest))
