"""How a replay ended: what the host lacked, how the program misbehaved, or with which status it failed by itself."""

from __future__ import annotations

from pagecage.cli.carry_out import Job
from pagecage.cli.say import Say
from pagecage.errors import EXIT_HOST, EXIT_USAGE, PagecageError
from pagecage.record import Record

_SIGNAL_BASE = 128  # how a shell tells that a signal ended a program
# What the user can mend in the command; anything else is the host's.
_TYPED = frozenset({"workload", "data", "port", "local_disk"})


def exit_code(job: Job, status: int, say: Say) -> int:
    """The program's own status where it failed, else `status`.

    Raises PagecageError for what the host lacks or the user can mend. Of an experiment that stands in a file it is
    `status` alone.
    """
    if job.plan.document.get("replay") is None:
        return status
    last = job.folder.last_records()
    records = [last[trial.trial_id] for trial in job.plan.trials if trial.trial_id in last]
    for record in records:
        _raise_for(record)
    failed = [record for record in records if record.is_programs_own_failure]
    if not failed:
        return status
    if not job.streams_output:
        say(f"{job.plan.document['experiment']}: the program failed in {len(failed)} of {len(records)} trials")
    return shell_status(failed[0].exit["status"]) or status


def shell_status(status: int) -> int:
    """An exit status as a shell tells it: 128 and the signal's number where one ended it."""
    return status if status >= 0 else _SIGNAL_BASE - status


def _raise_for(record: Record) -> None:
    for missed in record.missed_requirements:
        code = EXIT_USAGE if missed["requirement"] in _TYPED else EXIT_HOST
        raise PagecageError(missed["reason"], missed.get("mend", ""), code)
    if record.exit.get("outside"):
        raise PagecageError(record.error or "", "start what it starts there in the cage itself: pagecage shell CAGE")
    if record.exit.get("left_behind") and record.outcome == "failed":
        mend = "keep it in the foreground by its own option, or measure until it serves: --ready-port, --ready-when"
        raise PagecageError(record.error or "", mend)


def is_all_missed(job: Job) -> bool:
    """Whether no trial came to anything because each was refused, so that there is no table to show."""
    records = job.folder.last_records().values()
    return bool(records) and all(record.outcome == "requirement_missed" for record in records)
