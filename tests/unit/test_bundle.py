"""A run given away: the same tables elsewhere, nothing that tells of its place, and no bundle believed unchecked."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import warnings
import zipfile
from pathlib import Path

import pytest

from analysis.__main__ import main
from pagecage.bundle.layout import is_allowed
from pagecage.bundle.pack import pack
from pagecage.bundle.redact import Names, Redactor, names_in
from pagecage.bundle.unpack import unpack
from pagecage.cli.bundles import bundle, render
from pagecage.errors import PagecageError
from tests.fixtures.runs import DEFINITION, build_run

SECRETS = (
    "db-17.example.com", "db-17", "alice", "10.20.30.40", "fd12:3456::7", "52:54:00:ab:cd:ef", "S3Z8NB0K123456",
    "b08dfa6083e7567a1921a715000001fb", "7c9e6679-7425-40de-944b-e07fc1f90ae7", "ata-Samsung_SSD_S3Z8", "0x5002538e",
)  # fmt: skip
KEPT = ("6.12.41+deb13-cloud-amd64", "127.0.0.1", "257.13-1", "11:46:14", "::1")


def telling(folder):
    """A run whose files tell everything that one would not give away."""
    folder = build_run(folder, host="db-17.example.com", command="pagecage run x --data-dir /home/alice/data")
    boot = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    facts = {
        "hostname": "db-17.example.com", "boot_id": boot, "kernel": KEPT[0], "serial": "S3Z8NB0K123456",
        "kernel_command_line": f"root=UUID={boot} BOOT=/dev/disk/by-id/ata-Samsung_SSD_S3Z8 wwn=0", "wwn": "0x5002538e",
        "machine": "b08dfa6083e7567a1921a715000001fb", "note": f"{KEPT[1]} {KEPT[2]} {KEPT[3]} {KEPT[4]}",
        "seen": "10.20.30.40, fd12:3456::7 and 52:54:00:ab:cd:ef by alice on db-17",
    }  # fmt: skip
    (folder / "facts/b-1.json").rename(folder / f"facts/{boot}-1.json")
    (folder / f"facts/{boot}-1.json").write_text(json.dumps(facts))
    (folder / "report.ipynb").write_text(json.dumps({"cells": [{"source": "<td>db-17.example.com</td>"}]}))
    (next((folder / "trials").iterdir()) / "sar.bin").write_bytes(b"\x00\x01db-17\xff")
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return telling(tmp_path_factory.mktemp("written") / "20261121T100000Z-constrained-random-vm")


@pytest.fixture
def run(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / written.name))


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def shown(folder, capsys):
    assert main(["show", str(folder), "--json"]) == 0
    return capsys.readouterr().out


def test_a_stranger_gets_the_same_tables_byte_for_byte(tmp_path, capsys):
    folder = build_run(tmp_path / "20261121T100000Z-constrained-random-vm")
    before, out = shown(folder, capsys), tmp_path / "given.zip"
    (folder / "report.ipynb").write_text("{}")
    assert bundle(str(folder), out=out) == 0
    elsewhere = tmp_path / "elsewhere/deep"
    capsys.readouterr()
    assert render(out, out=elsewhere) == 0
    assert capsys.readouterr().out.strip() == str(elsewhere / "report.html")
    assert shown(elsewhere, capsys) == before
    assert "constrained-random" in (elsewhere / "report.html").read_text()
    assert json.loads((elsewhere / "report.ipynb").read_text())["cells"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    for name in ("one.zip", "other.zip"):
        pack(run, tmp_path / name)
    one, other = ((tmp_path / name).read_bytes() for name in ("one.zip", "other.zip"))
    assert one == other


def test_nothing_tells_where_or_by_whom(run, tmp_path):
    manifest = pack(run, tmp_path / "given.zip")
    files = contents(tmp_path / "given.zip")
    for secret in SECRETS:
        for name, data in files.items():
            assert secret.encode() not in data, (secret, name)
            assert secret not in name
    told = {one["kind"]: one["values"] for one in manifest["redactions"]}
    assert told == {
        "address": 2, "disk_id": 1, "hardware_address": 1, "host_name": 3, "machine_id": 1, "serial": 2,
        "user": 1, "uuid": 1,
    }  # fmt: skip
    facts = next(data for name, data in files.items() if name.startswith("facts/")).decode()
    assert all(kept in facts for kept in KEPT)
    assert [one["path"].rpartition("/")[2] for one in manifest["left_out"]] == ["sar.bin"]


def test_a_redacted_run_still_has_its_tables(run, tmp_path, capsys):
    before = json.loads(shown(run, capsys))
    pack(run, tmp_path / "given.zip")
    unpack(tmp_path / "given.zip", tmp_path / "there")
    after = json.loads(shown(tmp_path / "there", capsys))
    for key in ("cells", "claims", "findings", "trials"):
        assert after[key] == before[key]


def test_what_is_not_redacted_is_whole(run, tmp_path):
    manifest = pack(run, tmp_path / "given.zip", redacted=False)
    assert (manifest["is_redacted"], manifest["redactions"], manifest["left_out"]) == (False, [], [])
    files = contents(tmp_path / "given.zip")
    assert files["records.jsonl"] == (run / "records.jsonl").read_bytes()
    assert b"db-17" in next(data for name, data in files.items() if name.endswith("sar.bin"))


@pytest.mark.parametrize("name", ["random", "tenth", "vm", "db", "root"])
def test_a_host_called_like_a_level_does_not_take_the_experiment_apart(name):
    plan = {"host": "vm", "definition": DEFINITION, "experiment": "constrained-random"}
    text = json.dumps({"hostname": name, "treatment": {"pattern": "random", "cage": "tenth"}, "user": "root db vm"})
    redactor = Redactor(names_in([text], plan, Names(frozenset(), frozenset({name}))))
    data = json.loads(redactor.redact(text))
    assert data == {
        "hostname": "host-1", "treatment": {"pattern": "random", "cage": "tenth"}, "user": "root db vm",
    }  # fmt: skip


def test_the_same_thing_gets_the_same_name_everywhere():
    redactor = Redactor(Names(frozenset({"big-box"}), frozenset({"carol"})))
    told = [redactor.redact(text) for text in ("big-box 10.1.1.1", "10.1.1.2", "10.1.1.1 big-box carol@big-box")]
    assert told == ["host-1 192.0.2.1", "192.0.2.2", "192.0.2.1 host-1 user@host-1"]


def test_the_crate_lists_every_file_with_its_hash(run, tmp_path):
    pack(run, tmp_path / "given.zip")
    files = contents(tmp_path / "given.zip")
    graph = {one["@id"]: one for one in json.loads(files["ro-crate-metadata.json"])["@graph"]}
    assert graph["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    assert {part["@id"] for part in graph["./"]["hasPart"]} == set(files) - {"bundle.json", "ro-crate-metadata.json"}
    for part in graph["./"]["hasPart"]:
        assert graph[part["@id"]]["sha256"] == hashlib.sha256(files[part["@id"]]).hexdigest()
    assert graph["#run"]["startTime"] < graph["#run"]["endTime"]
    assert {"name", "description", "datePublished", "license"} <= set(graph["./"])


@pytest.mark.parametrize("missing", ["plan.json", "records.jsonl"])
def test_what_is_no_run_makes_no_bundle(run, tmp_path, missing):
    (run / missing).unlink()
    with pytest.raises(PagecageError):
        pack(run, tmp_path / "given.zip")
    assert not list(tmp_path.glob("*.zip")) + list(tmp_path.glob(".*"))


def test_an_archive_that_is_there_is_not_overwritten(run, tmp_path):
    (tmp_path / "given.zip").write_text("mine")
    with pytest.raises(PagecageError, match="is there already"):
        pack(run, tmp_path / "given.zip")
    assert (tmp_path / "given.zip").read_text() == "mine"


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
    "is none of a bundle": lambda files, manifest: (files, {**manifest, "bundle_version": "one"}),
    "its bundle.json is none": lambda files, manifest: (files, {**manifest, "files": [{"path": 7}]}),
    "holds other files": lambda files, manifest: ({**files, "trials/a/more": b""}, manifest),
    "holds other files than": lambda files, manifest: ({k: v for k, v in files.items() if k != "plan.json"}, manifest),
    "'../evil'": added("../evil"),
    "'/etc/evil'": added("/etc/evil"),
    "trials/../../evil": added("trials/../../evil"),
    "'trials/a/..'": added("trials/a/.."),
    "evil.py": added("facts/evil.py"),
    "C:": added("C:/evil"),
    "is not what was packed": lambda files, manifest: ({**files, "plan.json": files["plan.json"] + b" "}, manifest),
    "plan.json is not what": lambda files, manifest: ({**files, "plan.json": files["plan.json"][::-1]}, manifest),
    "lacks records.jsonl": lambda files, manifest: (
        {k: v for k, v in files.items() if k != "records.jsonl"},
        {**manifest, "files": [file for file in manifest["files"] if file["path"] != "records.jsonl"]},
    ),
    "do not fit here": lambda files, manifest: (
        files, {**manifest, "files": [{**file, "bytes": 10**15} for file in manifest["files"]]},
    ),
}  # fmt: skip


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
    refused(tmp_path / "twice.zip", tmp_path, "holds other files")
    refused(tmp_path / "link.zip", tmp_path, "no plain file")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.9999])
def test_a_bundle_that_was_cut_off_is_refused(run, tmp_path, share):
    pack(run, tmp_path / "good.zip")
    data = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "bad.zip").write_bytes(data[: int(share * len(data))])
    refused(tmp_path / "bad.zip", tmp_path, "no whole bundle")


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
        assert all((folder / name).read_bytes() == good[name] for name in good if name != "bundle.json")


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text.zip").write_text("hello")
    refused(tmp_path / "text.zip", tmp_path, "no whole bundle")
    refused(tmp_path / "nothing.zip", tmp_path, "cannot be read")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    refused(tmp_path / "other.zip", tmp_path, "no bundle")


def test_a_report_that_fails_leaves_no_folder(run, tmp_path):
    record = json.loads((run / "records.jsonl").read_text().splitlines()[0])
    (run / "records.jsonl").write_text(json.dumps({**record, "experiment": "other"}) + "\n")
    pack(run, tmp_path / "given.zip")
    refused(tmp_path / "given.zip", tmp_path, "mixes experiments")


def test_a_folder_that_is_there_is_left_alone(run, tmp_path):
    pack(run, tmp_path / "given.zip")
    (tmp_path / "out").mkdir()
    refused(tmp_path / "given.zip", tmp_path, "is there already")


@pytest.mark.parametrize("path", ["plan.json", "facts/b-1.json", "trials/r1_a.1/sar.json", "report.ipynb"])
def test_what_a_run_has_is_allowed(path):
    assert is_allowed(path)


@pytest.mark.parametrize(
    "path", ["", "/plan.json", "a/plan.json", "facts/.json", "facts/../x.json", "trials/a/b/c", "trials\\a\\b",
             "trials/.a/b", "plan.json\n", "report.html", "trials/a/", "facts/a.json.py"],
)  # fmt: skip
def test_what_a_run_has_not_is_not(path):
    assert not is_allowed(path)


REAL = Path(__file__).resolve().parents[1] / "fixtures/20261121T134017Z-smoke-vm.pagecage.zip"
"""A run of a guest, packed when bundles had version 1: what was given away must stay readable."""


def test_a_real_run_that_was_given_away_is_read_and_goes_on_unchanged(tmp_path, capsys):
    unpack(REAL, tmp_path / "got")
    before = shown(tmp_path / "got", capsys)
    manifest = pack(tmp_path / "got", tmp_path / "again.zip")
    unpack(tmp_path / "again.zip", tmp_path / "there")
    assert shown(tmp_path / "there", capsys) == before
    assert {key: contents(tmp_path / "again.zip")[key] for key in ("plan.json", "records.jsonl")} == {
        key: contents(REAL)[key] for key in ("plan.json", "records.jsonl")
    }
    assert manifest["left_out"] == []
    data = json.loads(before)
    cells = {tuple(cell["treatment"].values()): cell["summary"]["middle"] for cell in data["cells"]}
    assert cells["uncaged", "random"] == pytest.approx(1.702569015)
    assert [trial["outcome"] for trial in data["trials"]] == ["ok"] * 4
