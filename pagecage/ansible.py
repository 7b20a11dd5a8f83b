"""The only way to run Ansible: a playbook's events as they come, and how it ended on each host, in a sentence."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pagecage.errors import HostError
from pagecage.process import DEVNULL, OWN_PYTHON, PIPE, Completed, find_tool, replay, run, spawn

FIX = ". Fix: "
"""In a message of our roles, what stands between the sentence and the command that fixes it."""
_RESULTS = {"v2_runner_on_ok": "ok", "v2_runner_on_failed": "failed", "v2_runner_on_unreachable": "unreachable"}


@dataclass(frozen=True)
class TaskEvent:
    """A task that has ended on a host: `outcome` is ok, failed or unreachable, `message` why (empty for ok).

    `stdout` is what a command printed there, in a loop what all printed; empty for what is none.
    """

    host: str
    task: str
    outcome: str
    changed: bool
    message: str
    stdout: str = ""


@dataclass(frozen=True)
class HostResult:
    """How a playbook ended on one host: how many tasks changed something, and the event that stopped it, if any."""

    changed: int
    stopped_by: TaskEvent | None

    def error(self, log: Path) -> HostError | None:
        """What stopped it as a sentence with its fix."""
        if self.stopped_by is None:
            return None
        sentence, _, hint = self.stopped_by.message.partition(FIX)
        return HostError(f"{self.stopped_by.host}: {sentence}", hint or f"read {log} (task: {self.stopped_by.task})")


@dataclass(frozen=True)
class Playbook:
    """A playbook of a checkout, where its hosts stand, and more words for ansible-playbook(1).

    `scratch` receives the log, and what Ansible keeps for itself.
    """

    project_dir: Path
    name: str
    inventory: Path
    scratch: Path
    words: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        """Every event as a line of JSON, and what Ansible said besides."""
        return self.scratch / f"{Path(self.name).stem}.log"

    def argv(self) -> list[str]:
        """The command, for replaying by hand too."""
        playbook = self.project_dir / "ansible" / self.name
        program = ansible_program(self.project_dir, "ansible-playbook")
        return [program, "-i", str(self.inventory), *self.words, str(playbook)]


def ansible_program(project_dir: Path, name: str) -> str:
    """The project's own ansible-playbook (or its like), or the one on PATH. Raises HostError when there is none."""
    own = project_dir / ".venv-ansible" / "bin" / name
    program = str(own) if own.exists() else find_tool(name)
    if program is None:
        raise HostError(f"{name} is not installed", "make setup")
    return program


