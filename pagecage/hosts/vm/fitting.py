"""Fitting the guest by the Ansible roles that fit any host, over ssh, once, before its state is saved."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.host import Progress
from pagecage.hosts.ssh import SshTarget, ssh_settings
from pagecage.process import Completed, run

FITTING_SECONDS = 900
_INPUTS = (
    *(
        "ansible/ansible.cfg",
        "ansible/site.yml",
        "ansible/roles/base",
        "ansible/roles/delegation",
        "ansible/roles/storage",
    ),
    *("cgroups/50-pagecage-delegation.conf", "cgroups/pagecage.slice"),
)
"""What is applied to the guest; the roles for the controller and for the agent are not."""
GUEST_SETTINGS = {
    "pagecage_data_dir": "/data",
    "pagecage_delegated_users": ["bench"],
}
"""What the guest sets of the roles' variables; no data device, because the disk is plugged in at every start."""

WITHOUT_AGENT = ("--skip-tags", "agent")
"""Harness and workloads are no part of the saved state: they are pushed at every start, as newest."""


def fitting_key(project_dir: Path) -> str:
    """Changes when anything that fits a host does."""
    digest = hashlib.sha256(json.dumps(GUEST_SETTINGS, sort_keys=True).encode())
    for path in sorted(found for name in _INPUTS for found in _files(project_dir / name)):
        digest.update(f"{path.relative_to(project_dir)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    """The file, or the files below a directory that Ansible reads (prose and left-overs of Python are none)."""
    found = path.rglob("*") if path.is_dir() else [path]
    return [entry for entry in found if entry.is_file() and entry.suffix not in (".md", ".pyc")]


def fit_guest(project_dir: Path, scratch: Path, target: SshTarget, progress: Progress) -> None:
    """Apply site.yml to the guest. Raises HostError naming the task that failed."""
    progress("fitting the guest by its Ansible roles (about 60 s, once)")
    play(project_dir, scratch, target, "site.yml", WITHOUT_AGENT)


def play(project_dir: Path, scratch: Path, target: SshTarget, playbook: str, words: Sequence[str] = ()) -> str:
    """Run one of our playbooks on the guest, with more words for Ansible; returns its output.

    Raises HostError naming the task that failed.
    """
    inventory = scratch / "inventory.json"
    inventory.write_text(json.dumps(guest_inventory(target)))
    argv: list[str | Path] = [
        playbook_program(project_dir),
        "-i",
        inventory,
        *words,
        project_dir / "ansible" / playbook,
    ]
    settings = {
        "ANSIBLE_CONFIG": str(project_dir / "ansible" / "ansible.cfg"), "ANSIBLE_HOME": str(scratch / "ansible"),
        "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1",
    }  # fmt: skip
    done = run(argv, env=settings, timeout_seconds=FITTING_SECONDS, check=False)
    (scratch / "fitting.log").write_text(done.stdout + done.stderr)
    if not done.ok:
        raise _failure(done, scratch / "fitting.log")
    return done.stdout


def playbook_program(project_dir: Path) -> str:
    """The project's own ansible-playbook, or the one on PATH. Raises HostError when there is none."""
    own = project_dir / ".venv-ansible" / "bin" / "ansible-playbook"
    program = str(own) if own.exists() else shutil.which("ansible-playbook")
    if program is None:
        raise HostError("ansible-playbook is not installed", "make setup")
    return program


def guest_inventory(target: SshTarget) -> dict[str, object]:
    """An inventory with the guest alone in it (JSON, which is YAML); Ansible shares the connection that is open."""
    connection = {
        "ansible_host": target.address, "ansible_user": target.user, "ansible_port": target.port,
        "ansible_ssh_common_args": shlex.join(ssh_settings(target)),
        "ansible_ssh_args": f"-o ControlMaster=no -o ControlPath={target.control_path or 'none'}",
        "ansible_python_interpreter": "/usr/bin/python3",
    }  # fmt: skip
    return {"all": {"hosts": {"guest": {**connection, **GUEST_SETTINGS}}}}


def _failure(done: Completed, log: Path) -> HostError:
    """Ansible prints the task, then `fatal: [...]` or `[ERROR]: ...` below it."""
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    errors = [line for line in lines if line.startswith(("fatal:", "[ERROR]", "ERROR!"))] or lines[-1:] or ["no output"]
    return HostError(f"the guest could not be fitted: {errors[0][:300]}", f"read {log}, then: pagecage host rebuild vm")
