"""Fetches the frames of a detached agent into a file here while they grow there, until the agent has ended."""

from __future__ import annotations

import base64
import fcntl
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

SCRIPT = Path(__file__).resolve().parents[1] / "files" / "follow.sh"
WAIT_SECONDS = 60
"""How long one question may sleep over there."""
PAUSE_SECONDS = 2.0
"""Between two questions, so that a host is not kept busy by a stream that grows fast."""


@dataclass(frozen=True)
class Answer:
    """What one question brought: whether the agent works, its exit status, its last words, and more of its stream.

    Without a status nothing is left of it on the host: that was started anew, or never got to start it.
    """

    is_working: bool
    status: int | None
    said: str
    piece: bytes

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.status is None:
            return "nothing of its agent is left on the host"
        return f"its agent ended with status {self.status}{': ' + self.said if self.said else ''}"


class ActionModule(ActionBase):  # type: ignore[misc]
    """`directory` and `unit` on the host, `to` here, `patience_seconds` for a connection that is broken."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Fetch to the end. Raises AnsibleConnectionFailure when the host stays out of reach."""
        result = dict(super().run(tmp, task_vars))
        parent = os.getppid()
        with Path(self._task.args["to"]).open("ab") as to:
            self._be_alone(to)
            while (answer := self._ask_patiently(to.tell())).is_working or answer.piece:
                to.write(answer.piece)
                to.flush()
                if os.getppid() != parent:
                    raise AnsibleActionFail("whoever started this has gone")
                time.sleep(PAUSE_SECONDS if answer.is_working else 0)
        return {**result, "changed": True, "stdout": answer.end}

    def _be_alone(self, to: IO[bytes]) -> None:
        try:
            fcntl.flock(to, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnsibleActionFail("another pagecage fetches from this host. Fix: wait for it") from None
        to.seek(0, os.SEEK_END)

    def _ask_patiently(self, offset: int) -> Answer:
        """Ask until the connection holds, for as long as patience lasts."""
        deadline = time.monotonic() + float(self._task.args["patience_seconds"])
        while True:
            try:
                return self._ask(offset)
            except AnsibleConnectionFailure:
                if time.monotonic() > deadline:
                    raise
                self._connection.reset()
                time.sleep(PAUSE_SECONDS)

    def _ask(self, offset: int) -> Answer:
        args = self._task.args
        words = ["sh", "-s", args["directory"], args["unit"], offset, WAIT_SECONDS]
        # By standard input, because without any Ansible's ssh asks for a terminal, which alters what comes out.
        told = self._low_level_execute_command(shlex.join(map(str, words)), in_data=SCRIPT.read_bytes())
        if told["rc"] != 0:
            raise AnsibleActionFail(f"the agent cannot be followed: {told['stderr'].strip() or told['rc']}")
        state, status, said, piece = told["stdout"].split("\n", 3)
        return Answer(state == "working", None if status == "gone" else int(status or 0), said, base64.b64decode(piece))
