"""Fitting the guest by the Ansible roles that fit any host, over ssh, once, before its state is saved."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagecage.ansible import HostResult, Playbook, play
from pagecage.errors import HostError
from pagecage.hosts.host import Progress
from pagecage.hosts.ssh import SshTarget, ssh_settings
from pagecage.hosts.vm.image import GuestImage

GUEST = "guest"
"""The guest's name in inventories."""
_INPUTS = (
    *(
        "ansible/ansible.cfg",
        "ansible/site.yml",
        *(f"ansible/roles/{role}" for role in ("survey", "base", "tuning", "delegation", "storage")),
    ),
    *("cgroups/50-pagecage-delegation.conf", "cgroups/pagecage.slice"),
)
"""What is applied to the guest; the roles for the controller and for the agent are not."""
GUEST_SETTINGS = {
    "pagecage_data_dir": "/data",
    "pagecage_data_device": "none",
    "pagecage_delegated_users": ["bench"],
}
"""What the guest sets of the roles' variables; no data device: the disk is plugged in, and mounted, at every start."""

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


def fit_image(project_dir: Path, scratch: Path, progress: Progress, image: GuestImage) -> None:
    """Apply site.yml to an image's root file system, by chroot, and note which roles it was.

    Raises HostError naming what failed.
    """
    progress("fitting the guest by its Ansible roles, before it boots")
    variables = {
        "ansible_connection": "community.general.chroot",
        "ansible_host": str(image.tree),
        "ansible_user": "root",
    }
    _play(project_dir, scratch, {**variables, **GUEST_SETTINGS}, "site.yml", WITHOUT_AGENT)
    image.fitted.write_text(fitting_key(project_dir))


def is_fitted(project_dir: Path, image: GuestImage) -> bool:
    """Whether the roles as they are now were applied before the image's first boot."""
    return image.fitted.exists() and image.fitted.read_text() == fitting_key(project_dir)


def fit_guest(project_dir: Path, scratch: Path, target: SshTarget, progress: Progress) -> None:
    """Apply site.yml to the guest. Raises HostError naming what failed."""
    progress("fitting the guest by its Ansible roles (about 60 s, once)")
    play_on_guest(project_dir, scratch, target, "site.yml", WITHOUT_AGENT)


def play_on_guest(
    project_dir: Path, scratch: Path, target: SshTarget, playbook: str, words: Sequence[str] = ()
) -> HostResult:
    """Run one of our playbooks on the guest, with more words for Ansible; how it ended.

    Raises HostError naming what failed.
    """
    return _play(project_dir, scratch, guest_variables(target), playbook, words)


def _play(
    project_dir: Path, scratch: Path, variables: Mapping[str, object], playbook: str, words: Sequence[str]
) -> HostResult:
    inventory = scratch / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": {GUEST: variables}}}))
    of = Playbook(project_dir, playbook, inventory, scratch, tuple(words))
    end = play(of)[GUEST]
    error = end.error(of.log)
    if error is not None:
        raise HostError(f"the guest could not be fitted: {error.message}", error.hint)
    return end


def guest_variables(target: SshTarget) -> dict[str, object]:
    """What an inventory says of the guest; Ansible shares the connection that is open."""
    connection = {
        "ansible_host": target.address, "ansible_user": target.user, "ansible_port": target.port,
        "ansible_ssh_common_args": shlex.join(ssh_settings(target)),
        "ansible_ssh_args": f"-o ControlMaster=no -o ControlPath={target.control_path or 'none'}",
        "ansible_python_interpreter": "/usr/bin/python3",
    }  # fmt: skip
    return {**connection, **GUEST_SETTINGS}


def kept_variables(target: SshTarget) -> dict[str, object]:
    """The same of one guest among several: nobody holds a connection open, so Ansible opens one and shares it."""
    shared = f"-o ControlMaster=auto -o ControlPersist=60s -o ControlPath={target.control_path}"
    return {**guest_variables(target), "ansible_ssh_args": shared}
