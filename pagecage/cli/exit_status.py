"""The exit status of a finished run; a replay ends with that of the program."""

from __future__ import annotations

from pagecage.cli.execution import PreparedRun
from pagecage.cli.output import Notify
from pagecage.errors import EXIT_HOST, EXIT_USAGE, PagecageError
from pagecage.model.record import Record

_SIGNAL_BASE = 128  # a shell's exit status for signal N is 128 + N
# Requirements that the user can meet by changing the command; the others are the host's.
_REQUIREMENTS_OF_COMMAND = frozenset({"workload", "data", "port", "local_disk"})


def exit_code(prepared: PreparedRun, status: int, notify: Notify) -> int:
    """Return the exit status of the program if it failed, else `status`.

    Raises PagecageError if the host lacks something, or if the user can fix the command. For an
    experiment from a file, returns `status`.
    """
    if prepared.plan.document.get("replay") is None:
        return status
    last = prepared.folder.last_records()
    records = [last[trial.trial_id] for trial in prepared.plan.trials if trial.trial_id in last]
    for record in records:
        _raise_for(record)
    failed = [record for record in records if record.is_programs_own_failure]
    if not failed:
        return status
    if not prepared.streams_output:
        notify(
            f"{prepared.plan.document['experiment']}: the program failed in {len(failed)} of"
            f" {len(records)} trials"
        )
    return shell_status(failed[0].failed_status) or status


def shell_status(status: int) -> int:
    """Return an exit status as a shell reports it: 128 + N if signal N ended the process."""
    return status if status >= 0 else _SIGNAL_BASE - status


def _raise_for(record: Record) -> None:
    for missed in record.missed_requirements:
        code = EXIT_USAGE if missed.requirement in _REQUIREMENTS_OF_COMMAND else EXIT_HOST
        raise PagecageError(missed.reason, missed.hint, code)
    if record.exit.escaped:
        raise PagecageError(
            record.error or "", "start those processes in the cage by hand: pagecage shell CAGE"
        )
    if record.exit.left_behind and record.outcome == "failed":
        hint = "run it in the foreground, or measure until it is ready: --ready-port, --ready-when"
        raise PagecageError(record.error or "", hint)


def all_requirements_missed(prepared: PreparedRun) -> bool:
    """Return whether every trial missed a requirement, so that there is no table to show."""
    records = prepared.folder.last_records().values()
    return bool(records) and all(record.outcome == "requirement_missed" for record in records)
