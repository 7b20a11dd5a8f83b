"""docs/SECURITY.md, sentence by sentence: the tests of what each one promises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from pagecage.agent.drivers.container import Container, options
from tests.tree import ROOT, files

PAGE = ROOT / "docs/SECURITY.md"
NOTHING = "nothing promised"
"""The mark of a sentence that describes, discloses or advises."""
TABLE = ROOT / "tests/fixtures/security_promises.txt"
"""Each sentence of the page, and below it the tests of what it promises."""


def rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence of the table with the indented lines below it."""
    for match in re.finditer(r"((?:^\S.*\n)+)((?:^    .*\n)+)", table, re.MULTILINE):
        yield " ".join(match[1].split()), [line.strip() for line in match[2].splitlines()]


_ENDS = re.compile(r"(?<=[.:;]) (?=[A-Z`*])")


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences, items and rows of a page, from its first heading of a section on."""
    for block in page[page.index("\n## ") :].split("\n\n"):
        lines = block.strip().splitlines()
        if lines[0].startswith("| "):
            for line in lines[2:]:
                yield " | ".join(map(str.strip, line.strip("| ").split("|")))
        elif not lines[0].startswith("#"):
            for item in re.split(r"\n(?=- )", block.strip()):
                yield from _ENDS.split(" ".join(item.removeprefix("- ").split()))


TESTS = dict(rows(TABLE.read_text()))


def test_each_sentence_is_in_the_table_and_no_other() -> None:
    assert list(sentences(PAGE.read_text())) == list(TESTS)


@cache
def names_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def missing(ids: list[str]) -> list[str]:
    """Return the node ids that name no test."""
    parts = [(one, *one.split("::")) for one in ids if one != NOTHING]
    return [
        one for one, path, name in parts if not (ROOT / path).exists() or name not in names_of(path)
    ]


def test_every_promise_has_tests_that_exist() -> None:
    assert {sentence: gone for sentence, ids in TESTS.items() if (gone := missing(ids))} == {}
    assert [sentence for sentence, ids in TESTS.items() if NOTHING in ids and len(ids) > 1] == []


def test_a_new_sentence_and_a_lost_test_are_seen() -> None:
    page = PAGE.read_text().replace("Styles are not restricted.", "Styles are not. Nor is more.")
    assert set(sentences(page)) - set(TESTS) == {"Styles are not.", "Nor is more."}
    own = "tests/test_security_page.py"
    lost = [f"{own}::test_gone", "tests/test_gone.py::test_x"]
    there = f"{own}::test_no_part_listens_on_a_network"
    assert missing([*lost, NOTHING, there]) == lost


_LISTENS = re.compile(
    r"\bAF_INET6?\b|\bINADDR_|TcpListener|UdpSocket|ServerSocket|HTTPServer|socketserver"
    r"|start_server|create_server|hostfwd=(?!tcp:127\.0\.0\.1:)|(?<!127\.0\.)0\.0\.0\.0"
)
SOURCES = ("pagecage", "analysis", "volume", "workloads", "tools", "containers", "ansible")


def test_no_part_listens_on_a_network() -> None:
    """No part that runs on a machine makes a server's socket other than a unix socket."""
    suffixes = (".py", ".rs", ".c", ".h", ".java", ".sh", ".yml", "")
    paths = [path for top in SOURCES for path in files(ROOT / top) if path.suffix in suffixes]
    assert len(paths) > 300
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        for match in _LISTENS.finditer(path.read_text(errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["socket.AF_INET", "TcpListener::bind", "hostfwd=tcp::22-:22", "host='0.0.0.0'"]
)
def test_a_socket_of_the_network_is_seen(text: str) -> None:
    assert _LISTENS.search(text)
    assert not _LISTENS.search("hostfwd=tcp:127.0.0.1:0-:22 AF_UNIX UnixListener")


def test_a_trials_container_is_a_limit_and_no_sandbox() -> None:
    words = options(Container("c", "pagecage-x.slice", ("true",), (), (), None, ()))
    assert {"--cap-add=ALL", "--network=host", "--pid=host"} < set(words)


def test_packages_are_installed_by_hash_and_crates_from_the_lock() -> None:
    """Continued lines count as one."""
    commands = [
        line
        for top in ("tools", "containers", "tests")
        for path in files(ROOT / top)
        if path.suffix in ("", ".sh", ".Containerfile") or path.name == "cargo.py"
        for line in path.read_text(errors="replace").replace("\\\n", " ").splitlines()
        if not line.lstrip().startswith("#")
    ]
    installs = [line for line in commands if re.search(r"\bpip install\b", line)]
    builds = [line for line in commands if re.search(r"(\bcargo (build|rustc|run)|\$rust) ", line)]
    assert len(installs) >= 4
    assert len(builds) >= 3
    by_hash = ("--require-hashes", "--no-index /wheel/")  # the second is made here
    assert [line for line in installs if not any(word in line for word in by_hash)] == []
    assert [line for line in builds if "--locked" not in line] == []
