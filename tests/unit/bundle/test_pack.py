"""A run given away: the same tables elsewhere, nothing that tells of its place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from analysis.data.load import load_run
from pagecage.bundle.pack import pack
from pagecage.bundle.redact import KINDS
from pagecage.bundle.unpack import unpack
from pagecage.cli.export import export, import_
from pagecage.errors import PagecageError
from tests.builders.command_line import called
from tests.fixtures.bundles import KEPT, SECRETS, contents, run, written
from tests.fixtures.runs import build_run
from tests.tree import ROOT

__all__ = ["run", "written"]


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert called(["show", str(folder), "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_a_stranger_gets_the_same_tables_byte_for_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_run(tmp_path / "20261121T100000Z-constrained-random-vm")
    before, out = shown(folder, capsys), tmp_path / "given.zip"
    assert export(str(folder), out=out) == 0
    elsewhere = tmp_path / "elsewhere/deep"
    capsys.readouterr()
    assert import_(out, out=elsewhere) == 0
    assert capsys.readouterr().out.strip() == str(elsewhere / "report.html")
    assert shown(elsewhere, capsys) == before
    assert "constrained-random" in (elsewhere / "report.html").read_text()
    assert json.loads((elsewhere / "report.ipynb").read_text())["cells"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    pack(run, tmp_path / "one.zip")
    pack(run, tmp_path / "other.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_nothing_tells_where_or_by_whom(run: Path, tmp_path: Path) -> None:
    manifest = pack(run, tmp_path / "given.zip")
    files = contents(tmp_path / "given.zip")
    for secret in SECRETS:
        for name, data in files.items():
            assert secret.encode() not in data, (secret, name)
            assert secret not in name
    told = {one["kind"]: one["values"] for one in manifest["redactions"]}
    assert told["addresses"] == 3
    assert told["users"] == 1
    assert set(told) <= KINDS.keys()
    assert manifest["kept"]["words"] > 1000
    facts = next(data for name, data in files.items() if name.startswith("facts/")).decode()
    assert all(kept in facts for kept in KEPT)
    assert [one["path"].rpartition("/")[2] for one in manifest["left_out"]] == ["sar.bin"]


def test_a_redacted_run_still_has_its_tables(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads(shown(run, capsys))
    pack(run, tmp_path / "given.zip")
    unpack(tmp_path / "given.zip", tmp_path / "there")
    after = json.loads(shown(tmp_path / "there", capsys))
    for key in ("cells", "claims", "findings", "trials"):
        assert after[key] == before[key]


def test_what_is_not_redacted_is_whole(run: Path, tmp_path: Path) -> None:
    manifest = pack(run, tmp_path / "given.zip", redacted=False)
    told = [manifest[key] for key in ("is_redacted", "redactions", "left_out")]
    assert told == [False, [], []]
    files = contents(tmp_path / "given.zip")
    assert files["records.jsonl"] == (run / "records.jsonl").read_bytes()
    assert b"db-17" in next(data for name, data in files.items() if name.endswith("sar.bin"))


def test_a_trace_may_be_left_out_and_is_named(run: Path, tmp_path: Path) -> None:
    """The trial's verdicts do not miss it then; plan, facts and records are always packed."""
    before = [trial.is_included for trial in load_run(run).trials]
    manifest = pack(run, tmp_path / "given.zip", leave_out=["samples*", "*.json", "*.jsonl"])
    gone = [one["path"] for one in manifest["left_out"] if "without it" in one["why"]]
    packed = contents(tmp_path / "given.zip")
    assert gone
    assert {"plan.json", "records.jsonl"} <= packed.keys()
    assert all(path.startswith("trials/") for path in gone)
    assert not packed.keys() & set(gone)
    unpack(tmp_path / "given.zip", tmp_path / "there")
    after = load_run(tmp_path / "there").trials
    assert [trial.is_included for trial in after] == before
    assert [path.name for path in (tmp_path / "there").glob("trials/*/*.json*")] == []


