"""Processes, which no other module starts; every command can be repeated by hand."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
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
"""Directories of system programs.

Debian omits them from an ordinary user's PATH (login.defs(5), ENV_PATH).
"""
OWN_PYTHON = {"PYTHONHOME": "", "PYTHONPATH": ""}
"""Environment for the project's own Python, without the user's settings for other versions."""


@dataclass(frozen=True)
class Completed:
    """A finished process: arguments, exit status (negative: the signal that ended it), output."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES])


def find_tool(name: str) -> str | None:
    """Return an installed tool's path; names that the user types are up to shutil.which()."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SYSTEM_DIRECTORIES))


def _executable(argv: Sequence[str | Path], env: Mapping[str, str]) -> str | None:
    """Return the path of a system program outside PATH; None if its name suffices or is missing."""
    name = str(argv[0])
    is_enough = "/" in name or shutil.which(name, path=env.get("PATH"))
    return None if is_enough else shutil.which(name, path=os.pathsep.join(SYSTEM_DIRECTORIES))


def replay(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> str:
    variables = (f"{name}={shlex.quote(value)}" for name, value in (env or {}).items())
    return " ".join([*variables, shlex.join(map(str, argv))])


def _not_started(argv: Sequence[str | Path], error: OSError) -> PagecageError:
    if isinstance(error, FileNotFoundError) and error.filename == str(argv[0]):
        return PagecageError(f"{argv[0]} is not installed", "make setup", 3)
    return PagecageError(
        f"`{replay(argv)}` could not be started: {error.strerror} ({error.filename})", "", 3
    )


def run(
    argv: Sequence[str | Path],
    *,
    input_text: str | None = None,
    timeout_seconds: float | None = None,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Completed:
    """Run a program to its end and capture its output.

    `env` is added to this process's environment. Raises PagecageError if the program is missing,
    takes longer than `timeout_seconds`, or (with `check`) fails.
    """
    environment = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            executable=_executable(argv, environment),
            input=input_text or "",
            timeout=timeout_seconds,
            cwd=cwd,
            text=True,
            errors="replace",
            capture_output=True,
            env=environment,
            check=False,
        )
    except OSError as error:
        raise _not_started(argv, error) from None
    except subprocess.TimeoutExpired:
        reason = f"`{replay(argv)}` took longer than {timeout_seconds} s"
        raise PagecageError(reason, "", 3) from None
    status = done.returncode
    if check and status != 0:
        how = f"ended by signal {-status}" if status < 0 else f"exit status {status}"
        line, reason = replay(argv), last_line(done.stderr)
        raise PagecageError(f"`{line}` failed ({how}): {reason}", f"run it by hand: {line}", 3)
    return Completed(tuple(map(str, argv)), status, done.stdout, done.stderr)


def last_line(output: str, without: str = "it printed no reason") -> str:
    """Return the last line of a program's output, which usually is its reason; else `without`."""
    return (output.strip().splitlines() or [without])[-1]


def wait_until(is_so: Callable[[], object], seconds: float, poll_seconds: float = 0.01) -> bool:
    """Ask at intervals until it is so; return False if it is not so after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True


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
    """Start a program and return at once. The caller must end the process.

    Its streams are unbuffered bytes. With `new_session` it does not receive the terminal's Ctrl-C,
    so that the caller decides the order in which processes end.
    """
    environment = {**os.environ, **(env or {})}
    try:
        return subprocess.Popen(
            [str(word) for word in argv],
            executable=_executable(argv, environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            bufsize=0,
            env=environment,
            start_new_session=new_session,
        )
    except OSError as error:
        raise _not_started(argv, error) from None


def dying_with_parent(argv: Sequence[str | Path], death_signal: str = "KILL") -> list[str]:
    """Return the command that runs `argv` until the calling thread ends, even by SIGKILL.

    The kernel then sends it the signal (PR_SET_PDEATHSIG in prctl(2), by setpriv(1)). If this
    process has ended before that is set, the parent is another process already, and nothing runs.
    """
    checked = ["sh", "-c", '[ "$PPID" = "$1" ] && shift && exec "$@"', "sh", str(os.getpid())]
    return ["setpriv", "--pdeathsig", death_signal, *checked, *map(str, argv)]


PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessId:
    """A pid and its process's start, in clock ticks since boot (proc_pid_stat(5), field 22)."""

    pid: int
    start_ticks: int


def stat_fields(pid: int, proc: Path = PROC) -> list[str] | None:
    """Return /proc/PID/stat from the third field on; None if the process has ended."""
    try:
        line = (proc / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may have any bytes: a long one is cut within a character.
    return line[line.rindex(b")") + 1 :].decode().split()


def identify(pid: int, proc: Path = PROC) -> ProcessId | None:
    """Return the process that has this pid now; None if there is none, or only a zombie.

    State Z alone does not identify a zombie: a first thread that has ended has it too, while the
    other threads still hold files and locks (num_threads, field 20).
    """
    fields = stat_fields(pid, proc)
    if fields is None or (fields[0] in "ZX" and int(fields[17]) <= 1):
        return None
    return ProcessId(pid, int(fields[19]))


def is_alive(process: ProcessId, proc: Path = PROC) -> bool:
    return identify(process.pid, proc) == process


def end(process: ProcessId, timeout_seconds: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while is_alive(process) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)
