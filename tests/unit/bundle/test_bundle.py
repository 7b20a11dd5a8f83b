"""A run given away: the same tables elsewhere, nothing that tells of its place."""

from __future__ import annotations

import hashlib
import json

import pytest

from analysis.__main__ import main
from pagecage.bundle.pack import pack
from pagecage.bundle.redact import Redactor, SensitiveNames, names_in
from pagecage.bundle.unpack import unpack
from pagecage.cli.bundle import bundle, render
from pagecage.errors import PagecageError
from pagecage.model.container.image import ImageSpec, Variable, image_from_json, image_to_json
from tests.fixtures.bundles import KEPT, SECRETS, contents, run, written
from tests.fixtures.runs import DEFINITION, build_run
from tests.tree import ROOT

__all__ = ["run", "written"]


def shown(folder, capsys):
    assert main(["show", str(folder), "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
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
        "address": 2,
        "disk_id": 1,
        "hardware_address": 1,
        "host_name": 3,
        "machine_id": 1,
        "serial": 2,
        "user": 1,
        "uuid": 1,
    }
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
    assert (manifest["is_redacted"], manifest["redactions"], manifest["left_out"]) == (
        False,
        [],
        [],
    )
    files = contents(tmp_path / "given.zip")
    assert files["records.jsonl"] == (run / "records.jsonl").read_bytes()
    assert b"db-17" in next(data for name, data in files.items() if name.endswith("sar.bin"))


@pytest.mark.parametrize("name", ["random", "tenth", "vm", "db", "root"])
def test_a_host_called_like_a_level_does_not_take_the_experiment_apart(name):
    plan = {"host": "vm", "definition": DEFINITION, "experiment": "constrained-random"}
    text = json.dumps(
        {
            "hostname": name,
            "treatment": {"pattern": "random", "cage": "tenth"},
            "user": "root db vm",
        }
    )
    redactor = Redactor(names_in([text], plan, SensitiveNames(frozenset(), frozenset({name}))))
    data = json.loads(redactor.redact(text))
    assert data == {
        "hostname": "host-1",
        "treatment": {"pattern": "random", "cage": "tenth"},
        "user": "root db vm",
    }


def test_the_same_thing_gets_the_same_name_everywhere():
    redactor = Redactor(SensitiveNames(frozenset({"big-box"}), frozenset({"carol"})))
    told = [
        redactor.redact(text)
        for text in ("big-box 10.1.1.1", "10.1.1.2", "10.1.1.1 big-box carol@big-box")
    ]
    assert told == ["host-1 192.0.2.1", "192.0.2.2", "192.0.2.1 host-1 user@host-1"]


def test_values_of_a_containers_variables_are_redacted():
    """A plan has them in its trials, and those that were typed in its command line."""
    variables = [Variable("PASSWORD", 'deep "secret"'), Variable("EMPTY", "")]
    image = ImageSpec("own:1", "sha256:0", "amd64", 1, environment=tuple(variables))
    typed = "pagecage replay c --image own:1 -e 'PASSWORD=deep secret' --env=TOKEN=deep -- cat -e"
    redactor = Redactor(SensitiveNames(frozenset(), frozenset()))
    told = redactor.redact(json.dumps({"image": image_to_json(image), "command": typed}))
    assert "deep" not in told
    plan = json.loads(told)
    assert plan["image"]["environment"][0]["name"] == "PASSWORD"
    assert image_from_json(plan["image"]).environment[1] == Variable("EMPTY", "")
    assert "-e 'PASSWORD=redacted-2' --env=TOKEN=redacted-3 -- cat -e" in plan["command"]


def test_the_crate_lists_every_file_with_its_hash(run, tmp_path):
    pack(run, tmp_path / "given.zip")
    files = contents(tmp_path / "given.zip")
    graph = {one["@id"]: one for one in json.loads(files["ro-crate-metadata.json"])["@graph"]}
    assert graph["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    assert {part["@id"] for part in graph["./"]["hasPart"]} == set(files) - {
        "bundle.json",
        "ro-crate-metadata.json",
    }
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
    with pytest.raises(PagecageError, match="already exists"):
        pack(run, tmp_path / "given.zip")
    assert (tmp_path / "given.zip").read_text() == "mine"


REAL = ROOT / "tests/fixtures/20261121T134017Z-smoke-vm.pagecage.zip"
"""A run of a guest, packed when bundles had version 1: what was given away must stay readable."""


def test_a_real_run_that_was_given_away_is_read_and_goes_on_unchanged(tmp_path, capsys):
    unpack(REAL, tmp_path / "got")
    before = shown(tmp_path / "got", capsys)
    manifest = pack(tmp_path / "got", tmp_path / "again.zip")
    unpack(tmp_path / "again.zip", tmp_path / "there")
    assert shown(tmp_path / "there", capsys) == before
    assert {
        key: contents(tmp_path / "again.zip")[key] for key in ("plan.json", "records.jsonl")
    } == {key: contents(REAL)[key] for key in ("plan.json", "records.jsonl")}
    assert manifest["left_out"] == []
    data = json.loads(before)
    cells = {tuple(cell["treatment"].values()): cell["summary"]["middle"] for cell in data["cells"]}
    assert cells["uncaged", "random"] == pytest.approx(1.702569015)
    assert [trial["outcome"] for trial in data["trials"]] == ["ok"] * 4
