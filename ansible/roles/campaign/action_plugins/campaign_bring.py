"""Writes a file of ours on the host by its shell alone: a module starts Python there, seconds on an emulated host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """`file` here, `to` on the host; it and the directory that it makes are for nobody else to read."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write it. Raises AnsibleActionFail with the shell's own words where that is not possible."""
        result = dict(super().run(tmp, task_vars))
        to = Path(self._task.args["to"])
        command = f"umask 077 && mkdir -p {shlex.quote(str(to.parent))} && cat > {shlex.quote(str(to))}"
        told = self._low_level_execute_command(command, in_data=Path(self._task.args["file"]).read_bytes())
        if told["rc"] != 0:
            raise AnsibleActionFail(f"{to} cannot be written: {told['stderr'].strip() or told['rc']}")
        return {**result, "changed": True}
