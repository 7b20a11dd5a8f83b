"""Folders with no run or an incomplete one: a sentence and exit status 2; nothing changes."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.model.record import read_records
from tests.builders.command_line import called
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
def folder(tmp_path):
    return build_run(tmp_path / "run")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run with few records, for tests that read it very often."""
    folder = build_run(tmp_path_factory.mktemp("kept") / "run")
    lines = (folder / "records.jsonl").read_text().splitlines()
    (folder / "records.jsonl").write_text("\n".join(lines[:14]) + "\n")
    return folder


def says(folder, capsys, *form):
    """Return the refusal; it is short, and no traceback."""
    before = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else None
    assert called(["show", str(folder), *form]) == 2
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
def test_lines_that_somebody_else_wrote(folder, capsys, line, told):
    with (folder / "records.jsonl").open("a") as file:
        file.write(line + "\n")
    assert told in says(folder, capsys)


def test_a_record_that_was_cut_off_is_left_out(folder, capsys):
    data = (folder / "records.jsonl").read_bytes()
    whole = len(list(read_records(folder / "records.jsonl")))
    (folder / "records.jsonl").write_bytes(data[:-200])
    assert len(list(read_records(folder / "records.jsonl"))) == whole - 1
    assert called(["show", str(folder)]) == 0
    assert "35 included, 1 not" in capsys.readouterr().out


@pytest.mark.parametrize("form", [[], ["--html"]])
def test_an_empty_run(folder, capsys, form):
    (folder / "records.jsonl").write_text("")
    assert "has no record yet" in says(folder, capsys, *form)


def changed(folder, **changes):
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    lines[3] |= changes
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


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
def test_records_of_other_runs_or_of_the_wrong_kind(folder, capsys, changes, told):
    changed(folder, **changes)
    assert told in says(folder, capsys)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{", "not valid JSON"),
        ("{}", "lacks 'run_id'"),
        ("\0", "not valid JSON"),
        ('{"plan_version": 2}', "format version 2"),
    ],
)
def test_plans_that_are_none(folder, capsys, content, told):
    (folder / "plan.json").write_text(content)
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
def test_plans_of_the_wrong_kind(folder, capsys, change):
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, **change}))
    assert "plan.json" in says(folder, capsys)


@pytest.mark.parametrize("content", ["{", "[]", "\0"])
def test_facts_that_are_none(folder, capsys, content):
    (folder / "facts/b-1.json").write_text(content)
    assert "facts" in says(folder, capsys)


def test_no_folder_at_all(tmp_path, capsys):
    assert "there is no run" in says(tmp_path / "nothing", capsys)


def test_a_report_that_is_there_stays_until_the_new_one_is_whole(folder, capsys, monkeypatch):
    from analysis.views import render

    for name in ("report.ipynb", "report.html"):
        (folder / name).write_text("the old one")
    report_source = render.SOURCE.read_text()
    monkeypatch.setattr(render, "SOURCE", folder / "source.py")
    (folder / "source.py").write_text(report_source.replace("results.heading", "1 / 0"))
    assert called(["show", str(folder), "--html"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert {(folder / name).read_text() for name in ("report.ipynb", "report.html")} == {
        "the old one"
    }
    assert "ZeroDivisionError" in (folder / "report.failed.ipynb").read_text()
    assert [path for path in folder.iterdir() if path.name.startswith(".")] == []


def places(value, path=()):
    """Every place within a record."""
    yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inner:
        yield from places(one, (*path, key))


def with_at(value, path, put):
    """The record with something else at a place, or without it."""
    spoilt = copy.deepcopy(value)
    place = spoilt
    for key in path[:-1]:
        place = place[key]
    if put is DELETE:
        del place[path[-1]]
    else:
        place[path[-1]] = put
    return spoilt


DELETE = object()


@settings(suppress_health_check=list(HealthCheck))
@given(
    number=st.integers(0, 13),
    at=st.integers(0, 10**6),
    put=ODD | st.just(DELETE),
    form=st.sampled_from(FORMS),
)
def test_whatever_stands_in_a_record_is_read_or_refused(kept, capsys, number, at, put, form):
    lines = (kept / "records.jsonl").read_text().splitlines()
    record = json.loads(lines[number])
    known = list(places(record))[1:]
    spoilt = with_at(record, known[at % len(known)], put)
    folder = kept.with_name("spoilt")
    folder.mkdir(exist_ok=True)
    for name in ("plan.json", "facts", "trials"):
        if not (folder / name).exists():
            (folder / name).symlink_to(kept / name)
    (folder / "records.jsonl").write_text(
        "\n".join([*lines[:number], json.dumps(spoilt), *lines[number + 1 :]]) + "\n"
    )
    status = called(["show", str(folder), *form])
    told = capsys.readouterr()
    assert status in (0, 2), told.err
    assert bool(told.err) == (status == 2)
