"""Statements of the documents: commands exist, formats are those of the code, paths exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError, MissingArgumentError

from pagecage import errors
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.collectors.custom import CustomFigures
from pagecage.agent.collectors.tracer import TracerProgram
from pagecage.agent.phases import PHASES
from pagecage.agent.responses import STANDARD_RESPONSES
from pagecage.cli.articles import schemas
from pagecage.cli.main import app
from pagecage.eviction import CommandRun, cold
from pagecage.linux.procfs import DISKSTATS_FIELDS
from pagecage.model.json_codec import Json
from pagecage.model.plan import plan_to_json
from pagecage.model.record import OUTCOMES, RECORD_VERSION, Record
from pagecage.model.trial import Trial
from pagecage.verify.comparison import STATES
from pagecage.verify.target import Subject
from pagecage.verify.verification import verify
from tests.builders.documents import FENCED, FORMAT, as_line, keys, shown
from tests.builders.plans import BASE, CHOICES, plan_of
from tests.builders.verified import SLICE, VDB, VerifiedMachine
from tests.order.conftest import on_disk
from tests.record_schema import PATH, breaches
from tests.tree import ROOT, files

DOCUMENTS = [path for path in files(ROOT, ".md") if "notebooks" not in path.parts]
GUIDES = [path for path in DOCUMENTS if "decisions" not in path.parts]
MAKEFILE = (ROOT / "Makefile").read_text()
INLINE = re.compile(r"`((?:make|pagecage) [^`]+)`")
PATHS = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")


def commands(text: str) -> list[str]:
    lines = [*shown(text), *INLINE.findall(text)]
    return [line for line in lines if re.match(r"(make|pagecage) \S", line)]


ALL_COMMANDS = sorted(
    {(path.name, command) for path in DOCUMENTS for command in commands(path.read_text())}
)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", MAKEFILE, re.MULTILINE))


def make_variables() -> set[str]:
    return set(re.findall(r"^([A-Z]+) \?=", MAKEFILE, re.MULTILINE))


def complaint(command: str) -> str | None:
    """Return what is wrong with a command in a document, or None. Nothing is run.

    The words after `>` are the shell's.
    """
    program, *words = shlex.split(command, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    return _make_complaint(words) if program == "make" else _pagecage_complaint(words)


def _make_complaint(words: list[str]) -> str | None:
    targets = [word for word in words if "=" not in word]
    variables = [word.partition("=")[0] for word in words if "=" in word]
    unknown = [*({*targets} - make_targets()), *({*variables} - make_variables())]
    if not targets:
        return "make is given no target"
    return f"make knows no {unknown[0]}" if unknown else None


def _pagecage_complaint(words: list[str]) -> str | None:
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        return None  # a sentence may name a verb without its argument
    except CycloptsError as error:
        is_readers_own = str(error).endswith(" does not exist")  # a file that only the reader has
        return None if is_readers_own else str(error)
    return None


def test_the_documents_show_commands() -> None:
    assert len(ALL_COMMANDS) > 10
    assert any(line.startswith("make demo") for name, line in ALL_COMMANDS if name == "README.md")
    assert any(command.startswith("pagecage ") for _, command in ALL_COMMANDS)


@pytest.mark.parametrize(("document", "command"), ALL_COMMANDS)
def test_every_command_that_is_shown_exists(document: str, command: str) -> None:
    assert complaint(command) is None


@pytest.mark.parametrize(
    "command",
    [
        *("make experimnt", "make experiment NAM=x", "make NAME=x", "pagecage rnu x"),
        *("pagecage run x --hots vm", "pagecage run x --repeats many", "pagecage host up mv"),
        *("pagecage run x --fresh sometimes", "pagecage articles claims --markdwn > page.md"),
    ],
)
def test_a_command_that_does_not_exist_is_seen(command: str) -> None:
    assert complaint(command) is not None


def test_blocks_of_either_kind_are_read() -> None:
    block = "```sh\n$ pagecage run \\\n  x\ncat y\n```"
    text = f"Do\n\n    make list   # all\n\nor\n\n{block}\nand `make doctor`.\n"
    found = [" ".join(command.split()) for command in commands(text)]
    assert found == ["pagecage run x", "make list # all", "make doctor"]


SWALLOWED = re.compile(r"^(?:\n|\A)([^\s|>*#-][^\n]*)\n {4}\S", re.MULTILINE)
"""A paragraph of one line with a block of code as its second: Markdown joins them."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_block_of_commands_is_swallowed_by_a_paragraph(document: Path) -> None:
    text = FENCED.sub("", document.read_text())
    assert [line for line in SWALLOWED.findall(text) if not re.match(r"\d+\.", line)] == []


def test_a_swallowed_block_is_seen() -> None:
    assert SWALLOWED.findall("# Title\n\nmake wheel\n    pipx install x\n") == ["make wheel"]
    assert SWALLOWED.findall("Do this:\n\n    make wheel\n    pipx\n\n- a list\n    of\n") == []


