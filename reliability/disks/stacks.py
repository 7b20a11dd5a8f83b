"""Stacks of devices under a data directory, made from two blank disks in the guest."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TOP = "/stacks"
FIRST, SECOND = "second", "third"
"""Names of the guest's disks beside the data directory's, as `first` and `second` disk here."""
PACKAGES = (
    *("lvm2", "cryptsetup-bin", "mdadm", "btrfs-progs", "xfsprogs", "thin-provisioning-tools"),
    *("dosfstools", "fdisk", "nfs-kernel-server"),
)


@dataclass(frozen=True)
class Stack:
    """A stack: its title, and the script that mounts it at $at.

    `parts` are partitions of the first disk ($1, $2...), `parts_beside` of the second ($b1, $b2).
    """

    name: str
    title: str
    script: str
    parts: int = 1
    parts_beside: int = 0


_ROWS = tomllib.loads(Path(__file__).with_name("stacks.toml").read_text())["stack"]
STACKS = tuple(Stack(**row) for row in _ROWS)
BY_NAME = {stack.name: stack for stack in STACKS}
NEEDED_FIRST = ("partition",)
"""Stacks in which others keep files."""
_PART_MIB, _FIRST_PART_MIB = 420, 1000
_HEAD = f"""
mkdir -p {TOP}
for name in {FIRST} {SECOND}; do
    umount /disks/$name 2> /dev/null || true
    disk=$(readlink -f /dev/disk/by-id/virtio-pagecage-$name)
    wipefs -qa $disk
    case $name in {FIRST}) first=$disk;; *) second=$disk;; esac
done
export first second
"""
_SETTLED = """
udevadm settle
# udev would look at every new device several times. Without it, the tools make the nodes.
systemctl stop systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket
export DM_DISABLE_UDEV=1 MDADM_NO_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1
"""
_STACK = """
log={top}/{name}.log
sh -e /dev/fd/3 3<< 'END' 2> $log < /dev/null || echo "{name}: $(tail -n 1 $log)"
    vg() {{
        name=$1; shift
        own="-qqy --devices $(echo $* | tr ' ' ,) --config activation/monitoring=0"
        vgcreate $own $name $*
    }}
    lv() {{ name=$1; shift; lvcreate $own $* $name; }}
    at={top}/{name}; {variables}
    mkdir -p $at
    {script}
    mkdir -p $at/root $at/user
    chmod 777 $at/user
END
"""


def script(names: Iterable[str]) -> str:
    """Return the shell script that makes stacks; it prints a line for each that fails."""
    stacks = [BY_NAME[name] for name in dict.fromkeys((*NEEDED_FIRST, *names))]
    parts, beside = (sum(counts) for counts in zip(*map(_counts, stacks), strict=True))
    made = [_HEAD, _table("$first", [_FIRST_PART_MIB, *[_PART_MIB] * (parts - 1)])]
    if beside:
        made.append(_table("$second", [_PART_MIB] * beside))
    made.append(_SETTLED)
    first = second = 0
    for stack in stacks:
        numbers = [f"p{n}=${{first}}{first + n}" for n in range(1, stack.parts + 1)]
        numbers += [f"b{n}=${{second}}{second + n}" for n in range(1, stack.parts_beside + 1)]
        first, second = first + stack.parts, second + stack.parts_beside
        variables = "; ".join(numbers) or ":"
        made.append(
            _STACK.format(top=TOP, name=stack.name, variables=variables, script=stack.script)
        )
    return "\n".join(made)


def _counts(stack: Stack) -> tuple[int, int]:
    return stack.parts, stack.parts_beside


def _table(disk: str, sizes_mib: Iterable[int]) -> str:
    lines = " ".join(f"'size={size}MiB'" for size in sizes_mib)
    return f"printf '%s\\n' 'label: gpt' {lines} | sfdisk -q --wipe always {disk}"
