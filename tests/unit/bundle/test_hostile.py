"""Bundles and records that somebody else made, under every verb."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.bundle.pack import SUFFIX, pack
from pagecage.cli.export import import_
from pagecage.cli.predict import stored_treatments
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.model.record import read_records
from pagecage.runner.run_folder import RunFolder
from tests.builders.campaigns import Run
from tests.builders.command_line import called
from tests.builders.run_edits import edit
from tests.fixtures.fleets import build_fleet
from tests.fixtures.hostile_bundles import NOTEBOOK, SCRIPT, with_files, write_scripts
from tests.fixtures.runs import build_run

FORMS = ((), ("--json",), ("--csv",), ("--markdown",))
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with few records, for tests that read it very often."""
    folder = build_run(tmp_path_factory.mktemp("kept") / "run")
    lines = (folder / "records.jsonl").read_text().splitlines()
    (folder / "records.jsonl").write_text("\n".join(lines[:14]) + "\n")
    return folder


def says(folder: Path, capsys: pytest.CaptureFixture[str], *form: str) -> str:
    """Return the refusal; it is short, and no traceback."""
    before = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else None
    assert called(["show", folder, *form]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    assert len(told.err.removeprefix("making the report ...\n").splitlines()) <= 2
    assert before == (sorted(path.name for path in folder.iterdir()) if folder.is_dir() else None)
    return told.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("hello", "records.jsonl:37 is damaged"),
        ("[]", "records.jsonl:37"),
        ("7", "records.jsonl:37"),
        ('{"jsonrpc": "2.0"}', "records.jsonl:37"),
        ('{"record_version": 9}', "format version 9"),
        ("\xff\xfe", "records.jsonl:37"),
        ("id,name", "records.jsonl:37"),
    ],
)
def test_lines_that_somebody_else_wrote(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    with (folder / "records.jsonl").open("a") as file:
        file.write(line + "\n")
    assert told in says(folder, capsys)


def test_a_record_that_was_cut_off_is_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (folder / "records.jsonl").read_bytes()
    whole = len(list(read_records(folder / "records.jsonl")))
    (folder / "records.jsonl").write_bytes(data[:-200])
    assert len(list(read_records(folder / "records.jsonl"))) == whole - 1
    assert called(["show", folder, "-v"]) == 0
    assert "35 included, 1 not" in capsys.readouterr().out


LINE = 2


def damage(records: Path) -> bytes:
    """Break the JSON of one line by one byte; return the file's content. Its newline stays."""
    lines = records.read_bytes().splitlines(keepends=True)
    lines[LINE - 1] = lines[LINE - 1][:60] + b"\x07" + lines[LINE - 1][61:]
    records.write_bytes(b"".join(lines))
    return records.read_bytes()


READERS: dict[str, Callable[[Path], list[str | Path]]] = {
    "show": lambda runs: ["show", runs / "damaged"],
    "show as JSON": lambda runs: ["show", runs / "damaged", "--json"],
    "show for another program": lambda runs: ["show", runs / "damaged", "--format", "bencher"],
    "show as a page": lambda runs: ["show", runs / "damaged", "--html"],
    "show a fleet": lambda runs: ["show", runs / "fleet"],
    "compare": lambda runs: ["compare", runs / "damaged", runs / "whole"],
    "compare the second": lambda runs: ["compare", runs / "whole", runs / "damaged"],
    "history": lambda runs: ["history", runs / "whole", runs / "damaged"],
    "baseline": lambda runs: ["compare", runs / "damaged", "--save-baseline", runs / "b.json"],
    "predict": lambda runs: ["predict", runs / "damaged"],
    "bundle": lambda runs: ["export", runs / "damaged", "--out", runs / "b.zip"],
    "render": lambda runs: ["import", runs / f"bundles/damaged{SUFFIX}", "--out", runs / "out"],
    "claims": lambda runs: ["articles", "claims", "--runs", runs],
    "claims of bundles": lambda runs: ["articles", "claims", "--bundles", runs / "bundles"],
    "answers": lambda runs: ["articles", "answers", "--runs", runs],
    "publish": lambda runs: ["publish", runs / "damaged", "--out", runs / "site"],
}
"""Every verb that reads a run, by its words."""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: a whole one, and a damaged run, bundle, fleet and newest run."""
    runs = tmp_path_factory.mktemp("runs")
    build_run(runs / "whole", host="a")
    data = damage(build_run(runs / "damaged", host="b") / "records.jsonl")
    (runs / "bundles").mkdir()
    pack(build_run(runs / "given/damaged"), runs / "given.zip", redacted=False)
    with_files(runs / "given.zip", runs / f"bundles/damaged{SUFFIX}", {"records.jsonl": data})
    build_fleet(runs / "fleet", {"one": None, "two": None})
    damage(runs / "fleet/hosts/two/records.jsonl")
    newest = build_run(runs / "20261121T110000Z-constrained-random-vm")
    build_run(runs / "20261121T100000Z-constrained-random-vm")
    damage(newest / "records.jsonl")
    (runs / "latest-constrained-random").symlink_to(newest.name)
    return runs


@pytest.mark.parametrize("verb", READERS)
def test_every_verb_names_a_damaged_line(
    damaged: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    before = sorted(damaged.rglob("*"))
    assert called(READERS[verb](damaged)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"records.jsonl:{LINE} is damaged" in told.err
    assert sorted(damaged.rglob("*")) == before


def test_a_resumed_run_names_a_damaged_line(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go()
    damage(run.folder.records_path)
    run.folder = RunFolder(run.folder.path)
    with pytest.raises(PagecageError, match=rf"records\.jsonl:{LINE} is damaged"):
        run.go()


@pytest.mark.parametrize("form", [[], ["--html"]])
def test_an_empty_run(folder: Path, capsys: pytest.CaptureFixture[str], form: list[str]) -> None:
    (folder / "records.jsonl").write_text("")
    assert "has no record yet" in says(folder, capsys, *form)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"experiment": "prefault"}, "mixes experiments"),
        ({"run_id": "other"}, "another run, other"),
        ({"trial_id": "r9_x"}, "r9_x, which its plan lacks"),
        ({"treatment": {"cage": "tenth"}}, "another treatment"),
        ({"response": []}, "'response' is of the wrong kind"),
        ({"repeat": "two"}, "'repeat'"),
        ({"measured": {"seconds": "long"}}, "'measured"),
        ({"treatment": {"cage": 7}}, "'treatment"),
        ({"traces": {"sampler": "../../../etc/passwd"}}, "lies outside its run"),
        ({"traces": {"sampler": "/etc/passwd"}}, "lies outside its run"),
        ({"outcome": "splendid"}, "unknown outcome"),
        ({"surprise": 1}, "unknown key"),
        (
            {"cage": {"requested": {"MemoryMax": 1}, "read_back": 7}},
            "'cage.read_back' is of the wrong kind",
        ),
        (
            {"cage": {"requested": {"IOReadIOPSMax": 1}, "credits": {"changes": 7}}},
            "other limits than its plan",
        ),
    ],
)
def test_records_of_other_runs_or_of_the_wrong_kind(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: Json, told: str
) -> None:
    edit(
        folder / "records.jsonl",
        lambda record: record.update(changes if record["position"] == 3 else {}),
    )
    assert told in says(folder, capsys)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("plan.json", "", "not valid JSON"),
        ("plan.json", "[]", "not a JSON object"),
        ("plan.json", "{", "not valid JSON"),
        ("plan.json", "{}", "lacks 'run_id'"),
        ("plan.json", "\0", "not valid JSON"),
        ("plan.json", '{"plan_version": 2}', "format version 2"),
        ("facts/b-1.json", "{", "facts"),
        ("facts/b-1.json", "[]", "facts"),
        ("facts/b-1.json", "\0", "facts"),
    ],
)
def test_plans_and_facts_that_are_none(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, told: str
) -> None:
    (folder / name).write_text(content)
    assert told in says(folder, capsys)


@pytest.mark.parametrize(
    "change",
    [
        {"trials": {}},
        {"trials": [7]},
        {"trials": [{}]},
        {"definition": {}},
        {"definition": {"factors": {}}},
        {"definition": {"factors": {"a": []}, "question": "?"}},
        {"until_ci": "5%"},
        {"run_id": 7},
    ],
)
def test_plans_of_the_wrong_kind(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Json
) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, **change}))
    assert "plan.json" in says(folder, capsys)


def test_no_folder_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run" in says(tmp_path / "nothing", capsys)


def test_a_report_that_is_there_stays_until_the_new_one_is_whole(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from analysis.views import render

    for name in ("report.ipynb", "report.html"):
        (folder / name).write_text("the old one")
    report_source = render.SOURCE.read_text()
    monkeypatch.setattr(render, "SOURCE", folder / "source.py")
    (folder / "source.py").write_text(report_source.replace("results.heading", "1 / 0"))
    assert called(["show", folder, "--html"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert {(folder / name).read_text() for name in ("report.ipynb", "report.html")} == {
        "the old one"
    }
    assert "ZeroDivisionError" in (folder / "report.failed.ipynb").read_text()
    assert [path for path in folder.iterdir() if path.name.startswith(".")] == []


Place = tuple[str | int, ...]


def places(value: object, path: Place = ()) -> Iterator[Place]:
    """Yield every place within a record."""
    yield path
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, one in inner:
        yield from places(one, (*path, key))


def put_at(record: Json, path: Place, value: object) -> None:
    """Put something else at a place of a record, or remove what is there."""
    *way, last = path
    place: Any = record
    for key in way:
        place = place[key]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value


DELETE = object()


@settings(suppress_health_check=list(HealthCheck))
@given(
    number=st.integers(0, 13),
    at=st.integers(0, 10**6),
    put=ODD | st.just(DELETE),
    form=st.sampled_from(FORMS),
)
def test_whatever_stands_in_a_record_is_read_or_refused(
    kept: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    at: int,
    put: object,
    form: tuple[str, ...],
) -> None:
    lines = (kept / "records.jsonl").read_text().splitlines()
    record = json.loads(lines[number])
    known = list(places(record))[1:]
    put_at(record, known[at % len(known)], put)
    folder = kept.with_name("spoilt")
    folder.mkdir(exist_ok=True)
    for name in ("plan.json", "facts", "trials"):
        if not (folder / name).exists():
            (folder / name).symlink_to(kept / name)
    (folder / "records.jsonl").write_text(
        "\n".join([*lines[:number], json.dumps(record), *lines[number + 1 :]]) + "\n"
    )
    status = called(["show", folder, *form])
    told = capsys.readouterr()
    assert status in (0, 2), told.err
    assert bool(told.err) == (status == 2)


SECRET = "a text of the reader's machine"
REFUSED, ACCEPTED = 2, 0
FILES = ("plan.json", "records.jsonl")


def named(key: str, name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        for file in FILES:
            edit(run / file, lambda part: part.update({key: name}))

    return change


def with_hostile_level(run: Path) -> None:
    """Give a factor's level the script as its name, everywhere."""
    edit(run / "plan.json", lambda plan: None)
    for path in (run / file for file in FILES):
        path.write_text(path.read_text().replace('"random"', json.dumps(f"$\\bad${SCRIPT}")))


HOSTILE: dict[str, tuple[Callable[[Path], None], int]] = {
    "texts": (write_scripts, ACCEPTED),
    "levels": (with_hostile_level, ACCEPTED),
    "run id": (named("run_id", "../../../../pwned"), REFUSED),
    "run id with a script": (named("run_id", SCRIPT), REFUSED),
    "experiment": (named("experiment", "../../pwned"), REFUSED),
    "host": (named("host", f"x/{SCRIPT}"), REFUSED),
}


def hostile(folder: Path, name: str) -> Path:
    """Write a bundle into a folder of bundles; return its path."""
    run = build_run(folder / "20261121T100000Z-constrained-random-vm")
    pack(run, folder / "plain.zip", redacted=False)
    HOSTILE[name][0](run)
    files = {file: (run / file).read_bytes() for file in FILES}
    run_id = json.loads(files["plan.json"])["run_id"]
    files["report.ipynb"] = json.dumps(NOTEBOOK).encode()
    (folder / "bundles").mkdir()
    bundle = folder / "bundles" / f"hostile{SUFFIX}"
    with_files(folder / "plain.zip", bundle, files, run_id=run_id)
    return bundle


def predicted(bundle: Path, _out: Path) -> int:
    stored_treatments(str(bundle), {})
    return ACCEPTED


def articles(verb: str, *option: str) -> Callable[[Path, Path], int]:
    return lambda bundle, _: called(["articles", verb, *option, bundle.parent, "--markdown"])


VERBS: dict[str, Callable[[Path, Path], int]] = {
    "render": lambda bundle, out: import_(bundle, out=out / "run"),
    "claims": articles("claims", "--bundles"),
    "answers": articles("answers", "--bundles"),
    "fidelity": articles("fidelity"),
    "predict": predicted,
    "publish": lambda bundle, out: called(
        ["publish", "--bundles", bundle.parent, "--out", out / "site"]
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "verb", [*sorted(VERBS.keys() - {"publish"}), pytest.param("publish", marks=pytest.mark.slow)]
)
def test_no_verb_executes_or_copies_what_a_bundle_says(
    verb: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given, out = tmp_path / "deep/er/given", tmp_path / "deep/er/out"
    given.mkdir(parents=True)
    out.mkdir()
    bundle = hostile(given, name)
    (out / "secret.txt").write_text(SECRET)
    monkeypatch.chdir(out)
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(out)}
    try:
        status = VERBS[verb](bundle, out)
    except PagecageError as error:
        status, said = error.exit_code, error.message
    else:
        said = capsys.readouterr().err
    assert status == HOSTILE[name][1], said
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(out)} == before
    assert not [path for path in tmp_path.rglob("*") if path.name in ("pwned", "hacked")]
    printed = capsys.readouterr().out
    written = {path: path.read_text() for path in out.rglob("*") if path.suffix in PAGES}
    for where, text in {Path("standard output"): printed, **written}.items():
        assert "<script>alert" not in text, where
        assert "<img src=x" not in text, where
        assert SECRET not in text, where
        assert "<word-" not in text, "a redacted tag is a text too"
    if status == ACCEPTED and verb == "render" and name == "texts":
        assert any("&lt;script&gt;alert(1)" in text for text in written.values()), "it is shown"


PAGES = (".html", ".svg", ".md")
