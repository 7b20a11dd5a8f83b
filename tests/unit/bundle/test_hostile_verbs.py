"""Hostile bundles, given to every verb that reads a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagecage.bundle.pack import SUFFIX, pack
from pagecage.cli.bundle import render
from pagecage.cli.predict_page import stored_treatments
from pagecage.errors import PagecageError
from tests.builders.command_line import called
from tests.fixtures.hostile_bundles import NOTEBOOK, SCRIPT, scripted, with_files
from tests.fixtures.runs import build_run

FENCE = (
    "\n```\n```{include} secret.txt\n```\n{download}`secret.txt` ![x](secret.txt) [y](secret.txt)"
)
SECRET = "a text of the reader's machine"
REFUSED, ACCEPTED = 2, 0
Documents = tuple[dict[str, Any], list[dict[str, Any]]]


def named(key: str, name: str) -> Callable[..., Documents]:
    def change(plan: dict[str, Any], records: list[dict[str, Any]]) -> Documents:
        for part in (plan, *records):
            part[key] = name
        return plan, records

    return change


def texts(plan: dict[str, Any], records: list[dict[str, Any]]) -> Documents:
    plan["definition"] = scripted(plan["definition"])
    plan["definition"]["question"] += FENCE
    plan["size_reason"] = plan["command"] = SCRIPT
    for record in records:
        record |= {"error": SCRIPT, "exit": {**record["exit"], "stderr_tail": [SCRIPT]}}
    return plan, records


def levels(plan: dict[str, Any], records: list[dict[str, Any]]) -> Documents:
    """Give a factor's level the script as its name, everywhere."""
    text = json.dumps([plan, records]).replace('"random"', json.dumps(f"$\\bad${SCRIPT}"))
    changed, all_records = json.loads(text)
    return changed, all_records


HOSTILE: dict[str, tuple[Callable[..., Documents], int]] = {
    "texts": (texts, ACCEPTED),
    "levels": (levels, ACCEPTED),
    "run id": (named("run_id", "../../../../pwned"), REFUSED),
    "run id with a script": (named("run_id", SCRIPT), REFUSED),
    "experiment": (named("experiment", "../../pwned"), REFUSED),
    "host": (named("host", f"x/{SCRIPT}"), REFUSED),
}


def hostile(folder: Path, name: str) -> Path:
    """Write a bundle into a folder of bundles; return its path."""
    run = build_run(folder / "20261121T100000Z-constrained-random-vm")
    plan = json.loads((run / "plan.json").read_text())
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    plan.pop("plan_sha256", None)
    changed, told = HOSTILE[name][0](plan, records)
    files = {
        "plan.json": json.dumps(changed).encode(),
        "records.jsonl": "".join(json.dumps(one) + "\n" for one in told).encode(),
        "report.ipynb": json.dumps(NOTEBOOK).encode(),
    }
    pack(run, folder / "plain.zip", redacted=False)
    (folder / "bundles").mkdir()
    bundle = folder / "bundles" / f"hostile{SUFFIX}"
    with_files(folder / "plain.zip", bundle, files, run_id=changed["run_id"])
    return bundle


def predicted(bundle: Path, _out: Path) -> int:
    stored_treatments(bundle.parent, str(bundle), {})
    return ACCEPTED


VERBS: dict[str, Callable[[Path, Path], int]] = {
    "render": lambda bundle, out: render(bundle, out=out / "run"),
    "claims": lambda bundle, _: called(["claims", "--bundles", str(bundle.parent), "--markdown"]),
    "answers": lambda bundle, _: called(["answers", "--bundles", str(bundle.parent), "--markdown"]),
    "fidelity": lambda bundle, _: called(["fidelity", str(bundle.parent), "--markdown"]),
    "predict": predicted,
    "publish": lambda bundle, out: called(
        ["publish", "--bundles", str(bundle.parent), "--out", str(out / "site")]
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
