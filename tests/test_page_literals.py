"""A guard against sizes of pages in sources: kernels for arm64 have pages of 4, 16 or 64 KiB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import ROOT, files

FOLDERS = (
    "pagecage",
    "analysis",
    "workloads",
    "volume/src",
    "experiments/programs",
    "tools",
    "ansible",
)
SUFFIXES = (".py", ".rs", ".c", ".h", ".java", ".sh", ".yml", "")
PAGE = re.compile(
    r"\b(?:409[567]|4_09[567]|0x1000|0x0?fff|PAGE_SIZE|PAGE_SHIFT|PAGESIZE)\b"
    r"|\b1 << 12\b|(?:<<|>>)=? ?12\b|\b4 \* (?:1024|KIB)\b|\b4 << 10\b"
)
NOT_PAGES = {
    "ansible/roles/survey/files/survey.sh": "a sample of a disk",
    "experiments/programs/make-orders": "pages of an SQLite file",
    "pagecage/agent/collectors/bpftrace.py": "flags of the kernel",
    "pagecage/agent/file_trees.py": "bytes of a probe",
    "pagecage/agent/volume_server.py": "blocks of a volume",
    "pagecage/cli/volume.py": "published sizes of I/Os",
    "pagecage/definitions/cage_file.py": "published sizes of I/Os, and blocks",
    "pagecage/definitions/trial_tables.py": "a number of files",
    "pagecage/hosts/vm/image.py": "GiB of a disk",
    "pagecage/hosts/volume_drive.py": "published sizes of I/Os",
    "pagecage/importers/kubernetes.py": "the page with which a kubelet rounds, as published",
    "pagecage/model/volume_model.py": "published sizes of I/Os",
    "pagecage/units.py": "the definitions themselves",
    "volume/src/fuse_abi.rs": "blocks of a volume",
    "volume/src/spec.rs": "blocks of a volume",
    "workloads/c/Makefile": "MiB of a fuzzer",
    "workloads/c/pcappend/direct.c": "blocks of a disk",
    "workloads/c/pcappend/in_flight.c": "blocks of a disk",
    "workloads/c/pcappend/method.h": "the length of a path",
    "workloads/c/pcappend/plan.c": "a number of records in flight",
    "workloads/c/pcappend/scratch.c": "the length of a path",
    "workloads/c/pcappend/syscalls.c": "the buffer of a stream",
    "workloads/c/pcappend/writer.c": "blocks of a disk",
    "workloads/c/pccrash/shared_state.h": "the length of a path",
    "workloads/c/pclog/sigbus.c": "a number of mappings",
    "workloads/c/pcscan/plan.c": "blocks of a disk, and the published bound of a stride",
    "workloads/c/pcscan/source.c": "the length of a path",
    "workloads/contract/src/index.rs": "the format of a file",
    "workloads/java/Arguments.java": "the format of a file",
    "workloads/java/Key.java": "the format of a file",
    "workloads/pcgen/src/arguments.rs": "an example",
    "workloads/pcprobe/src/phase.rs": "published sizes of I/Os",
    "workloads/pcread/src/arguments.rs": "blocks of a disk",
    "workloads/pcread/src/block_sequence.rs": "the default of an option",
    "workloads/pcread/src/positioned_read.rs": "blocks of a disk",
    "workloads/pcscan/src/arguments.rs": "the published bound of a stride",
    "workloads/pcscan/src/buffer.rs": "blocks of a disk",
}
"""Files with a number of the size of a page, and what it counts."""


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in files(ROOT / folder):
            is_test = "tests" in path.parts or "testbed" in path.parts
            if path.suffix in SUFFIXES and not is_test:
                yield path


def lines_with_a_page(text: str, suffix: str) -> list[str]:
    """Return the lines with a literal. Tests within a Rust source stand at its end."""
    code = text.split("#[cfg(test)]")[0] if suffix == ".rs" else text
    return [line.strip() for line in code.splitlines() if PAGE.search(line)]


def test_no_source_knows_the_size_of_a_page() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in sources()
        if (lines := lines_with_a_page(path.read_text(errors="replace"), path.suffix))
    }
    unknown = {name: lines for name, lines in found.items() if name not in NOT_PAGES}
    assert not unknown, "use kernel_page_bytes(), or name what it counts in NOT_PAGES"
    assert set(NOT_PAGES) <= set(found), "files that no longer have such a number"


@pytest.mark.parametrize(
    "line",
    [
        "PAGE = 4096",
        "n = (n + 4095) // 4096",
        "frame >> 12",
        "const P: usize = 1 << 12;",
        "x & 0xfff",
        "mmap.PAGESIZE",
        "4 * KIB",
        "4_096",
    ],
)
def test_a_page_is_found_in_every_spelling(line: str) -> None:
    assert lines_with_a_page(line, ".py") == [line]


def test_numbers_that_are_no_page_are_left_alone() -> None:
    assert lines_with_a_page("14096 + 40960 + 0x10000 + (1 << 121)", ".py") == []
    assert lines_with_a_page("a();\n#[cfg(test)]\nmod tests { 4096 }", ".rs") == []
