"""Runs of ansible-playbook(1): events while it runs, and a result per host."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pagecage.checkout import BUILD, OWN, TOP
from pagecage.errors import HostError
from pagecage.process import (
    DEVNULL,
    OWN_PYTHON,
    PIPE,
    Completed,
    TimeoutExpired,
    dying_with_parent,
    find_tool,
    replay,
    run,
    spawn,
)

TERMINATION_SECONDS = 10.0
"""Seconds that ansible-playbook has to end after SIGTERM, before SIGKILL."""
FIX = ". Fix: "
"""Separates the sentence from the fix in messages of this project's roles."""
_RESULTS = {
    "v2_runner_on_ok": "ok",
    "v2_runner_on_failed": "failed",
    "v2_runner_on_unreachable": "unreachable",
}


@dataclass(frozen=True)
class TaskEvent:
    """The end of a task on a host. `outcome` is ok, failed or unreachable, `message` the error.

    `stdout` is the output of a command, of all commands in a loop; empty for other tasks.
    """

    host: str
    task: str
    outcome: str
    changed: bool
    message: str
    stdout: str = ""


@dataclass(frozen=True)
class HostResult:
    """The result of a playbook on one host: changed tasks, and the event that stopped it."""

    changed: int
    stopped_by: TaskEvent | None

    def error(self, log: Path) -> HostError | None:
        if self.stopped_by is None:
            return None
        sentence, _, hint = self.stopped_by.message.partition(FIX)
        hint = hint or f"read {log} (task: {self.stopped_by.task})"
        return HostError(f"{self.stopped_by.host}: {sentence}", hint)


@dataclass(frozen=True)
class Playbook:
    """A playbook of a checkout; `scratch` receives the log and Ansible's own files."""

    project_dir: Path
    name: str
    inventory: Path
    scratch: Path
    words: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        return self.scratch / f"{Path(self.name).stem}.log"

    def argv(self) -> list[str]:
        playbook = self.project_dir / "ansible" / self.name
        program = ansible_program(self.project_dir, "ansible-playbook")
        return [program, *_inventories(self.inventory), *self.words, str(playbook)]


def ansible_program(project_dir: Path, name: str) -> str:
    """Return the checkout's own program, else pagecage's, else the one on PATH, or HostError."""
    known = (project_dir / ".venv-ansible/bin" / name, Path(sys.executable).parent / name)
    program = next((str(path) for path in known if path.exists()), find_tool(name))
    if program is None:
        raise HostError(f"{name} is not installed", "tools/bootstrap ansible")
    return program


def _inventories(inventory: Path) -> list[str]:
    custom, found = OWN / "ansible/inventory", [inventory]
    if inventory == TOP / "ansible/inventory" and custom != inventory and custom.is_dir():
        found.append(custom)
    return [word for path in found for word in ("-i", str(path))]


