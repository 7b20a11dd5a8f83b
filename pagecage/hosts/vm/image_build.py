"""The build of the guest's image: bootstrap, provisioning, and the parts that are kept."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pagecage.ansible import HostResult, Playbook, run_to_end
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import is_foreign_target
from pagecage.hosts.controller import require_free_space, require_tools
from pagecage.hosts.host import Progress
from pagecage.hosts.ssh import SshTarget, ssh_settings
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.image import (
    HOST_KEY_ALIAS,
    ROOT_DISK_BYTES,
    GuestImage,
    ImageRecipe,
    archive_of,
    find_image,
    packed_directory,
    require_xz,
    unpack,
    usable_keyring,
    write_contents,
)
from pagecage.model.json_codec import JsonView
from pagecage.process import TimeoutExpired, dying_with_parent, run, search_path, spawn
from pagecage.units import GIB
from pagecage.whole_files import sync_folder, sync_tree

_BUILD_SECONDS = 1800
_EMULATED_BUILD_SECONDS = 4 * _BUILD_SECONDS
"""For another architecture, whose maintainer scripts run in qemu-user."""
_EXCLUDED = ("man", "locale", "doc")
_EXCLUDE = (
    'mkdir -p "$1/etc/dpkg/dpkg.cfg.d" && '
    + f"printf 'path-exclude=/usr/share/%s/*\\n' {' '.join(_EXCLUDED)} > "
    + '"$1/etc/dpkg/dpkg.cfg.d/90-pagecage"'
)
_INSTALL_FOR_KERNEL = (
    "export LC_ALL=C DEBIAN_FRONTEND=noninteractive KERNEL=$(ls /lib/modules);"
    " apt-get -q -y --no-install-recommends install"
)
"""The image has one kernel, and the shell replaces ${KERNEL} in the packages' names."""
_REMOVE_EXCLUDED = " && ".join(
    f'find "$1/usr/share/{name}" -mindepth 1 -delete' for name in _EXCLUDED
)


def bootstrap_argv(directory: Path, recipe: ImageRecipe, keyring: Path, as_root: bool) -> list[str]:
    """Return the mmdebstrap(1) command: for root it makes a directory, else a tar archive.

    Files are left out by dpkg's own settings: mmdebstrap's option filters each package in Python,
    which takes longer than unpacking. The Java package links a manual page and needs its directory.
    `upload` hooks read files outside the user namespace, where a private directory is readable.
    """
    made, chroot = "/pagecage-build", 'chroot "$1" sh'
    hooks = ['mkdir -m 0700 "$1/pagecage-build"']
    hooks += [f"upload {directory / 'id_ed25519.pub'} {made}/authorized_keys"]
    for name in ("host_key", "host_key.pub", "customize.sh", "install-extra.sh"):
        hooks += [f"upload {directory / name} {made}/{name}"]
    if recipe.kernel_packages:
        names = " ".join(f'"{name}"' for name in recipe.kernel_packages)
        hooks += [f"{chroot} -c '{_INSTALL_FOR_KERNEL} {names}'"]
    if recipe.extra_packages:
        hooks += [f"{chroot} {made}/install-extra.sh {' '.join(recipe.extra_packages)}"]
    hooks += [f"{chroot} {made}/customize.sh", _REMOVE_EXCLUDED]
    return [
        "mmdebstrap",
        *(["--mode=root", "--format=directory"] if as_root else ["--mode=unshare", "--format=tar"]),
        "--variant=minbase",
        f"--architectures={recipe.arch}",
        "--include=" + ",".join(recipe.first_packages),
        f"--keyring={keyring}",
        '--aptopt=Apt::Install-Recommends "false"',
        f"--setup-hook={_EXCLUDE}",
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--customize-hook={hook}" for hook in hooks),
        recipe.suite,
        str(directory / "root") if as_root else "-",
        *(line.format(suite=recipe.suite) for line in archive_of(recipe.suite).sources),
    ]


