"""The guest's root file system, made from its distribution's packages with mmdebstrap(1)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pagecage.errors import HostError, PagecageError
from pagecage.hosts.architecture import is_foreign_target
from pagecage.hosts.vm.image.archive import archive_of, usable_keyring
from pagecage.hosts.vm.image.guest_image import GuestImage
from pagecage.hosts.vm.image.recipe import ImageRecipe
from pagecage.process import TimeoutExpired, dying_with_parent, search_path, spawn

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
    """Return the mmdebstrap(1) command that makes the root file system.

    For root it makes a directory, else a tar archive. Files are left out by dpkg's own settings:
    with mmdebstrap's option, each of the first packages would pass through a filter in Python,
    which takes longer than unpacking. The Java package links a manual page and needs its directory.
    `upload` hooks read files outside the user namespace, where a private directory is readable.
    """
    uploads = {
        "id_ed25519.pub": "authorized_keys",
        "host_key": "host_key",
        "host_key.pub": "host_key.pub",
        "customize.sh": "customize.sh",
        "install-extra.sh": "install-extra.sh",
    }
    hooks = ['mkdir -m 0700 "$1/pagecage-build"']
    hooks += [
        f"upload {directory / source} /pagecage-build/{target}"
        for source, target in uploads.items()
    ]
    hooks += [*_installations(recipe), 'chroot "$1" sh /pagecage-build/customize.sh']
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
        *(f"--customize-hook={hook}" for hook in (*hooks, _REMOVE_EXCLUDED)),
        recipe.suite,
        str(directory / "root") if as_root else "-",
        *archive_of(recipe.suite).sources_of(recipe.suite),
    ]


def _installations(recipe: ImageRecipe) -> Iterator[str]:
    """Yield the hooks that install the packages of the kernel, and those of experiments."""
    if recipe.kernel_packages:
        names = " ".join(f'"{name}"' for name in recipe.kernel_packages)
        yield f"chroot \"$1\" sh -c '{_INSTALL_FOR_KERNEL} {names}'"
    if recipe.extra_packages:
        names = " ".join(recipe.extra_packages)
        yield f'chroot "$1" sh /pagecage-build/install-extra.sh {names}'


def bootstrap(image: GuestImage, recipe: ImageRecipe, target: Path) -> None:
    """Run mmdebstrap, which writes `target`."""
    (image.directory / "customize.sh").write_text(recipe.customize)
    (image.directory / "install-extra.sh").write_text(recipe.install_extra)
    log = image.directory / "bootstrap.log"
    as_root = os.geteuid() == 0
    env = _build_env(image)
    with usable_keyring(archive_of(recipe.suite), Path(env["TMPDIR"])) as keyring:
        argv = bootstrap_argv(image.directory, recipe, keyring, as_root)
        status = _run_to_end(argv, Path(os.devnull) if as_root else target, log, env)
    if status != 0:
        raise _bootstrap_failure(log.read_text(errors="replace"))


def _run_to_end(argv: list[str], target: Path, log: Path, env: dict[str, str]) -> int:
    """Run mmdebstrap with its output in `target`, and return its exit status."""
    with target.open("wb") as out, log.open("wb") as err:
        process = spawn(dying_with_parent(argv, "TERM"), stdout=out, stderr=err, env=env)
    limit_seconds = _EMULATED_BUILD_SECONDS if is_foreign_target() else _BUILD_SECONDS
    try:
        return process.wait(limit_seconds)
    except TimeoutExpired:
        raise HostError(
            f"the guest's root file system was not made within {limit_seconds} s", f"read {log}"
        ) from None
    finally:
        process.terminate()
        process.wait()


def _build_env(image: GuestImage) -> dict[str, str]:
    """Return mmdebstrap's environment.

    As root the tree is inside the .part directory, so that a killed build leaves nothing elsewhere.
    Root of a user namespace cannot access a user's private directory; there mmdebstrap uses a
    shared directory that allows execution.
    """
    path = {"PATH": search_path()}
    return {**path, "TMPDIR": str(image.directory) if os.geteuid() == 0 else shared_folder()}


def shared_folder() -> str:
    """Return a directory for temporary files that is open to all users and not mounted `noexec`."""
    named = os.environ.get("TMPDIR")
    for folder in (*([named] if named else []), "/tmp", "/var/tmp"):
        if Path(folder).is_dir() and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    raise HostError(
        "/tmp and /var/tmp are mounted noexec", "set TMPDIR to a directory that allows execution"
    )


def _bootstrap_failure(log: str) -> PagecageError:
    """Return the error of a failed mmdebstrap, from the first error in its log."""
    errors = (
        [line for line in log.splitlines() if line.startswith("E:")]
        or log.splitlines()[-1:]
        or ["no output"]
    )
    if "newuidmap" in log or "subuid" in log:
        return HostError(
            "this user has no subordinate user ids (subuid(5))",
            "make setup, or: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        )
    if "arch-test" in errors[0] or "neither be executed natively" in errors[0]:
        return HostError(
            "this machine cannot run programs of the guest's architecture",
            "sudo apt-get install qemu-user-static binfmt-support arch-test",
        )
    if "Unable to locate package" in errors[0]:
        return HostError(
            f"the guest's root file system could not be made: {errors[0]}",
            "correct the name under `packages` in the experiment's definition",
        )
    return HostError(f"the guest's root file system could not be made: {errors[0]}", "make setup")
