"""A fio job as a trial needs it: the trial's options under settings that no experiment may change (fio(1))."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.process import find_tool, run

JOB, REPORT = "fio-job.fio", "fio.json"
_LOG_EVERY_MS = 100


def options_of(arguments: Iterable[str]) -> dict[str, str]:
    """Job options by name; the last of equals counts, as in fio."""
    return {name: value for name, _, value in (argument.partition("=") for argument in arguments)}


def job_text(files: Sequence[Path], options: Sequence[str], directory: Path, max_seconds: float | None) -> str:
    """The job file.

    `invalidate=0`: by default fio drops the files from the page cache when it begins, and with them the cache state
    that was reached and proven. `group_reporting` is left out, so that each job's figures stand for themselves.
    """
    names = ":".join(str(path).replace(":", "\\:") for path in files)
    logs = directory / "fio"
    lines = [
        "[global]", f"filename={names}", "invalidate=0", f"write_bw_log={logs}", f"write_lat_log={logs}",
        f"log_avg_msec={_LOG_EVERY_MS}", "per_job_logs=0",
        *([f"runtime={max_seconds:g}"] if max_seconds is not None else []), "[trial]", *options,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def fio_command(job: str, directory: Path) -> list[str]:
    """Write the job file and give the command that runs it; `--readonly` refuses every write (fio(1))."""
    (directory / JOB).write_text(job)
    fio = find_tool("fio") or "fio"
    return [fio, "--readonly", "--output-format=json+", f"--output={directory / REPORT}", str(directory / JOB)]


def missing_engine(options: Iterable[str]) -> str | None:
    """Why this machine's fio cannot run the job, or None: it is not installed, or was built without the engine."""
    if not find_tool("fio"):
        return "fio is not installed"
    engine = options_of(options).get("ioengine", "psync")
    listed = run(["fio", "--enghelp"], check=False, timeout_seconds=30).stdout.split()
    return None if engine in listed else f"this fio has no ioengine {engine}"


# EPERM, ENOSYS, EOPNOTSUPP: an engine that this kernel does not let anybody use, as io_uring behind seccomp.
_REFUSALS = {1: "not permitted", 38: "not there", 95: "not supported"}
_PERCENTILES = {"fio_p50_us": 0.5, "fio_p99_us": 0.99, "fio_p999_us": 0.999}


def read_report(directory: Path) -> dict[str, Any]:
    """fio's JSON without the notes that it may print before; empty where there is none, or only a part."""
    try:
        text = (directory / REPORT).read_text()
        report = json.loads(text[text.index("{") :])
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) and report.get("jobs") else {}


def end_of(report: Mapping[str, Any], arguments: Iterable[str], size_bytes: int) -> dict[str, Any]:
    """The keys of an `end` line (workloads/README.md) from fio's jobs; empty without a report.

    `seconds` is the runtime of the longest job. `covered_fraction` is None where jobs may read the same bytes: then
    `covered_times` says how often the files' size was read.
    """
    jobs = report.get("jobs", [])
    if not jobs:
        return {}
    reads = [job["read"] for job in jobs]
    seconds, count = max(read["runtime"] for read in reads) / 1000, sum(read["total_ios"] for read in reads)
    total = sum(read["io_bytes"] for read in reads)
    times = total / size_bytes if size_bytes else None
    alone = times is not None and times <= 1 and not may_overlap(arguments)
    refusal = next((_REFUSALS[job["error"]] for job in jobs if job.get("error") in _REFUSALS), None)
    return {
        "fio_version": report.get("fio version"), "seconds": seconds, "bytes": total, "blocks": count,
        "distinct_bytes": total, "covered_fraction": times if alone else None, "checksum": None, "checksum_ok": None,
        "threads": [{"major_faults": job.get("majf"), "minor_faults": job.get("minf")} for job in jobs],
        "jobs": [_job(job) for job in jobs], "refused": f"the engine is {refusal} here" if refusal else None,
        "response": _responses(reads, seconds, count, total, None if alone else times),
    }  # fmt: skip


def may_overlap(arguments: Iterable[str]) -> bool:
    """Whether the jobs may read bytes twice: several without parts of their own, or one that goes round and round.

    With mmap there are no such parts: fio 3.33 and 3.39 map the file from its beginning whatever the offset, as the
    pages that are resident afterwards show.
    """
    options = options_of(arguments)
    parts = "offset_increment" in options and options.get("ioengine") != "mmap"
    several = int(options.get("numjobs", "1")) > 1 and not parts
    return several or "time_based" in options or int(options.get("loops", "1")) > 1 or "norandommap" in options


def _job(job: Mapping[str, Any]) -> dict[str, Any]:
    read = job["read"]
    return {
        "name": job["jobname"], "bytes": read["io_bytes"], "reads": read["total_ios"],
        "seconds": read["runtime"] / 1000, "error": job.get("error"),
    }  # fmt: skip


def _responses(
    reads: list[Mapping[str, Any]], seconds: float, count: int, total: int, times: float | None
) -> dict[str, float | None]:
    rate, reads_rate = (amount / seconds if seconds else None for amount in (total, count))
    bins = latency_bins_ns(reads)
    return {
        "reads_per_second": reads_rate, "fio_read_bytes_per_second": rate, "fio_reads_per_second": reads_rate,
        "fio_read_bytes": total, "covered_times": times,
        **{name: percentile_us(bins, share) for name, share in _PERCENTILES.items()},
    }  # fmt: skip


def latency_bins_ns(reads: Iterable[Mapping[str, Any]]) -> Counter[int]:
    """Completion latencies of all jobs together: nanoseconds -> how many; fio's bins are a percent wide or so."""
    bins: Counter[int] = Counter()
    for read in reads:
        bins.update({int(ns): int(n) for ns, n in read.get("clat_ns", {}).get("bins", {}).items()})
    return bins


def percentile_us(bins: Counter[int], share: float) -> float | None:
    """The latency that this share of all reads does not exceed; None where nothing was counted."""
    left = share * bins.total()
    for ns in sorted(bins):
        left -= bins[ns]
        if left <= 0:
            return ns / 1000
    return None