def bootstrap(image: GuestImage, recipe: ImageRecipe, target: Path) -> None:
    (image.directory / "customize.sh").write_text(recipe.customize)
    (image.directory / "install-extra.sh").write_text(recipe.install_extra)
    log = image.directory / "bootstrap.log"
    as_root = os.geteuid() == 0
    # As root the tree is inside the .part directory, so that a killed build leaves nothing
    # elsewhere. Root of a user namespace cannot access a user's private directory; there
    # mmdebstrap uses a shared directory that allows execution.
    folder = str(image.directory) if as_root else shared_folder()
    limit_seconds = _EMULATED_BUILD_SECONDS if is_foreign_target() else _BUILD_SECONDS
    with (
        usable_keyring(archive_of(recipe.suite), Path(folder)) as keyring,
        (Path(os.devnull) if as_root else target).open("wb") as out,
        log.open("wb") as err,
    ):
        argv = dying_with_parent(bootstrap_argv(image.directory, recipe, keyring, as_root), "TERM")
        env = {"PATH": search_path(), "TMPDIR": folder}
        process = spawn(argv, stdout=out, stderr=err, env=env)
        try:
            status = process.wait(limit_seconds)
        except TimeoutExpired:
            reason = f"the guest's root file system was not made within {limit_seconds} s"
            raise HostError(reason, f"read {log}") from None
        finally:
            process.terminate()
            process.wait()
    if status != 0:
        raise _bootstrap_failure(log.read_text(errors="replace"))


def shared_folder() -> str:
    """Return a directory for temporary files that is open to all users and not mounted `noexec`."""
    named = os.environ.get("TMPDIR")
    for folder in (*([named] if named else []), "/tmp", "/var/tmp"):
        if Path(folder).is_dir() and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    reason = "/tmp and /var/tmp are mounted noexec"
    raise HostError(reason, "set TMPDIR to a directory that allows execution")