def ansible_settings(project_dir: Path) -> dict[str, str]:
    """Return the environment for Ansible; the user's ANSIBLE_FORKS and ANSIBLE_SSH_ARGS count.

    Events have a line each, without colour. A hanging host is noticed after a minute.
    """
    alive = "-o ControlMaster=auto -o ControlPersist=60s"
    alive += " -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
    defaults = {"ANSIBLE_FORKS": "50", "ANSIBLE_SSH_ARGS": alive}
    return {
        **{name: os.environ.get(name, value) for name, value in defaults.items()},
        "ANSIBLE_CONFIG": str(project_dir / "ansible" / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CALLBACK_PLUGINS": str(TOP / "ansible/plugins/callback"),
        "ANSIBLE_STDOUT_CALLBACK": "pagecage_events",
        "PYTHONWARNINGS": "ignore",
        "PAGECAGE_PYTHON": sys.executable,
        "ANSIBLE_HOME": str(BUILD / "ansible"),
        **OWN_PYTHON,
    }


def inventory_of(project_dir: Path, inventory: Path) -> Any:
    """Return `ansible-inventory --list` of a file or folder. Raises HostError if unreadable."""
    argv = [ansible_program(project_dir, "ansible-inventory"), *_inventories(inventory), "--list"]
    settings = {**ansible_settings(project_dir), "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"}
    done = run(argv, env=settings, check=False, timeout_seconds=120)
    if not done.ok:
        raise HostError(
            f"the inventory {inventory.name} cannot be read: {_reason(done)}", replay(argv)
        )
    return json.loads(done.stdout)


def run_to_end(
    playbook: Playbook, listener: Callable[[TaskEvent], None] = lambda _: None
) -> Mapping[str, HostResult]:
    """Run a playbook as PlaybookRun does, and follow it to its end."""
    # Standard input is inherited: with --ask-become-pass Ansible asks the user.
    return PlaybookRun(playbook, detached=False).follow(listener)


class PlaybookRun:
    """A running ansible-playbook; a `detached` one ignores Ctrl-C and ends with its thread."""

    def __init__(self, playbook: Playbook, *, detached: bool) -> None:
        self._playbook, self._errors = playbook, playbook.log.with_suffix(".err")
        playbook.scratch.mkdir(parents=True, exist_ok=True)
        settings = ansible_settings(playbook.project_dir)
        settings["ANSIBLE_HOME"] = str(playbook.scratch / "ansible")
        argv = playbook.argv()
        with self._errors.open("wb") as errors:
            self._process = spawn(
                dying_with_parent(argv, "TERM") if detached else argv,
                stdin=DEVNULL if detached else None,
                stdout=PIPE,
                stderr=errors,
                env=settings,
                new_session=detached,
            )

    def follow(
        self, listener: Callable[[TaskEvent], None] = lambda _: None
    ) -> Mapping[str, HostResult]:
        """Pass finished tasks to the listener to the end. Raises HostError if it did not start."""
        assert self._process.stdout is not None
        with self._playbook.log.open("w") as log, self._process.stdout as lines:
            results = _read_events(lines, log, listener)
        status = self._process.wait()
        if not results:
            output = self._playbook.log.read_text(), self._errors.read_text()
            done = Completed(tuple(self._playbook.argv()), status, *output)
            raise HostError(
                f"{self._playbook.name} could not start: {_reason(done)}", f"read {self._errors}"
            )
        return results

    def end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with suppress(TimeoutExpired):
                    self._process.wait(TERMINATION_SECONDS)


def _read_events(
    lines: IO[bytes], log: IO[str], listener: Callable[[TaskEvent], None]
) -> dict[str, HostResult]:
    """Ansible's own statistics decide which hosts failed, since a failed task may be expected."""
    last_failure: dict[str, TaskEvent] = {}
    results: dict[str, HostResult] = {}
    for line in lines:
        text = line.decode(errors="replace")
        log.write(text)
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = {}
        parsed = parsed if isinstance(parsed, dict) else {}  # Ansible's other output
        outcome = _RESULTS.get(parsed.get("_event", ""), "")
        for host, result in parsed["hosts"].items() if outcome else ():
            message = "" if outcome == "ok" else message_of(result)
            outputs = (str(item.get("stdout") or "") for item in result.get("results", [result]))
            is_changed, task = bool(result.get("changed")), parsed["task"]["name"]
            event = TaskEvent(host, task, outcome, is_changed, message, "\n".join(outputs))
            listener(event)
            if outcome != "ok":
                last_failure[host] = event
        for host, counts in parsed.get("stats", {}).items():
            is_stopped = counts["failures"] or counts["unreachable"]
            failure = last_failure.get(host) if is_stopped else None
            results[host] = HostResult(counts["changed"], failure)
    return results


def message_of(result: Mapping[str, Any]) -> str:
    """Return the message of a task or of its first failed item, else the last line of output."""
    for item in result.get("results", []):
        if item.get("failed"):
            return message_of(item)
    outputs = [str(result.get(key) or "").strip() for key in ("stderr", "module_stderr", "stdout")]
    message = str(result.get("msg") or "").strip().removeprefix("Task failed: ")
    if message in ("", "non-zero return code") or message.startswith("MODULE FAILURE"):
        last_lines = (text.splitlines()[-1] for text in outputs if text)
        message = next(last_lines, message or "it gave no reason")
    return " ".join(message.split())


def _reason(done: Completed) -> str:
    lines = done.stderr.splitlines() + done.stdout.splitlines()
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!"))]
    errors = errors or lines[-1:] or ["it gave no reason"]
    return errors[0].removeprefix("[ERROR]:").removeprefix("ERROR!").strip()
