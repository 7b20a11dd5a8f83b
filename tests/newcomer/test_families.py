"""Systems without apt: messages with their own package manager, and set-up of what is possible.

Their release files are made up. The tests use this machine's own root file system, because theirs
are not available here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.newcomer.machine import CAN_PIVOT, Machine, machine, printed
from tests.tree import ROOT

pytestmark = [CAN_PIVOT, pytest.mark.long]
PREPARE = ".venv-ansible/bin/python -I tools/prepare-controller"
LESS = (
    "rm -f /usr/bin/gcc /usr/bin/qemu-img /usr/bin/mmdebstrap /usr/bin/apt* /usr/bin/dpkg*"
    " /etc/debian_version"
)


@dataclass(frozen=True)
class Family:
    """Marks of a system: os-release, another file, its package manager; and its command that
    installs gcc.
    """

    release: str
    file: str
    manager: str
    command: str


FAMILIES = {
    "fedora": Family("ID=fedora\nVERSION_ID=42\n", "redhat-release", "dnf5", "dnf install -y gcc"),
    "arch": Family("ID=arch\n", "arch-release", "pacman", "pacman -S --needed --noconfirm gcc"),
    "suse": Family(
        'ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\nVERSION_ID="20251101"\nNAME="openSUSE'
        ' Tumbleweed"\n',
        "SuSE-release",
        "zypper",
        "zypper --non-interactive install --no-recommends gcc",
    ),
    "alpine": Family(
        "ID=alpine\nVERSION_ID=3.22.0\n",
        "alpine-release",
        "apk",
        "apk add --update-cache gcc musl-dev",
    ),
}
FULL_NAMES = {
    "fedora": "Fedora release 42 (Adams)",
    "suse": "openSUSE Tumbleweed",
    "alpine": "3.22.0",
}
APK = """#!/bin/sh
echo "$@" >>/var/asked
case "$*" in
*add*qemu-img*)
    printf 'ERROR: unable to select packages:\\n  qemu-img (no such package):\\n' >&2
    exit 1 ;;
*add*gcc*) printf '#!/bin/sh\\n' >/usr/bin/gcc ;;
*add*cargo*) printf '#!/bin/sh\\necho cargo 1.91.0\\n' >/usr/bin/cargo ;;
*add*rust*) printf '#!/bin/sh\\necho rustc 1.91.0\\n' >/usr/bin/rustc ;;
esac
chmod 755 /usr/bin/gcc /usr/bin/cargo /usr/bin/rustc 2>/dev/null || :
"""


@pytest.fixture
def bare() -> Iterator[Machine]:
    """This machine without a compiler, without the guest's programs, and without apt."""
    with machine("host") as new:
        new.root(LESS)
        environment = ROOT / ".venv-ansible"
        new.root(f"ln -s {shlex.quote(str(environment))} {new.checkout}/.venv-ansible")
        for path in (environment, (environment / "bin/python").resolve()):
            new.root(f"chmod a+x {shlex.join(map(str, path.parents))}")
        new.root("mkdir -p /etc/apk && touch /etc/apk/world")
        yield new


def become(new: Machine, name: str) -> Family:
    """Turn the machine into a system of this family."""
    family = FAMILIES[name]
    new.root(f"rm -f /etc/os-release && printf %s {shlex.quote(family.release)} >/etc/os-release")
    new.root(f"echo {shlex.quote(FULL_NAMES.get(name, ''))} >/etc/{family.file}")
    new.root(f"printf '#!/bin/sh\\n' >/sbin/{family.manager} && chmod 755 /sbin/{family.manager}")
    return family


@pytest.mark.parametrize("name", FAMILIES)
def test_who_may_not_install_is_told_the_command_of_his_system(bare: Machine, name: str) -> None:
    family = become(bare, name)
    done = bare.run(f"{PREPARE} build", LC_ALL="C.UTF-8")
    assert done.status == 3, printed(done)
    assert "pagecage: gcc, static-libc, rust: missing" in done.stderr, printed(done)
    assert "and this user may not install packages without a password" in done.stderr
    assert f"sh -c '{family.command}" in done.stderr, printed(done)
    assert not {"qemu", "mmdebstrap"} & {*done.stderr.split()}, "nobody asked for a guest"


def test_what_cannot_be_had_is_named_and_the_rest_is_installed(bare: Machine) -> None:
    become(bare, "alpine")
    bare.root(f"printf %s {shlex.quote(APK)} >/sbin/apk && chmod 755 /sbin/apk")
    done = bare.run(f"{PREPARE} build guest && cat /var/asked", user="0", LC_ALL="C.UTF-8")
    assert done.ok, printed(done)
    assert "add gcc musl-dev cargo rust qemu-img\n" in done.stdout, "all at once, first"
    assert "add rust\n" in done.stdout, "then one by one"
    reported = "note: qemu-img, mmdebstrap: not in the packages of Alpine 3, so there is no HOST=vm"
    assert reported in done.stdout, printed(done)


def test_a_system_that_is_not_known(bare: Machine) -> None:
    bare.root("rm -f /etc/os-release && printf 'ID=exherbo\\nVERSION_ID=1\\n' >/etc/os-release")
    done = bare.run(f"{PREPARE} build", user="0", LC_ALL="C.UTF-8")
    assert done.status == 3, printed(done)
    reported = "pagecage: gcc, static-libc, rust: not in the packages of this system"
    assert reported in done.stderr, printed(done)
    fix = "fix: install them by your own means, then repeat"
    assert f"so the workloads cannot be compiled here\n  {fix}" in done.stderr
    done = bare.run(f"{PREPARE} guest", user="0", LC_ALL="C.UTF-8")
    assert done.ok, printed(done)
    reported = "note: qemu-img, mmdebstrap: not in the packages of this system"
    assert reported in done.stdout, printed(done)
    assert "so there is no HOST=vm" in done.stdout