def _bootstrap_failure(log: str) -> PagecageError:
    lines = log.splitlines()
    first = next((line for line in lines if line.startswith("E:")), (lines or ["no output"])[-1])
    if "newuidmap" in log or "subuid" in log:
        return HostError(
            "this user has no subordinate user ids (subuid(5))",
            "make setup, or: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        )
    if "arch-test" in first or "neither be executed natively" in first:
        reason = "this machine cannot run programs of the guest's architecture"
        return HostError(reason, "sudo apt-get install qemu-user-static binfmt-support arch-test")
    hint = "make setup"
    if "Unable to locate package" in first:
        hint = "correct the name under `packages` in the experiment's definition"
    return HostError(f"the guest's root file system could not be made: {first}", hint)


GUEST = "guest"
"""The guest's name in inventories."""
_ROLES = ("survey", "base", "tuning", "delegation", "storage")
_INPUTS = (
    *("ansible/ansible.cfg", "ansible/site.yml", *(f"ansible/roles/{role}" for role in _ROLES)),
    *("cgroups/50-pagecage-delegation.conf", "cgroups/pagecage.slice"),
)
"""The files applied to the guest: without the roles for the controller and for the agent."""
GUEST_SETTINGS = {
    "pagecage_data_dir": "/data",
    "pagecage_data_device": "none",
    "pagecage_delegated_users": ["bench"],
}
"""Variables of the roles for the guest. The data disk is plugged in and mounted at every start."""

WITHOUT_AGENT = ("--skip-tags", "agent")
"""The agent and the workloads are not in the saved state; they are copied at every start."""


def provisioning_key(project_dir: Path) -> str:
    digest = hashlib.sha256(json.dumps(GUEST_SETTINGS, sort_keys=True).encode())
    tops = [project_dir / name for name in _INPUTS]
    files = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    for path in sorted(path for path in files if path.is_file()):
        if path.suffix not in (".md", ".pyc"):
            digest.update(f"{path.relative_to(project_dir)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def provision_image(
    project_dir: Path, scratch: Path, progress: Progress, image: GuestImage
) -> None:
    """Apply site.yml to a root file system by chroot, and record its key. Raises HostError."""
    progress("provisioning the guest with Ansible, before its first boot")
    variables = {
        "ansible_connection": "pagecage_chroot",
        "ansible_host": str(image.tree),
        "ansible_user": "root",
    }
    _run(project_dir, scratch, {**variables, **GUEST_SETTINGS}, "site.yml", WITHOUT_AGENT)
    image.provisioned.write_text(provisioning_key(project_dir))


def is_provisioned(project_dir: Path, image: GuestImage) -> bool:
    key = provisioning_key(project_dir)
    return image.provisioned.exists() and image.provisioned.read_text() == key


def provision_guest(
    project_dir: Path, scratch: Path, target: SshTarget, progress: Progress
) -> None:
    progress("provisioning the guest with Ansible (about 60 s, once)")
    run_on_guest(project_dir, scratch, target, "site.yml", WITHOUT_AGENT)


def run_on_guest(
    project_dir: Path, scratch: Path, target: SshTarget, playbook: str, words: Sequence[str] = ()
) -> HostResult:
    """Run a playbook on the guest and return its result. Raises HostError naming the task."""
    return _run(project_dir, scratch, guest_variables(target), playbook, words)


def _run(
    project_dir: Path, scratch: Path, variables: JsonView, name: str, words: Sequence[str]
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


MOST_IMAGES = 4
BUILD_BYTES = 3 * GIB
"""Space for the root file system, its tar archive and the disk image together."""
UNPACKED_BYTES = 3 * GIB // 2
Provision = Callable[[GuestImage], None]


def ensure_image(
    cache: GuestCache, recipe: ImageRecipe, progress: Progress, provision: Provision | None = None
) -> GuestImage:
    """Return an image with everything in this recipe, unpacked or built if it is missing.

    Root calls `provision` with the image while its root file system is a directory. Raises
    PagecageError if a tool is missing or fails.
    """
    image = find_image(cache.images, recipe)
    if image is None:
        image = GuestImage(cache.images / recipe.key)
        part = image.directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        packed = packed_directory(recipe.key)
        if packed.exists():
            require_xz()
            require_free_space(part.parent, UNPACKED_BYTES, "unpacking the guest's image")
            progress("unpacking the guest's image (once)")
            part.mkdir(mode=0o700)
            unpack(packed, GuestImage(part))
            GuestImage(part).identity.chmod(
                0o600
            )  # ssh rejects a private key that other users can read
        else:
            _build(part, recipe, progress, provision)
        write_contents(GuestImage(part), recipe)
        sync_tree(part)
        part.rename(image.directory)
        sync_folder(cache.images)
    os.utime(image.directory)
    keep_newest(cache.images, MOST_IMAGES)
    return image


def _build(
    part: Path, recipe: ImageRecipe, progress: Progress, provision: Provision | None
) -> None:
    require_tools("mmdebstrap", "fakeroot", "mke2fs", "ssh-keygen", "tar", "setpriv")
    require_free_space(part.parent, BUILD_BYTES, "building the guest's image")
    packages = f"{archive_of(recipe.suite).distribution} packages"
    what, time = f"the guest's image from {packages}", "about 60 s"
    if is_foreign_target():
        what, time = f"{what} for {recipe.arch}, whose scripts are emulated", "about 20 minutes"
    elif recipe.extra_packages:
        names = ", ".join(recipe.extra_packages)
        what, time = f"a guest's image with {names} from {packages}", "1 to 3 minutes"
    progress(f"building {what} ({time}, once)")
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    for name in ("id_ed25519", "host_key"):
        words = f"ssh-keygen -q -t ed25519 -N '' -C 'pagecage {name}' -f"
        run([*shlex.split(words), image.directory / name])
    public = (image.directory / "host_key.pub").read_text()
    image.known_hosts.write_text(f"{HOST_KEY_ALIAS} {public}")
    if os.geteuid() == 0:
        # Kernel and initrd are not on the disk: QEMU loads them.
        bootstrap(image, recipe, image.tree)
        if provision is not None:
            provision(image)
        for name, target in (("vmlinuz-*", image.kernel), ("initrd.img-*", image.initrd)):
            shutil.move(next((image.tree / "boot").glob(name)), target)
        run(
            ["sh", "-c", _MAKE_DISK, "sh", image.directory, str(ROOT_DISK_BYTES)],
            env={"PATH": search_path()},
        )
        shutil.rmtree(image.tree)
    else:
        _build_as_user(image, recipe)


def _build_as_user(image: GuestImage, recipe: ImageRecipe) -> None:
    tar = image.directory / "root.tar"
    bootstrap(image, recipe, tar)
    wanted = "--strip-components=2 --no-anchored --wildcards ./boot/vmlinuz-* ./boot/initrd.img-*"
    run(["tar", "-xf", tar, "-C", image.directory, *wanted.split()])
    for target in (image.kernel, image.initrd):
        next(image.directory.glob(f"{target.name}-*")).rename(target)
    left_out = "--exclude=./boot/vmlinuz-* --exclude=./boot/initrd.img-*"
    unpack_and_make = f'mkdir "$1/root" && tar -xpf "$3" -C "$1/root" {left_out} && {_MAKE_DISK}'
    words = ["fakeroot", "sh", "-c", unpack_and_make, "sh", str(image.directory)]
    run([*words, str(ROOT_DISK_BYTES), tar], env={"PATH": search_path()})
    shutil.rmtree(image.tree)
    tar.unlink()


_MAKE_DISK = (
    'truncate -s "$2" "$1/root.img" && mke2fs -q -t ext4 -L root -F -d "$1/root" "$1/root.img"'
)
