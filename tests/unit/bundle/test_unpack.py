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
from collections.abc import Callable
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
from tests.fixtures.hostile_bundles import NOTEBOOK, SCRIPT, with_files, write_scripts
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import FOLDER

__all__ = ["run", "written"]


SMOKE = FOLDER / "smoke.pagecage.zip"
Tampering = Callable[[dict[str, bytes], Json], object]
"""Changes the files and the manifest of a bundle."""


def entry(path: str, data: bytes, size: int | None = None) -> Json:
    """Return a file's entry of the manifest, with `size` in place of its size if one is given."""
    digest = hashlib.sha256(data).hexdigest()
    return {"path": path, "bytes": len(data) if size is None else size, "sha256": digest}


def added(path: str) -> Tampering:
    def change(files: dict[str, bytes], manifest: Json) -> None:
        files[path] = b"x"
        manifest["files"].append(entry(path, b"x"))

    return change


def without_records(files: dict[str, bytes], manifest: Json) -> None:
    del files["records.jsonl"]
    manifest["files"] = [one for one in manifest["files"] if one["path"] != "records.jsonl"]


def with_plan(change: Callable[[bytes], bytes]) -> Tampering:
    return lambda files, _: files.update({"plan.json": change(files["plan.json"])})


CHANGES: dict[str, Tampering] = {
    "has bundle version 2": lambda _, manifest: manifest.update(bundle_version=2),
    "lacks required keys": lambda _, manifest: manifest.update(bundle_version="one"),
    "its bundle.json lacks": lambda _, manifest: manifest.update(files=[{"path": 7}]),
    "contains other files": lambda files, _: files.update({"trials/a/more": b""}),
    "contains other files than": lambda files, _: files.pop("plan.json"),
    "'../evil'": added("../evil"),
    "'/etc/evil'": added("/etc/evil"),
    "trials/../../evil": added("trials/../../evil"),
    "'trials/a/..'": added("trials/a/.."),
    "evil.py": added("facts/evil.py"),
    "C:": added("C:/evil"),
    "does not match its hash": with_plan(lambda plan: plan + b" "),
    "plan.json does not match": with_plan(lambda plan: plan[::-1]),
    "lacks records.jsonl": without_records,
    "times its size": lambda _, manifest: [one.update(bytes=10**15) for one in manifest["files"]],
}


@pytest.mark.parametrize("says", CHANGES)
def test_a_bundle_that_was_tampered_with_is_refused(run: Path, tmp_path: Path, says: str) -> None:
    pack(run, tmp_path / "good.zip")
    files = contents(tmp_path / "good.zip")
    manifest = json.loads(files.pop("bundle.json"))
    CHANGES[says](files, manifest)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("bundle.json", json.dumps(manifest))
        for name, data in files.items():
            archive.writestr(name, data)
    refused(tmp_path / "bad.zip", tmp_path, says)


def refused(path: Path, top: Path, says: str) -> None:
    """A sentence, and nothing that stays behind."""
    before = sorted(top.rglob("*"))
    with pytest.raises(PagecageError) as error:
        import_(path, out=top / "out")
    assert says in error.value.message
    assert (error.value.exit_code, "\n" in error.value.message) == (2, False)
    assert sorted(top.rglob("*")) == before


def test_a_file_given_twice_and_a_link_are_refused(run: Path, tmp_path: Path) -> None:
    for name, kind in (("twice", 0), ("link", stat.S_IFLNK | 0o777)):
        pack(run, tmp_path / f"{name}.zip", redacted=False)
        with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / f"{name}.zip", "a") as archive:
            warnings.simplefilter("ignore")
            member = zipfile.ZipInfo("plan.json" if name == "twice" else "trials/a/link")
            member.external_attr = kind << 16
            archive.writestr(member, "/etc/passwd")
    refused(tmp_path / "twice.zip", tmp_path, "contains other files")
    refused(tmp_path / "link.zip", tmp_path, "not a regular file")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.9999])
def test_a_bundle_that_was_cut_off_is_refused(run: Path, tmp_path: Path, share: float) -> None:
    pack(run, tmp_path / "good.zip")
    data = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "bad.zip").write_bytes(data[: int(share * len(data))])
    refused(tmp_path / "bad.zip", tmp_path, "is damaged or not a bundle")


def test_a_bundle_with_any_byte_changed_is_refused_or_the_same(run: Path, tmp_path: Path) -> None:
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
        for name in good.keys() - {"bundle.json"}:
            assert (folder / name).read_bytes() == good[name]


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("hello")
    refused(tmp_path / "text.zip", tmp_path, "is damaged or not a bundle")
    refused(tmp_path / "nothing.zip", tmp_path, "cannot be read")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    refused(tmp_path / "other.zip", tmp_path, "not a bundle")


