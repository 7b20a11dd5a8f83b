"""The scripts of experiments/programs: equal data from equal seeds, and checked answers."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from pagecage.process import Completed, run
from tests.tree import ROOT

PROGRAMS = ROOT / "experiments/programs"
COMMITS, FILES = 30, 20


def start(name: str, *words: object) -> Completed:
    return run([PROGRAMS / name, *map(str, words)], check=False, timeout_seconds=60)


def make(name: str, directory: Path, *words: object) -> Path:
    directory.mkdir()
    made = start(name, directory, *words)
    assert made.ok, made.stderr
    return directory


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("make-orders", tmp_path_factory.mktemp("orders") / "data", 3200, 5, 1)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository") / "data"
    return make("make-repository", folder, COMMITS, FILES, 1)


def rows(directory: Path) -> str:
    database = sqlite3.connect(directory / "orders.db")
    text = repr(database.execute("SELECT * FROM orders").fetchall())
    database.close()
    return hashlib.sha256(text.encode()).hexdigest()


def test_orders_come_from_the_seed(orders: Path, tmp_path: Path) -> None:
    again = make("make-orders", tmp_path / "again", 3200, 5, 1)
    other = make("make-orders", tmp_path / "other", 3200, 5, 2)
    assert rows(again) == rows(orders) != rows(other)
    assert (again / "lookups.expected").read_text() == (orders / "lookups.expected").read_text()


@pytest.mark.parametrize("queries", ["lookups", "scan"])
@pytest.mark.parametrize("mmap_bytes", [0, 1 << 30])
def test_orders_are_answered_as_they_were_generated(
    orders: Path, queries: str, mmap_bytes: int
) -> None:
    done = start("query-orders", orders, queries, mmap_bytes)
    assert done.ok, done.stderr


@pytest.mark.parametrize("queries", ["lookups", "scan"])
def test_another_amount_is_a_wrong_answer(tmp_path: Path, queries: str) -> None:
    directory = make("make-orders", tmp_path / "data", 160, 10, 1)
    database = sqlite3.connect(directory / "orders.db")
    database.execute("UPDATE orders SET amount = amount + 1 WHERE id = 80")
    database.commit()
    database.close()
    done = start("query-orders", directory, queries, 0)
    assert not done.ok
    assert "not those of the generated rows" in done.stderr


def log_of(directory: Path, name: str) -> str:
    return run(["git", "-C", directory / name, "rev-parse", "main"]).stdout


def test_a_history_comes_from_the_seed_and_both_packs_have_it(
    repository: Path, tmp_path: Path
) -> None:
    again = make("make-repository", tmp_path / "again", COMMITS, FILES, 1)
    other = make("make-repository", tmp_path / "other", COMMITS, FILES, 2)
    heads = {log_of(repository, name) for name in ("imported.git", "repacked.git")}
    assert heads == {log_of(again, "imported.git")}
    assert log_of(other, "imported.git") not in heads


@pytest.mark.parametrize("name", ["imported.git", "repacked.git"])
@pytest.mark.parametrize("command", ["log", "stat"])
def test_a_history_is_counted_as_it_was_generated(
    repository: Path, name: str, command: str
) -> None:
    done = start("log-repository", repository, name, command)
    assert done.ok, done.stderr
    commits, files, *_ = (repository / "expected").read_text().split()
    assert (int(commits), int(files)) == (COMMITS, FILES + 3 * (COMMITS - 1))


@pytest.mark.parametrize(("command", "count"), [("log", 0), ("stat", 2)])
def test_another_count_is_a_wrong_answer(tmp_path: Path, command: str, count: int) -> None:
    directory = make("make-repository", tmp_path / "data", 5, 4, 1)
    counts = (directory / "expected").read_text().split()
    counts[count] = str(int(counts[count]) + 1)
    (directory / "expected").write_text(" ".join(counts) + "\n")
    done = start("log-repository", directory, "imported.git", command)
    assert not done.ok
    assert "as generated" in done.stderr
