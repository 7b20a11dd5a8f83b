"""The choice of probes by what a kernel has, and the syntaxes of bpftrace's versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.collectors import blocklat, bpftrace
from pagecage.agent.collectors.tracer import Part, TracerProgram, programs
from tests.fake_host import trees

FUNCTIONS = ("filemap_fault", "page_cache_ra_order", "submit_bio", "bio_endio")
FAULTS = {
    "filemap:mm_filemap_fault": ("i_ino", "index"),
    "filemap:mm_filemap_add_to_page_cache": ("i_ino", "index", "order"),
}
READAHEAD = {"readahead:page_cache_ra_order": ("i_ino", "size", "order", "ra_pages")}
REQUESTS = {
    "block:block_rq_issue": ("dev", "sector", "nr_sector", "rwbs"),
    "block:block_rq_complete": ("dev", "sector"),
}
PAUSES = {"writeback:balance_dirty_pages": ("bdi", "pause")}
EVERY = {**FAULTS, **READAHEAD, **REQUESTS, **PAUSES}
OF_ARGUMENTS = ("filemap_fault.vm_flags", "filemap_fault.fault_flags", "filemap_fault.ra_pages")


def made(root: Path, parts: tuple[Part, ...], **kernel: Any) -> list[TracerProgram]:
    return list(programs(parts, trees.kernel(root, **kernel)))


def kinds(program: TracerProgram) -> set[str]:
    return {probe.partition(":")[0] for probe in program.probes}


def test_fentry_is_tried_first_then_kprobes_then_tracepoints(tmp_path: Path) -> None:
    found = made(tmp_path, bpftrace.parts(), functions=FUNCTIONS, tracepoints=EVERY)
    assert [(kinds(program), program.unavailable) for program in found] == [
        ({"fentry", "fexit"}, ()),
        ({"kprobe", "kretprobe"}, ()),
        ({"tracepoint"}, (*OF_ARGUMENTS, "filemap_fault_return")),
    ]


def test_without_kprobes_or_types_they_are_not_tried(tmp_path: Path) -> None:
    for kernel in ({"kprobes": False}, {"btf": False}):
        folder = tmp_path / str(kernel)
        found = made(folder, bpftrace.parts(), functions=FUNCTIONS, tracepoints=EVERY, **kernel)
        assert "kprobe" not in set().union(*map(kinds, found))
        assert kinds(found[-1]) == {"tracepoint"}


def test_a_function_that_an_older_kernel_lacks_is_left_to_a_tracepoint(tmp_path: Path) -> None:
    kernel = {"functions": ("filemap_fault",), "tracepoints": EVERY}
    [_, second, *_] = made(tmp_path, bpftrace.parts(), **kernel)
    assert second.probes == [
        "fentry:vmlinux:filemap_fault",
        "fexit:vmlinux:filemap_fault",
        "tracepoint:readahead:page_cache_ra_order",
    ]
    assert second.unavailable == ()


def test_a_tracepoint_without_a_needed_argument_is_not_used(tmp_path: Path) -> None:
    old = {**EVERY, "filemap:mm_filemap_add_to_page_cache": ("i_ino", "index")}
    [program] = made(tmp_path, bpftrace.parts(), btf=False, tracepoints=old)
    assert program.probes == ["tracepoint:readahead:page_cache_ra_order"]
    assert program.unavailable == ("filemap_fault", "filemap_fault_return")


def test_no_tracepoint_stands_for_the_submission_of_a_bio(tmp_path: Path) -> None:
    found = made(tmp_path, blocklat.PARTS, functions=FUNCTIONS, tracepoints=EVERY)
    assert [(kinds(program), program.unavailable) for program in found] == [
        ({"fentry", "tracepoint"}, ()),
        ({"kprobe", "tracepoint"}, ()),
        ({"tracepoint"}, ("bio_write_us",)),
    ]


def test_a_kernel_without_any_has_no_program(tmp_path: Path) -> None:
    assert made(tmp_path, bpftrace.parts(), btf=False) == []


@pytest.mark.parametrize(
    ("version", "first", "argument"),
    [
        ("bpftrace v0.17.0", "kfunc:vmlinux:f", "args->x"),
        ("bpftrace v0.19.1", "kfunc:vmlinux:f", "args.x"),
        ("bpftrace v0.20.2", "fentry:vmlinux:f", "args.x"),
        ("bpftrace v1.0", "fentry:vmlinux:f", "args.x"),
        ("does not answer", "fentry:vmlinux:f", "args.x"),
    ],
)
def test_each_version_gets_its_syntax(version: str, first: str, argument: str) -> None:
    program = TracerProgram("fentry:vmlinux:f { @n[args.x] = count(); }\n", ("@n",), ())
    assert program.script(version).startswith(f"{first} {{ @n[{argument}] = count(); }}\n")