def test_a_report_that_fails_leaves_no_folder(run: Path, tmp_path: Path) -> None:
    record = json.loads((run / "records.jsonl").read_text().splitlines()[0])
    (run / "records.jsonl").write_text(json.dumps({**record, "experiment": "other"}) + "\n")
    pack(run, tmp_path / "given.zip")
    refused(tmp_path / "given.zip", tmp_path, "mixes experiments")


def test_a_folder_that_is_there_is_left_alone(run: Path, tmp_path: Path) -> None:
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
        *("", "/plan.json", "a/plan.json", "plan.json\n", "report.html"),
        *("facts/.json", "facts/../x.json", "facts/a.json.py"),
        *("trials/a/b/c", "trials\\a\\b", "trials/.a/b", "trials/a/"),
    ],
)
def test_what_a_run_has_not_is_not(path: str) -> None:
    assert not is_allowed(path)


LARGE_BYTES = 64 << 20


def test_no_code_of_a_bundle_runs_when_it_is_rendered(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "20261121T100000Z-constrained-random-vm")
    write_scripts(folder)
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
    name = "20261121T100000Z-constrained-random-vm"
    folder = build_run(tmp_path / name, repeats=1, sections=sections)
    pack(folder, tmp_path / "plain.zip", redacted=False)
    assert import_(tmp_path / "plain.zip", out=tmp_path / "out") == 0
    page = (tmp_path / "out/report.html").read_text()
    assert "<h2>mine.py was left out</h2>" in page
    assert "<script>alert" not in page
    assert not list(tmp_path.rglob("hacked"))


def not_unpacked(archive: Path, top: Path, says: str) -> None:
    with pytest.raises(PagecageError, match=says):
        unpack(archive, top / "out")
    assert not (top / "out").exists()


def files_of_smoke() -> list[Json]:
    files: list[Json] = json.loads(contents(SMOKE)["bundle.json"])["files"]
    return files


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    with_files(SMOKE, tmp_path / "bomb.zip", {"trials/a/zeros": bytes(LARGE_BYTES)})
    not_unpacked(tmp_path / "bomb.zip", tmp_path, "times its size")


@pytest.mark.parametrize("size", [-(10**12), 1.5, "1", None])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: object) -> None:
    """A negative one would make room for another file in the sum of all."""
    files = files_of_smoke()
    files[0]["bytes"] = size
    with_files(SMOKE, tmp_path / "bad.zip", {}, files=files)
    not_unpacked(tmp_path / "bad.zip", tmp_path, "lacks required keys")


def test_the_bytes_that_are_unpacked_are_counted_not_those_declared(tmp_path: Path) -> None:
    """The archive's headers and the manifest declare small files, and the data are large."""
    bomb, zeros = tmp_path / "bomb.zip", bytes(LARGE_BYTES)
    with_files(SMOKE, bomb, {"trials/a/zeros": zeros})
    size = struct.pack("<I", LARGE_BYTES)
    bomb.write_bytes(bomb.read_bytes().replace(size, struct.pack("<I", 1000)))
    files = [*files_of_smoke(), entry("trials/a/zeros", zeros, 1000)]
    with_manifest(bomb, tmp_path / "small.zip", files)
    with pytest.raises(PagecageError):
        unpack(tmp_path / "small.zip", tmp_path / "out")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in written) < LARGE_BYTES / 4


def test_entries_that_share_their_data_count_each_time(tmp_path: Path) -> None:
    """The central directory names one compressed file many times."""
    source, zeros = tmp_path / "source.zip", bytes(MIB)
    names = [f"trials/a/zeros{number}" for number in range(300)]
    with_files(SMOKE, source, {names[0]: zeros})
    with zipfile.ZipFile(source, "a") as archive:
        first = archive.getinfo(names[0])
        for name in names[1:]:
            copied = copy.copy(first)
            copied.filename = name
            archive.filelist.append(copied)
            archive.NameToInfo[name] = copied
        archive._didModify = True  # type: ignore[attr-defined]
    files = [*files_of_smoke(), *(entry(name, zeros) for name in names)]
    with_manifest(source, tmp_path / "bomb.zip", files)
    not_unpacked(tmp_path / "bomb.zip", tmp_path, "times its size")


def with_manifest(source: Path, target: Path, files: list[Json]) -> None:
    """Copy an archive, with a manifest of these files in front of it."""
    shutil.copy(source, target)
    manifest = json.loads(zipfile.ZipFile(source).read("bundle.json")) | {"files": files}
    with warnings.catch_warnings(), zipfile.ZipFile(target, "a") as archive:
        warnings.simplefilter("ignore")
        archive.filelist[:] = [one for one in archive.filelist if one.filename != "bundle.json"]
        archive.writestr("bundle.json", json.dumps(manifest))
