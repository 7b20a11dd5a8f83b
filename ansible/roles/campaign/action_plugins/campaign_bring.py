"""An action that writes a file on the host with the shell.

A module would start Python, seconds on an emulated host.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Copy of the local `file` to `to` on the host.

    File and new directory are readable by their owner only.
    """

    TRANSFERS_FILES = False

    def run(
        self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Write the file. Raises AnsibleActionFail with the shell's message if that fails."""
        result = dict(super().run(tmp, task_vars))
        to = Path(self._task.args["to"])
        command = (
            f"umask 077 && mkdir -p {shlex.quote(str(to.parent))} && cat > {shlex.quote(str(to))}"
        )
        done = self._low_level_execute_command(
            command, in_data=Path(self._task.args["file"]).read_bytes()
        )
        if done["rc"] != 0:
            raise AnsibleActionFail(
                f"{to} cannot be written: {done['stderr'].strip() or done['rc']}"
            )
        return {**result, "changed": True}
