"""Bundles that were tampered with, cut off or never were any: a sentence, and nothing that stays
behind.
"""

from __future__ import annotations

import hashlib
import json
import stat
import warnings
import zipfile

import pytest

from pagecage.bundle.pack import is_allowed, pack
from pagecage.bundle.unpack import unpack
from pagecage.cli.bundle import render
from pagecage.errors import PagecageError
from tests.fixtures.bundles import contents, run, written

__all__ = ["run", "written"]


def rewritten(source, target, change):
    """The bundle with its entries changed: {name: bytes} and the manifest go through `change`."""
    files = contents(source)
    manifest = json.loads(files.pop("bundle.json"))
    files, manifest = change(files, manifest)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("bundle.json", json.dumps(manifest))
        for name, data in files.items():
            archive.writestr(name, data)


def added(path, data=b"x"):
    def change(files, manifest):
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
def test_a_bundle_that_was_tampered_with_is_refused(run, tmp_path, says):
    pack(run, tmp_path / "good.zip")
    rewritten(tmp_path / "good.zip", tmp_path / "bad.zip", CHANGES[says])
    refused(tmp_path / "bad.zip", tmp_path, says)


def refused(path, top, says=""):
    """A sentence, and nothing that stays behind."""
    before = sorted(top.rglob("*"))
    with pytest.raises(PagecageError) as error:
        render(path, out=top / "out")
    assert says in error.value.message
    assert (error.value.exit_code, "\n" in error.value.message) == (2, False)
    assert sorted(top.rglob("*")) == before


def test_a_file_given_twice_and_a_link_are_refused(run, tmp_path):
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
def test_a_bundle_that_was_cut_off_is_refused(run, tmp_path, share):
    pack(run, tmp_path / "good.zip")
    data = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "bad.zip").write_bytes(data[: int(share * len(data))])
    refused(tmp_path / "bad.zip", tmp_path, "is damaged or not a bundle")


def test_a_bundle_with_any_byte_changed_is_refused_or_the_same(run, tmp_path):
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


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text.zip").write_text("hello")
    refused(tmp_path / "text.zip", tmp_path, "is damaged or not a bundle")
    refused(tmp_path / "nothing.zip", tmp_path, "cannot be read")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    refused(tmp_path / "other.zip", tmp_path, "not a bundle")


def test_a_report_that_fails_leaves_no_folder(run, tmp_path):
    record = json.loads((run / "records.jsonl").read_text().splitlines()[0])
    (run / "records.jsonl").write_text(json.dumps({**record, "experiment": "other"}) + "\n")
    pack(run, tmp_path / "given.zip")
    refused(tmp_path / "given.zip", tmp_path, "mixes experiments")


def test_a_folder_that_is_there_is_left_alone(run, tmp_path):
    pack(run, tmp_path / "given.zip")
    (tmp_path / "out").mkdir()
    refused(tmp_path / "given.zip", tmp_path, "already exists")


@pytest.mark.parametrize(
    "path", ["plan.json", "facts/b-1.json", "trials/r1_a.1/sar.json", "report.ipynb"]
)
def test_what_a_run_has_is_allowed(path):
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
def test_what_a_run_has_not_is_not(path):
    assert not is_allowed(path)
