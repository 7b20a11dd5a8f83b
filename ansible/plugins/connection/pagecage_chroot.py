"""Connection of Ansible to a root file system of this machine, by chroot(8).

Collections have such a plugin too, but they take 256 MB.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: pagecage_chroot
short_description: Commands in a root file system of this machine
description:
  - Runs each command with chroot(8), which needs root.
options:
  remote_addr:
    description: Directory of the root file system.
    type: path
    vars:
      - name: inventory_hostname
      - name: ansible_host
"""


class Connection(ConnectionBase):  # type: ignore[misc]
    """Runs commands and copies files by the root file system's own shell."""

    transport = "pagecage_chroot"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Return exit status, output and errors of a command."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        argv = ["chroot", self.get_option("remote_addr"), "/bin/sh", "-c", cmd]
        done = subprocess.run(argv, input=in_data or b"", capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file into the root file system."""
        super().put_file(in_path, out_path)
        self._copy(f"cat > {shlex.quote(out_path)}", Path(in_path).read_bytes())

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file out of the root file system."""
        super().fetch_file(in_path, out_path)
        Path(out_path).write_bytes(self._copy(f"cat {shlex.quote(in_path)}"))

    def close(self) -> None:
        """End the connection; nothing is left open."""
        self._connected = False

    def _copy(self, command: str, content: bytes = b"") -> bytes:
        """Return the output of a command. Raises AnsibleConnectionFailure if it fails."""
        status, output, errors = self.exec_command(command, content)
        if status != 0:
            reason: Any = errors.decode(errors="replace").strip() or status
            raise AnsibleConnectionFailure(f"{command}: {reason}")
        return output
