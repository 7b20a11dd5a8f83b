"""Provisioning of the guest by the Ansible roles of any host, once, before its state is saved."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagecage.ansible import HostResult, Playbook, run_to_end
from pagecage.errors import HostError
from pagecage.hosts.host import Progress
from pagecage.hosts.ssh import SshTarget, ssh_settings
from pagecage.hosts.vm.image.guest_image import GuestImage

GUEST = "guest"
"""The guest's name in inventories."""
_INPUTS = (
    *(
        "ansible/ansible.cfg",
        "ansible/site.yml",
        *(
            f"ansible/roles/{role}"
            for role in ("survey", "base", "tuning", "delegation", "storage")
        ),
    ),
    *("cgroups/50-pagecage-delegation.conf", "cgroups/pagecage.slice"),
)
"""The files applied to the guest.

The roles for the controller and for the agent are not among them.
"""
GUEST_SETTINGS = {
    "pagecage_data_dir": "/data",
    "pagecage_data_device": "none",
    "pagecage_delegated_users": ["bench"],
}
"""Variables of the roles for the guest. The data disk is plugged in and mounted at every start."""

WITHOUT_AGENT = ("--skip-tags", "agent")
"""The agent and the workloads are not in the saved state; they are copied at every start."""


def provisioning_key(project_dir: Path) -> str:
    """Return a key over all inputs of provisioning."""
    digest = hashlib.sha256(json.dumps(GUEST_SETTINGS, sort_keys=True).encode())
    for path in sorted(found for name in _INPUTS for found in _files(project_dir / name)):
        digest.update(f"{path.relative_to(project_dir)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    """Return the file, or the files below a directory without documentation and bytecode."""
    found = path.rglob("*") if path.is_dir() else [path]
    return [entry for entry in found if entry.is_file() and entry.suffix not in (".md", ".pyc")]


def provision_image(
    project_dir: Path, scratch: Path, progress: Progress, image: GuestImage
) -> None:
    """Apply site.yml to an image's root file system by chroot, and record the key of the roles.

    Raises HostError naming the failed task.
    """
    progress("provisioning the guest with Ansible, before its first boot")
    variables = {
        "ansible_connection": "pagecage_chroot",
        "ansible_host": str(image.tree),
        "ansible_user": "root",
    }
    _run(project_dir, scratch, {**variables, **GUEST_SETTINGS}, "site.yml", WITHOUT_AGENT)
    image.provisioned.write_text(provisioning_key(project_dir))


def is_provisioned(project_dir: Path, image: GuestImage) -> bool:
    """Return whether the present roles were applied before the image's first boot."""
    return image.provisioned.exists() and image.provisioned.read_text() == provisioning_key(
        project_dir
    )


def provision_guest(
    project_dir: Path, scratch: Path, target: SshTarget, progress: Progress
) -> None:
    """Apply site.yml to the guest. Raises HostError naming the failed task."""
    progress("provisioning the guest with Ansible (about 60 s, once)")
    run_on_guest(project_dir, scratch, target, "site.yml", WITHOUT_AGENT)


def run_on_guest(
    project_dir: Path, scratch: Path, target: SshTarget, playbook: str, words: Sequence[str] = ()
) -> HostResult:
    """Run a playbook on the guest, with more arguments for Ansible, and return its result.

    Raises HostError naming the failed task.
    """
    return _run(project_dir, scratch, guest_variables(target), playbook, words)


def _run(
    project_dir: Path,
    scratch: Path,
    variables: Mapping[str, object],
    name: str,
    words: Sequence[str],
) -> HostResult:
    inventory = scratch / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": {GUEST: variables}}}))
    playbook = Playbook(project_dir, name, inventory, scratch, tuple(words))
    result = run_to_end(playbook)[GUEST]
    error = result.error(playbook.log)
    if error is not None:
        raise HostError(f"the guest could not be provisioned: {error.message}", error.hint)
    return result


def guest_variables(target: SshTarget) -> dict[str, object]:
    """Return the guest's variables of an inventory; Ansible shares the open connection."""
    connection = {
        "ansible_host": target.address,
        "ansible_user": target.user,
        "ansible_port": target.port,
        "ansible_ssh_common_args": shlex.join(ssh_settings(target)),
        "ansible_ssh_args": f"-o ControlMaster=no -o ControlPath={target.control_path or 'none'}",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    return {**connection, **GUEST_SETTINGS}


def self_connecting_variables(target: SshTarget) -> dict[str, object]:
    """Return the variables of a guest for which Ansible itself opens a shared connection."""
    shared = f"-o ControlMaster=auto -o ControlPersist=60s -o ControlPath={target.control_path}"
    return {**guest_variables(target), "ansible_ssh_args": shared}
