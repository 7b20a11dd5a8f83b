"""An action that fetches the frames of a detached agent into a file until the agent ends."""

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
MOST_BYTES = 4 << 20
"""The most bytes that follow.sh prints at once."""
WAIT_SECONDS = 60
"""The longest time that one request may wait on the host."""
PAUSE_SECONDS = 2.0
"""The pause between two requests, so that a fast-growing stream does not keep the host busy."""


@dataclass(frozen=True)
class Answer:
    """The answer to one request: the agent's state and a piece of its stream.

    `status` is None if nothing of the agent is left on the host: the host was reinstalled, or never
    started the agent.
    """

    is_working: bool
    status: int | None
    last_line: str
    piece: bytes

    @property
    def end(self) -> str:
        """A clause that says how the agent ended."""
        if self.status is None:
            return "nothing of its agent is left on the host"
        return (
            "its agent ended with status"
            f" {self.status}{': ' + self.last_line if self.last_line else ''}"
        )


class ActionModule(ActionBase):  # type: ignore[misc]
    """Copy of the stream of `unit` in `directory` on the host to the local file `to`.

    `patience_seconds` is how long a connection may be broken.
    """

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Fetch to the end of the stream.

        Raises AnsibleConnectionFailure if the host stays unreachable.
        """
        result = dict(super().run(tmp, task_vars))
        parent = os.getppid()
        with Path(self._task.args["to"]).open("ab") as to:
            self._lock(to)
            while (answer := self._ask_patiently(to.tell())).is_working or answer.piece:
                if os.fstat(to.fileno()).st_nlink == 0:
                    raise AnsibleActionFail("pagecage does not believe this host's frames")
                if len(answer.piece) > MOST_BYTES:
                    raise AnsibleActionFail(f"the host sent more than {MOST_BYTES} bytes at once")
                to.write(answer.piece)
                to.flush()
                if os.getppid() != parent:
                    raise AnsibleActionFail("the process that started this has ended")
                time.sleep(PAUSE_SECONDS if answer.is_working else 0)
        return {**result, "changed": True, "stdout": answer.end}

    def _lock(self, to: IO[bytes]) -> None:
        try:
            fcntl.flock(to, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnsibleActionFail(
                "another pagecage fetches from this host. Fix: wait for it"
            ) from None
        to.seek(0, os.SEEK_END)

    def _ask_patiently(self, offset: int) -> Answer:
        """Ask until the connection works or `patience_seconds` have passed."""
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
        # Without standard input, Ansible's ssh requests a terminal, which alters the output.
        done = self._low_level_execute_command(
            shlex.join(map(str, words)), in_data=SCRIPT.read_bytes()
        )
        if done["rc"] != 0:
            raise AnsibleActionFail(
                f"the agent cannot be followed: {done['stderr'].strip() or done['rc']}"
            )
        state, status, last, piece = done["stdout"].split("\n", 3)
        return Answer(
            state == "working",
            None if status == "gone" else int(status or 0),
            last,
            base64.b64decode(piece),
        )
