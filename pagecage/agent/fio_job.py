"""A fio job as a trial needs it: the trial's options under settings that no experiment may change (fio(1))."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

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