def ansible_settings(project_dir: Path) -> dict[str, str]:
    """The environment that makes Ansible ours: our settings, one event a line, no colour, a locale that it accepts.

    Who sets ANSIBLE_FORKS or ANSIBLE_SSH_ARGS himself is obeyed. A host that hangs is noticed after a minute.
    """
    alive = "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
    defaults = {"ANSIBLE_FORKS": "50", "ANSIBLE_SSH_ARGS": alive}
    return {
        **{name: os.environ.get(name, value) for name, value in defaults.items()},
        "ANSIBLE_CONFIG": str(project_dir / "ansible" / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl", "PYTHONWARNINGS": "ignore",
        "ANSIBLE_HOME": str(project_dir / "build" / "ansible"), **OWN_PYTHON,
    }  # fmt: skip


def inventory_of(project_dir: Path, inventory: Path) -> Any:
    """What `ansible-inventory --list` makes of a file or folder. Raises HostError with its reason where it cannot."""
    argv = [ansible_program(project_dir, "ansible-inventory"), "-i", str(inventory), "--list"]
    settings = {**ansible_settings(project_dir), "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"}
    done = run(argv, env=settings, check=False, timeout_seconds=120)
    if not done.ok:
        raise HostError(f"the inventory {inventory.name} cannot be read: {_reason(done)}", f"see why: {replay(argv)}")
    return json.loads(done.stdout)


def play(playbook: Playbook, tell: Callable[[TaskEvent], None] = lambda _: None) -> Mapping[str, HostResult]:
    """Run a playbook to its end, telling each finished task as it happens; how it ended on each host.

    Raises HostError when it could not begin at all (no host matched, a variable is wrong).
    """
    # Standard input stays: with --ask-become-pass Ansible asks whoever sits there.
    return PlaybookRun(playbook, apart=False).follow(tell)


class PlaybookRun:
    """A playbook that has begun, by ansible-playbook as a child of ours.

    One that plays `apart` is beyond the terminal's Ctrl-C, and is asked to end when the thread that began it does.
    """

    def __init__(self, playbook: Playbook, *, apart: bool) -> None:
        self._playbook, self._errors = playbook, playbook.log.with_suffix(".err")
        playbook.scratch.mkdir(parents=True, exist_ok=True)
        settings = {**ansible_settings(playbook.project_dir), "ANSIBLE_HOME": str(playbook.scratch / "ansible")}
        argv = [*(["setpriv", "--pdeathsig", "TERM"] if apart else []), *playbook.argv()]
        with self._errors.open("wb") as errors:
            self._process = spawn(
                argv, stdin=DEVNULL if apart else None, stdout=PIPE, stderr=errors, env=settings, new_session=apart
            )

    def follow(self, tell: Callable[[TaskEvent], None] = lambda _: None) -> Mapping[str, HostResult]:
        """Tell each finished task as it happens, to the end; how it ended on each host.

        Raises HostError when it could not begin at all (no host matched, a variable is wrong).
        """
        assert self._process.stdout is not None
        with self._playbook.log.open("w") as log, self._process.stdout as lines:
            ends = _follow(lines, log, tell)
        status = self._process.wait()
        if not ends:
            said = self._playbook.log.read_text(), self._errors.read_text()
            done = Completed(tuple(self._playbook.argv()), status, *said)
            raise HostError(f"{self._playbook.name} did not begin: {_reason(done)}", f"read {self._errors}")
        return ends

    def end(self) -> None:
        """End it, whatever it does; safe when it has ended."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()


def _follow(lines: IO[bytes], log: IO[str], tell: Callable[[TaskEvent], None]) -> dict[str, HostResult]:
    """Read events to the end; Ansible's own statistics decide, because a failure may have been expected."""
    last: dict[str, TaskEvent] = {}
    ends: dict[str, HostResult] = {}
    for line in lines:
        text = line.decode(errors="replace")
        log.write(text)
        parsed = _parsed(text)
        for event in _events(parsed):
            tell(event)
            if event.outcome != "ok":
                last[event.host] = event
        for host, counts in parsed.get("stats", {}).items():
            stopped = counts["failures"] or counts["unreachable"]
            ends[host] = HostResult(counts["changed"], last.get(host) if stopped else None)
    return ends


def _parsed(line: str) -> dict[str, Any]:
    """A line's event; nothing for what Ansible said besides."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _events(parsed: Mapping[str, Any]) -> Iterator[TaskEvent]:
    outcome = _RESULTS.get(parsed.get("_event", ""))
    if outcome is None:
        return
    for host, result in parsed["hosts"].items():
        message = "" if outcome == "ok" else message_of(result)
        stdout = "\n".join(str(one.get("stdout") or "") for one in result.get("results", [result]))
        yield TaskEvent(host, parsed["task"]["name"], outcome, bool(result.get("changed")), message, stdout)


def message_of(result: Mapping[str, Any]) -> str:
    """Why a task failed: its message, for a loop that of the first item that failed, else the end of its output."""
    for item in result.get("results", []):
        if item.get("failed"):
            return message_of(item)
    said = [str(result.get(key) or "").strip() for key in ("stderr", "module_stderr", "stdout")]
    words = str(result.get("msg") or "").strip().removeprefix("Task failed: ")
    if words in ("", "non-zero return code", "MODULE FAILURE") or words.startswith("MODULE FAILURE"):
        words = next((text.splitlines()[-1] for text in said if text), words or "it gave no reason")
    return " ".join(words.split())


def _reason(done: Completed) -> str:
    """Ansible's first error, without its mark."""
    lines = done.stderr.splitlines() + done.stdout.splitlines()
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!"))] or lines[-1:] or ["it gave no reason"]
    return errors[0].removeprefix("[ERROR]:").removeprefix("ERROR!").strip()