@pytest.mark.parametrize("document", GUIDES, ids=lambda path: path.name)
def test_every_path_that_is_named_is_there(document: Path) -> None:
    """Paths are relative to the project. Paths that a run or a build makes are known by their first
    folder.
    """
    top = {path.name for path in ROOT.iterdir()}
    top -= {"runs", "build", "target", ".venv", ".venv-ansible"}
    named = {path for path in PATHS.findall(document.read_text()) if path.split("/")[0] in top}
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(FENCED.sub("", text))
    }


def dead_links(document: Path, text: str) -> list[str]:
    """Return the relative links of a document whose file or heading does not exist."""
    dead = []
    for target in LINK.findall(without_code(text)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        is_page = file.suffix == ".md" and file.is_file()
        if not file.exists() or (anchor and is_page and anchor not in anchors(file.read_text())):
            dead.append(target)
    return dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert dead_links(document, document.read_text()) == []


def test_a_dead_link_is_seen() -> None:
    page = ROOT / "docs/GATES.md"
    text = "[a](FORMAT.md#plan.json) [b](GLOSSARY.md) `[c](gone.md)` [d](gone.md) [e](#history)"
    assert dead_links(page, text) == ["FORMAT.md#plan.json", "gone.md", "#history"]
    assert dead_links(page, "[f](FORMAT.md#planjson) [g](#a-history) ![h](gallery/site.png)") == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    named = {target.partition("#")[0] for target in LINK.findall(index)}
    assert pages - named == set()


def test_the_first_page_fits_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def rows_of(section: str) -> dict[str, str]:
    """Return the rows of tables that begin with code: first cell -> the rest."""
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    rows = (line.strip("|").split("|", 1) for line in lines)
    return {first.strip(): rest for first, rest in rows}


def documented(heading: str) -> dict[str, str]:
    """Return the rows under a heading of FORMAT.md."""
    return rows_of(FORMAT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0])


def record_rows() -> dict[str, str]:
    return rows_of(FORMAT.split("## records.jsonl", 1)[1].split("### Responses", 1)[0])


def documented_responses() -> set[str]:
    return keys(list(rows_of(FORMAT.split("### Responses", 1)[1].split("### Traces", 1)[0])))


def schema_of(path: Path = PATH) -> Json:
    loaded: Json = json.loads(path.read_text())
    return loaded


def test_a_records_keys_are_the_same_in_code_schema_and_document() -> None:
    in_code = {field.name for field in fields(Record)}
    assert set(schema_of()["properties"]) == in_code
    newer = {"disks", "page_bytes", "record_sha256", "machine", "conditions", "trace_files"}
    assert set(schema_of()["required"]) == in_code - newer, "older records lack them"
    assert schema_of()["additionalProperties"] is False
    assert keys(list(record_rows())) == in_code


