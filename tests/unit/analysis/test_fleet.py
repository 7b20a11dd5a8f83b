"""Tests of fleet runs: columns per host, ratios to the first, differing facts, lost hosts."""

from __future__ import annotations

import csv
import json
import shutil
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fleet import facts, load_fleet, member_sentence
from analysis.stats import median_of_hosts
from pagecage.errors import PagecageError
from tests.builders.command_line import called
from tests.builders.pages import loads_of
from tests.builders.run_edits import edit
from tests.builders.timed_runs import COLD, times
from tests.fixtures.fleets import build_fleet

values = st.lists(st.floats(0.1, 100), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet: `fast` and `slow` (30 % slower) ran the plan, `gone` was lost before any record."""
    changes = {"fast": times(1, 1), "slow": times(1.3, 2), "gone": times(1, 3)}
    return build_fleet(tmp_path_factory.mktemp("fleet") / "rack", changes, lost=["gone"])


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert called(words) == 0
    return capsys.readouterr().out


def test_each_host_is_a_column_and_the_ratio_is_to_the_first(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(shown(capsys, "show", fleet, "--json"))
    [row] = [row for row in data["rows"] if row["treatment"] == COLD]
    assert list(row["hosts"]) == ["fast", "slow"]
    assert row["hosts"]["fast"]["summary"]["middle"] == pytest.approx(1, rel=0.02)
    assert row["ratios"]["slow"]["ratio"]["middle"] == pytest.approx(1.3, rel=0.03)
    assert row["ratios"]["slow"]["word"] == "higher"
    assert row["all_hosts"] is None, "hosts that each ran the plan are not thrown together"


def test_a_lost_host_is_named_with_its_reason(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(shown(capsys, "show", fleet, "--json"))
    assert [host["host"] for host in data["hosts"]] == ["fast", "slow", "gone"]
    counts = {"run_id": None, "planned": 96, "answered": 0}
    end = {"outcome": "lost", "reason": "Connection refused"}
    assert data["hosts"][2] == {"host": "gone", **counts, **end}
    assert data["left_out"] == {"off": "No route to host"}
    text = shown(capsys, "show", fleet)
    assert "off: left out: No route to host" in text
    assert "gone: 0 of 96 trials have an answer; lost: Connection refused" in text


def test_what_differs_between_hosts_is_marked(fleet: Path) -> None:
    data = facts(load_fleet(fleet))
    assert data["hostname"] == ("fast", "slow")
    alike = {name for name, values in data.items() if len(set(values)) == 1}
    assert alike == data.keys() - {"hostname"} == {"kernel", "cpus", "memory_bytes", "qemu"}


def test_hosts_of_one_plan_are_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"a": times(1, 1), "b": times(1.2, 2)}
    folder = build_fleet(tmp_path / "spread", changes, "spread", repeats=3)
    data = json.loads(shown(capsys, "show", folder, "--json"))
    [row] = [row for row in data["rows"] if row["treatment"] == COLD]
    together = row["all_hosts"]
    assert (together["n"], together["kind"]) == (6, "range of medians")
    middles = [row["hosts"][host]["summary"]["middle"] for host in ("a", "b")]
    assert [together["low"], together["high"]] == pytest.approx(middles)
    assert together["low"] < together["middle"] < together["high"]
    assert "all hosts" in shown(capsys, "show", folder)


@given(st.lists(values, min_size=6, max_size=8))
def test_an_interval_of_many_blocks_lies_within_what_was_seen(blocks: list[list[float]]) -> None:
    pooled = median_of_hosts(blocks)
    flat = [value for block in blocks for value in block]
    assert min(flat) <= pooled.low <= pooled.high <= max(flat)
    assert (pooled.n, pooled.kind) == (len(flat), "95 %")


def test_blocks_that_differ_widen_the_interval() -> None:
    """With thirty values in six blocks, blocks that differ have the wider interval."""
    alike = median_of_hosts([[1.0, 2.0, 3.0, 4.0, 5.0]] * 6)
    apart = median_of_hosts([[float(n)] * 5 for n in range(1, 7)])
    assert apart.high - apart.low > alike.high - alike.low


def test_the_median_of_no_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_of_hosts([])


def test_the_fleet_page_loads_nothing_and_has_the_terminals_texts(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(shown(capsys, "show", fleet, "--html").strip())
    assert page == fleet / "report.html"
    text = page.read_text()
    assert loads_of(text) == []
    for words in (
        *("A fast", "B slow", "B / A", "lost: Connection refused", "left out: No route"),
        *("Facts in which the hosts differ", "<svg"),
    ):
        assert words in text


def test_a_fleet_of_one_host_has_a_page_without_ratios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = build_fleet(tmp_path / "alone", {"fast": times(1, 1)}, repeats=3)
    text = Path(shown(capsys, "show", alone, "--html").strip()).read_text()
    assert "A fast" in text
    assert "B / A" not in text


def test_csv_has_a_line_for_each_treatment_and_host(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.DictReader(StringIO(shown(capsys, "show", fleet, "--csv"))))
    assert len(rows) == 24
    assert {row["host"] for row in rows} == {"fast", "slow"}
    killed = [row for row in rows if row["cage"] == "tenth" and row["source"] == "heap"]
    assert {(row["median"], row["killed"]) for row in killed} == {("", "8")}


def test_markdown_shows_only_what_differs(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = shown(capsys, "show", fleet, "--markdown")
    assert "| hostname | fast | slow |" in data
    assert "kernel" not in data


def test_a_fleet_without_any_record_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_fleet(tmp_path / "none", {"a": times(1)}, lost=["a"], repeats=3)
    assert json.loads(shown(capsys, "show", folder, "--json"))["rows"] == []
    assert shown(capsys, "show", folder, "--csv").count("\n") == 1
    page = Path(shown(capsys, "show", folder, "--html").strip()).read_text()
    terminal, markdown = shown(capsys, "show", folder), shown(capsys, "show", folder, "--markdown")
    assert all("No host has a record yet." in text for text in (page, terminal, markdown))


def test_a_lost_host_has_a_sentence_with_the_reason(fleet: Path) -> None:
    part = load_fleet(fleet).members[2]
    assert member_sentence(part).endswith("lost: Connection refused")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"fleet_version": 2, "run_id": "", "hosts": {}}']
)
def test_an_invalid_fleet_document_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "fleet.json").write_text(content)
    with pytest.raises(PagecageError, match=r"fleet\.json"):
        load_fleet(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hosts", {"../fleet/hosts/fast": "3f"}),
        ("hosts", {".hidden": "3f"}),
        ("run_id", "../x"),
        ("experiment", "a/b"),
        ("group", "a\x1b[2J"),
        ("mode", 7),
    ],
)
def test_a_fleet_names_nothing_outside(
    fleet: Path, tmp_path: Path, key: str, value: object
) -> None:
    folder = shutil.copytree(fleet, tmp_path / "fleet")
    edit(folder / "fleet.json", lambda document: document.update({key: value}))
    with pytest.raises(PagecageError, match="is not an identifier"):
        load_fleet(folder)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"host"; "fast"}', "is damaged"),
        ('"fast"', "is not the result of a round"),
        ('{"host": "../x"}', "is not the result of a round"),
    ],
)
def test_a_damaged_round_is_named(fleet: Path, tmp_path: Path, line: str, says: str) -> None:
    folder = shutil.copytree(fleet, tmp_path / "fleet")
    rounds = folder / "rounds.jsonl"
    rounds.write_text(f"{line}\n{rounds.read_text()}")
    with pytest.raises(PagecageError, match=rf"rounds\.jsonl:1 {says}"):
        load_fleet(folder)
    rounds.write_text(rounds.read_text().partition("\n")[2] + '{"host": "fast", "ou')
    assert len(load_fleet(folder).members) == 3, "a kill cut the last line off"