def test_an_empty_trace_is_packed(run: Path, tmp_path: Path) -> None:
    """fio's mmap engine leaves fio_slat.log empty; without it, the trial lacks a trace."""
    trial = next((run / "trials").iterdir())
    (trial / "fio_slat.log").touch()
    manifest = pack(run, tmp_path / "given.zip")
    assert contents(tmp_path / "given.zip")[f"trials/{trial.name}/fio_slat.log"] == b""
    assert all("fio_slat" not in entry["path"] for entry in manifest["left_out"])


def test_the_crate_lists_every_file_with_its_hash(run: Path, tmp_path: Path) -> None:
    pack(run, tmp_path / "given.zip")
    files = contents(tmp_path / "given.zip")
    graph = {one["@id"]: one for one in json.loads(files["ro-crate-metadata.json"])["@graph"]}
    assert graph["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    parts = {part["@id"] for part in graph["./"]["hasPart"]}
    assert parts == files.keys() - {"bundle.json", "ro-crate-metadata.json"}
    for part in parts:
        assert graph[part]["sha256"] == hashlib.sha256(files[part]).hexdigest()
    assert graph["#run"]["startTime"] < graph["#run"]["endTime"]
    assert {"name", "description", "datePublished", "license"} <= set(graph["./"])


@pytest.mark.parametrize("missing", ["plan.json", "records.jsonl"])
def test_what_is_no_run_makes_no_bundle(run: Path, tmp_path: Path, missing: str) -> None:
    (run / missing).unlink()
    with pytest.raises(PagecageError):
        pack(run, tmp_path / "given.zip")
    assert not list(tmp_path.glob("*.zip")) + list(tmp_path.glob(".*"))


def test_an_archive_that_is_there_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "given.zip").write_text("mine")
    with pytest.raises(PagecageError, match="already exists"):
        pack(run, tmp_path / "given.zip")
    assert (tmp_path / "given.zip").read_text() == "mine"


@pytest.mark.slow
def test_a_site_tells_neither_where_nor_by_whom(run: Path, tmp_path: Path) -> None:
    assert called(["publish", run, "--out", tmp_path / "site"]) == 0
    assert (tmp_path / "site/index.html").exists()
    for path in (path for path in (tmp_path / "site").rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert [secret for secret in SECRETS if secret.encode() in data] == [], path


def test_a_bundle_of_a_bundle_names_what_the_first_left_out(tmp_path: Path) -> None:
    first = ROOT / "docs/runs/20261124T093802Z-constrained-sequential-local.pagecage.zip"
    unpack(first, tmp_path / "got")
    manifest = pack(tmp_path / "got", tmp_path / "again.zip")
    unpack(tmp_path / "again.zip", tmp_path / "there")
    before, after = (load_run(tmp_path / name) for name in ("got", "there"))
    assert len(manifest["left_out"]) == 18
    included = [trial.is_included for trial in before.trials]
    assert sum(included) > 10
    assert [trial.is_included for trial in after.trials] == included


REAL = ROOT / "tests/fixtures/20261121T134017Z-smoke-vm.pagecage.zip"
"""A run of a guest, packed when bundles had version 1: what was given away must stay readable."""


def test_a_real_run_that_was_given_away_is_read_and_goes_on_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(REAL, tmp_path / "got")
    before = shown(tmp_path / "got", capsys)
    manifest = pack(tmp_path / "got", tmp_path / "again.zip")
    unpack(tmp_path / "again.zip", tmp_path / "there")
    assert shown(tmp_path / "there", capsys) == before
    given, again = contents(REAL), contents(tmp_path / "again.zip")
    for name in ("plan.json", "records.jsonl"):
        assert again[name] == given[name]
    assert manifest["left_out"] == json.loads(given["bundle.json"])["left_out"]
    data = json.loads(before)
    cells = {tuple(cell["treatment"].values()): cell["summary"]["middle"] for cell in data["cells"]}
    assert cells["uncaged", "random"] == pytest.approx(1.702569015)
    assert [trial["outcome"] for trial in data["trials"]] == ["ok"] * 4
