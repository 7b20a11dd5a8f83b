"""fio as a workload: its job file, its measured part and its report (fio(1))."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pagecage.agent.caging import Caged
from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.programs.command import fill_all
from pagecage.agent.programs.handshake_process import HandshakeProcess
from pagecage.agent.programs.measured_part import MeasuredPart
from pagecage.agent.programs.workload import ReportingProgram
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.process import find_tool
from pagecage.process import run as run_process

JOB, REPORT = "fio-job.fio", "fio.json"
_LOG_EVERY_MS = 100
_RUNTIME_SECONDS = 10.0
"""Time that a container's runtime may take to set its limits on an emulated machine, before fio is
there."""


class FioProgram(ReportingProgram):
    """fio with the experiment's job options. Its measured part is its whole life."""

    has_handshake = False

    def argv(self, caged: Caged) -> list[str]:
        """Write the job file; return the command. Raises RequirementMissed without its engine."""
        options = fill_all(self.trial.workload.arguments, self.places(caged), caged.files)
        if reason := missing_engine(options):
            hint = "ansible/site.yml installs fio"
            raise RequirementMissed.of(Requirement.WORKLOAD, reason, hint)
        directory = self.run.directory
        return fio_command(
            job_text(caged.files, options, directory, self.trial.max_seconds), directory
        )

    def follow(self, caged: Caged, part: MeasuredPart, process: HandshakeProcess) -> bool:
        caged.limits.confirm(caged.context, lambda: process.has_exited, _RUNTIME_SECONDS)
        part.begin()
        process.go()
        is_done = process.wait_for_exit(part.deadline)
        part.end()
        return is_done

    def take_report(self, process: HandshakeProcess) -> None:
        """Use fio's JSON in place of an `end` line, and keep its files as traces."""
        run, directory = self.run, self.run.directory
        report = read_report(directory)
        end = end_of(report, self.trial.workload.arguments, self.trial.dataset_bytes)
        process.conversation.end = end
        run.keep("workload", end=end)
        status, reason = ("ok", None) if report else ("failed", "it left no JSON")
        files = tuple(sorted(directory.glob("fio*")))
        run.collected["fio"] = CollectorResult(status, reason, files=files)


def options_of(arguments: Iterable[str]) -> dict[str, str]:
    return {name: value for name, _, value in (argument.partition("=") for argument in arguments)}


def job_text(
    files: Sequence[Path], options: Sequence[str], directory: Path, max_seconds: float | None
) -> str:
    """The job file.

    `invalidate=0`: by default fio drops the files from the page cache when it begins, and with them
    the cache state that was reached and proven. `group_reporting` is left out, so that each job's
    figures stand for themselves.
    """
    names = ":".join(str(path).replace(":", "\\:") for path in files)
    logs = directory / "fio"
    lines = [
        *("[global]", f"filename={names}", "invalidate=0"),
        *(f"write_bw_log={logs}", f"write_lat_log={logs}", f"log_avg_msec={_LOG_EVERY_MS}"),
        "per_job_logs=0",
        *([f"runtime={max_seconds:g}"] if max_seconds is not None else []),
        *("[trial]", *options),
    ]
    return "\n".join(lines) + "\n"


def fio_command(job: str, directory: Path) -> list[str]:
    """Write the job file; return the command, by which fio refuses to write (fio(1))."""
    (directory / JOB).write_text(job)
    options = ["--readonly", "--output-format=json+", f"--output={directory / REPORT}"]
    return [find_tool("fio") or "fio", *options, str(directory / JOB)]


def missing_engine(options: Iterable[str]) -> str | None:
    """Return why fio cannot run the job: it is missing, or lacks the engine. None if it can."""
    if not find_tool("fio"):
        return "fio is not installed"
    engine = options_of(options).get("ioengine", "psync")
    listed = run_process(["fio", "--enghelp"], check=False, timeout_seconds=30).stdout.split()
    return None if engine in listed else f"this fio has no ioengine {engine}"


# EPERM, ENOSYS, EOPNOTSUPP: an engine that this kernel refuses, such as io_uring behind seccomp.
_REFUSALS = {1: "not permitted", 38: "not implemented", 95: "not supported"}
_PERCENTILES = {"fio_p50_us": 0.5, "fio_p99_us": 0.99, "fio_p999_us": 0.999}


def read_report(directory: Path) -> Json:
    """Return fio's JSON report without notes before it; empty if missing or incomplete."""
    try:
        text = (directory / REPORT).read_text()
        report = json.loads(text[text.index("{") :])
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) and report.get("jobs") else {}


def end_of(report: JsonView, arguments: Iterable[str], size_bytes: int) -> Json:
    """Return the keys of an `end` line (workloads/README.md) from fio's jobs.

    Returns an empty value without a report. `seconds` is the runtime of the longest job.
    `covered_fraction` is None if jobs may read the same bytes; `covered_times` is then the number
    of bytes read divided by the files' size.
    """
    jobs = report.get("jobs", [])
    if not jobs:
        return {}
    reads = [job["read"] for job in jobs]
    seconds = max(read["runtime"] for read in reads) / 1000
    count, total = (sum(read[key] for read in reads) for key in ("total_ios", "io_bytes"))
    times = total / size_bytes if size_bytes else None
    alone = times is not None and times <= 1 and not may_overlap(arguments)
    refusal = next((_REFUSALS[job["error"]] for job in jobs if job.get("error") in _REFUSALS), None)
    return {
        "fio_version": report.get("fio version"),
        "seconds": seconds,
        "bytes": total,
        "blocks": count,
        "distinct_bytes": total,
        "covered_fraction": times if alone else None,
        "checksum": None,
        "checksum_ok": None,
        "threads": [{"major_faults": a.get("majf"), "minor_faults": a.get("minf")} for a in jobs],
        "jobs": [
            {
                "name": job["jobname"],
                "bytes": job["read"]["io_bytes"],
                "reads": job["read"]["total_ios"],
                "seconds": job["read"]["runtime"] / 1000,
                "error": job.get("error"),
            }
            for job in jobs
        ],
        "refused": f"the engine is {refusal} here" if refusal else None,
        "response": _responses(reads, seconds, count, total, None if alone else times),
    }


def may_overlap(arguments: Iterable[str]) -> bool:
    """Return whether jobs may read bytes twice: several jobs without separate parts, or loops.

    With mmap there are no separate parts: fio 3.33 and 3.39 map the file from its beginning and
    ignore the offset, as the resident pages show.
    """
    options = options_of(arguments)
    parts = "offset_increment" in options and options.get("ioengine") != "mmap"
    several = int(options.get("numjobs", "1")) > 1 and not parts
    return (
        several
        or "time_based" in options
        or int(options.get("loops", "1")) > 1
        or "norandommap" in options
    )


def _responses(
    reads: list[JsonView], seconds: float, count: int, total: int, times: float | None
) -> dict[str, float | None]:
    rate, reads_rate = (amount / seconds if seconds else None for amount in (total, count))
    bins = latency_bins_ns(reads)
    return {
        "reads_per_second": reads_rate,
        "fio_read_bytes_per_second": rate,
        "fio_reads_per_second": reads_rate,
        "fio_read_bytes": total,
        "covered_times": times,
        **{name: percentile_us(bins, share) for name, share in _PERCENTILES.items()},
    }


def latency_bins_ns(reads: Iterable[JsonView]) -> Counter[int]:
    """Completion latencies of all jobs: nanoseconds, about a percent wide -> how many."""
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