def nested_keys(schema: object, path: str = "$") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each key below the top of a schema by its path, with its own schema."""
    if isinstance(schema, list):
        for part in schema:
            yield from nested_keys(part, path)
    if not isinstance(schema, dict):
        return
    for name, part in (schema.get("properties") or {}).items():
        yield f"{path}.{name}", part
        yield from nested_keys(part, f"{path}.{name}")
    for word in ("items", "additionalProperties", "anyOf", "oneOf"):
        yield from nested_keys(schema.get(word), path)


def test_the_schema_says_what_a_key_within_a_record_means() -> None:
    """FORMAT.md has the keys of a record, and refers to the schema for those within them."""
    described = {path for path, part in nested_keys(schema_of()) if part.get("description")}
    inner = {path.rpartition(".")[0] for path in dict(nested_keys(schema_of()))} - {"$"}
    outer = {path for path in inner if path.count(".") == 1}
    assert len(outer) > 15
    assert outer - described == set()
    defined = dict(nested_keys({"properties": schema_of()["$defs"]}))
    named = ("reading", "cache_look", "settings", "processes")
    looks = {path for path in defined if path.split(".")[1] in named and path.count(".") == 2}
    assert {p for p in looks if not defined[p].get("description")} == set()


def test_outcomes_and_phases_are_the_same_in_code_schema_and_document() -> None:
    schema = schema_of()
    phases = [*PHASES, "cleanup"]
    assert schema["properties"]["outcome"]["enum"] == list(OUTCOMES)
    assert schema["properties"]["phase"]["enum"] == [*phases[:-1], "record"]
    assert schema["$defs"]["phase"]["properties"]["name"]["enum"] == phases
    assert schema["properties"]["record_version"]["const"] == RECORD_VERSION
    assert " ".join(OUTCOMES) in record_rows()["`outcome`"]
    assert f"`{' '.join(phases)}`" in record_rows()["`phases`"]


def test_responses_are_the_same_in_schema_and_document() -> None:
    in_schema = set(schema_of()["properties"]["response"]["properties"])
    assert in_schema == documented_responses()
    assert in_schema > STANDARD_RESPONSES, "what a workload tells of itself stands beside them"


def test_collectors_outcomes_are_as_documented() -> None:
    entry = schema_of()["properties"]["collectors"]["additionalProperties"]
    own = {field.name for field in fields(CustomFigures)}
    own |= {*TracerProgram("", (), ()).to_json(), "missed_events"}
    assert set(entry["properties"]) == {*CollectorResult("ok").to_json(), *own}
    assert set(entry["required"]) == set(CollectorResult("ok").to_json())
    for status in entry["properties"]["status"]["enum"]:
        assert f"`{status}`" in record_rows()["`collectors`"]


def test_a_trial_and_a_plan_are_as_documented() -> None:
    reported = FORMAT.split("A **trial**: `", 1)[1].split("`", 1)[0]
    assert set(re.sub(r"\{[^}]*\}", "", reported).split()) == {
        field.name for field in fields(Trial)
    }
    optional: Json = {
        "budget_seconds": 180.0,
        "expected_seconds": 100.0,
        "treatment": {"a": ("1",)},
    }
    plan = plan_of(replace(BASE, factors={"a": ("1",)}), replace(CHOICES, **optional))
    assert keys(list(documented("plan.json"))) == set(plan_to_json(plan))


def test_exit_codes_are_as_documented() -> None:
    page = (ROOT / "docs/EXIT_CODES.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    in_code = {**errors.EXIT_CODES, **errors.RUNNER_EXIT_CODES}
    assert [(int(code), text) for code, text in rows] == list(in_code.items())
    names = [name for name in vars(errors) if name.startswith("EXIT_") and name != "EXIT_CODES"]
    assert {getattr(errors, name) for name in names} == set(in_code)
    assert all(f"`{verb}`" in page for verb in errors.RUNNERS)


def test_the_disks_fields_are_the_kernels() -> None:
    assert DISKSTATS_FIELDS[:4] == ("reads", "reads_merged", "sectors_read", "read_ms")
    assert "reads sectors_read" in FORMAT


@pytest.mark.parametrize("name", sorted(schemas()))
def test_the_stored_schemas_are_those_of_the_code(name: str) -> None:
    """`pagecage articles schema` updates them."""
    assert json.loads((ROOT / "docs/schema" / name).read_text()) == schemas()[name]


SAR = {"reason": None, "lost_events": None}


def test_a_right_record_obeys_the_schema() -> None:
    assert breaches(as_line()) == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"surprise": 1}, "$"),
        ({"outcome": "splendid"}, "$.outcome"),
        ({"phase": "lunch"}, "$.phase"),
        ({"attempt": 0}, "$.attempt"),
        ({"response": {"speed": "fast"}}, "$.response"),
        ({"response": {"read_seconds": "soon"}}, "$.response.read_seconds"),
        ({"counters": {"during": {}}}, "$.counters"),
        ({"outer_host": {"before": {"unix_seconds": 1.0}}}, "$.outer_host"),
        ({"exit": {"status": None}}, "$.exit.status"),
        ({"cage": {"limits": {}}}, "$.cage"),
        ({"collectors": {"sar": {**SAR, "status": "fine"}}}, "$.collectors.sar.status"),
        ({"plan_sha256": "0"}, "$.plan_sha256"),
    ],
)
def test_a_wrong_record_is_seen(change: dict[str, object], where: str) -> None:
    line = {**as_line(), **change}
    assert [breach for breach in breaches(line) if breach.startswith(where)]


def test_a_probes_keys_are_as_documented() -> None:
    probe = json.loads((ROOT / "tests/fixtures/imports/probe.json").read_text())
    reported = documented("probe.json")
    assert keys(list(reported)) == set(probe) | set(probe["summary"])
    for key in ("asked", "engine", "file", "machine", "cgroup", "storage"):
        assert all(re.search(rf"\b{name}\b", reported[f"`{key}`"]) for name in probe[key]), key
    assert all(re.search(rf"\b{name}\b", reported["`phases`"]) for name in probe["phases"][0])


__all__ = ["on_disk"]


def names_all(row: str, names: Iterable[str]) -> bool:
    return all(name in row for name in names)


@pytest.fixture
def verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    machine = VerifiedMachine(tmp_path)
    machine.make()
    monkeypatch.setenv("PATH", machine.path())
    io_max = f"{VDB} rbps=max wbps=max riops=500 wiops=max"
    machine.cgroup(f"{SLICE}/a.service", (7,), io__max=io_max)
    machine.unit(f"{SLICE}/a.service", MemoryMax="4096")
    return verify(Subject(unit="a.service"), 0.6, machine.kernel).to_json()


def test_a_verifications_keys_are_as_documented(verification: dict[str, Any]) -> None:
    rows = documented("Output of `pagecage inspect --json`")
    assert keys(list(rows)) == set(verification)
    for key in ("limits", "requested", "bound"):
        assert names_all(rows[f"`{key}`"], verification[key][0]), key
    assert names_all(rows["`waited`"], verification["waited"])
    assert f"`{' '.join(STATES)}`" in rows["`requested`"]


def test_a_certificates_keys_are_as_documented(on_disk: Path) -> None:
    (on_disk / "x").write_bytes(b"x")
    found, rows = cold([on_disk / "x"]).to_json(), documented("Cold certificate")
    assert keys(list(rows)) == set(found)
    assert names_all(rows["`files`"], found["files"][0])
    assert names_all(rows["`run`"], (field.name for field in fields(CommandRun)))
