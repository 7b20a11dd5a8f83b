"""The only way to start a process: clean arguments, captured output, a command that can be replayed by hand."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pagecage.errors import PagecageError

PIPE = subprocess.PIPE
DEVNULL = subprocess.DEVNULL
STDOUT = subprocess.STDOUT
Process = subprocess.Popen
TimeoutExpired = subprocess.TimeoutExpired
SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories of system programs. Debian leaves them out of an ordinary user's PATH (login.defs(5), ENV_PATH)."""
OWN_PYTHON = {"PYTHONHOME": "", "PYTHONPATH": ""}
"""For the environment of our own Python: the user's settings are meant for other programs, maybe of another version."""


@dataclass(frozen=True)
class Completed:
    """What a finished process left: its arguments, exit status (negative: ended by that signal) and output."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the exit status was 0."""
        return self.status == 0


def search_path() -> str:
    """Return PATH with the directories of system programs after it, for what starts such programs itself."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES])


def find_tool(name: str) -> str | None:
    """Return the path of an installed tool: in PATH, else where systems keep their own; None where neither has it.

    What a user types is looked for by shutil.which alone, because their shell would find no more.
    """
    return shutil.which(name) or _in_system_directories(name)


def _in_system_directories(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(SYSTEM_DIRECTORIES))


def _executable(argv: Sequence[str | Path], env: Mapping[str, str]) -> str | None:
    """Return the path of a system program that is not in PATH; None where its name is enough, or nothing has it."""
    name = str(argv[0])
    return None if "/" in name or shutil.which(name, path=env.get("PATH")) else _in_system_directories(name)


def replay(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> str:
    """The command as one line that can be pasted into a shell."""
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in (env or {}).items()), shlex.join(map(str, argv))])


def _failure(argv: Sequence[str | Path], status: int, stderr: str) -> PagecageError:
    how = f"ended by signal {-status}" if status < 0 else f"exit status {status}"
    last = stderr.strip().splitlines()[-1:] or ["it printed no reason"]
    return PagecageError(f"`{replay(argv)}` failed ({how}): {last[0]}", f"run it by hand: {replay(argv)}", 3)


def _not_started(argv: Sequence[str | Path], error: OSError) -> PagecageError:
    if isinstance(error, FileNotFoundError) and error.filename == str(argv[0]):
        return PagecageError(f"{argv[0]} is not installed", "make setup", 3)
    return PagecageError(f"`{replay(argv)}` could not start: {error.strerror} ({error.filename})", "", 3)


def run(
    argv: Sequence[str | Path],
    *,
    input_text: str | None = None,
    timeout_seconds: float | None = None,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Completed:
    """Run to the end and capture; `env` is added to this process's own environment.

    Raises PagecageError when the program is missing, takes longer than `timeout_seconds`, or (with `check`) fails.
    """
    whole = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            [str(a) for a in argv], executable=_executable(argv, whole), input=input_text or "",
            timeout=timeout_seconds, cwd=cwd, text=True, errors="replace", capture_output=True, env=whole, check=False,
        )  # fmt: skip
    except OSError as error:
        raise _not_started(argv, error) from None
    except subprocess.TimeoutExpired:
        raise PagecageError(f"`{replay(argv)}` took longer than {timeout_seconds} s", "", 3) from None
    if check and done.returncode != 0:
        raise _failure(argv, done.returncode, done.stderr)
    return Completed(tuple(map(str, argv)), done.returncode, done.stdout, done.stderr)


def spawn(
    argv: Sequence[str | Path],
    *,
    stdin: int | IO[bytes] | None = DEVNULL,
    stdout: int | IO[bytes] | None = DEVNULL,
    stderr: int | IO[bytes] | None = DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start and return at once; the caller owns the process and must end it. Bytes, unbuffered on our side.

    `new_session` puts it beyond the terminal's Ctrl-C, so that the caller decides in which order things end.
    """
    whole = {**os.environ, **(env or {})}
    try:
        return subprocess.Popen(
            [str(a) for a in argv], executable=_executable(argv, whole), stdin=stdin, stdout=stdout, stderr=stderr,
            cwd=cwd, bufsize=0, env=whole, start_new_session=new_session,
        )  # fmt: skip
    except OSError as error:
        raise _not_started(argv, error) from None


PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessId:
    """A pid and the moment it was started, in clock ticks since boot (proc_pid_stat(5), field 22)."""

    pid: int
    start_ticks: int


def stat_fields(pid: int, proc: Path = PROC) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (the second, the name, may hold anything); None when gone."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 1 :].split()


def identify(pid: int, proc: Path = PROC) -> ProcessId | None:
    """The process that has this pid now; None when there is none, or only its unreaped remains.

    State Z alone does not tell: it is also that of a first thread that has ended before the others, which still hold
    files and locks (num_threads, field 20).
    """
    fields = stat_fields(pid, proc)
    if fields is None or (fields[0] in "ZX" and int(fields[17]) <= 1):
        return None
    return ProcessId(pid, int(fields[19]))


def is_alive(process: ProcessId, proc: Path = PROC) -> bool:
    """Whether this very process still runs."""
    return identify(process.pid, proc) == process


def end(process: ProcessId, timeout_seconds: float = 5.0) -> None:
    """Kill this very process, if it still runs, and wait until it is gone."""
    deadline = time.monotonic() + timeout_seconds
    while is_alive(process) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)
