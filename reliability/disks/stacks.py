"""Stacks of devices under a data directory, made from two blank disks in the guest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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


_EXT4 = "mkfs.ext4 -q -E lazy_itable_init=0,nodiscard"
_VG = "vg {0} $p1; lv {0} -l 100%FREE -n data"
_MD = "mdadm --quiet --create /dev/md/{0} --run --assume-clean --metadata 1.2 --level 1 -n 2 {1}"
STACKS = (
    Stack("partition", "ext4 on a partition", f"{_EXT4} $p1; mount $p1 $at"),
    Stack(
        "lvm-ext4",
        "ext4 on LVM",
        f"{_VG.format('vgext')}; {_EXT4} /dev/vgext/data; mount /dev/vgext/data $at",
    ),
    Stack(
        "lvm-xfs",
        "XFS on LVM",
        f"{_VG.format('vgxfs')}; mkfs.xfs -q -K /dev/vgxfs/data; mount /dev/vgxfs/data $at",
    ),
    Stack(
        "luks",
        "ext4 on LUKS",
        "echo -n key > /run/key; cryptsetup -q luksFormat --pbkdf pbkdf2"
        " --pbkdf-force-iterations 1000 --key-file /run/key $p1;"
        " cryptsetup open --key-file /run/key $p1 sealed;"
        f" {_EXT4} /dev/mapper/sealed; mount /dev/mapper/sealed $at",
    ),
    Stack(
        "lvm-luks",
        "ext4 on LVM on LUKS",
        "echo -n key > /run/key2; cryptsetup -q luksFormat --pbkdf pbkdf2"
        " --pbkdf-force-iterations 1000 --key-file /run/key2 $p1;"
        " cryptsetup open --key-file /run/key2 $p1 below;"
        " vg vgover /dev/mapper/below; lv vgover -l 100%FREE -n data;"
        f" {_EXT4} /dev/vgover/data; mount /dev/vgover/data $at",
    ),
    Stack(
        "md-two-disks",
        "ext4 on md RAID1 of two disks",
        f"{_MD.format('apart', '$p1 $b1')}; {_EXT4} /dev/md/apart; mount /dev/md/apart $at",
        parts_beside=1,
    ),
    Stack(
        "md-one-disk",
        "ext4 on md RAID1 of two partitions of a disk",
        f"{_MD.format('beside', '$p1 $p2')}; {_EXT4} /dev/md/beside; mount /dev/md/beside $at",
        parts=2,
    ),
    Stack(
        "thin",
        "ext4 on dm-thin",
        "vg vgthin $p1; lv vgthin --type thin-pool -L 340M -n pool;"
        " lv vgthin -V 320M -n data --thinpool pool;"
        f" {_EXT4} /dev/vgthin/data; mount /dev/vgthin/data $at",
    ),
    Stack(
        "thin-two-disks",
        "ext4 on dm-thin with metadata on another disk",
        "vg vgpool $p1 $b1; lvcreate $own -L 340M -n pool vgpool $p1;"
        " lvcreate $own -L 8M -n meta vgpool $b1;"
        " lvconvert $own --type thin-pool --poolmetadata vgpool/meta vgpool/pool;"
        " lv vgpool -V 320M -n data --thinpool pool;"
        f" {_EXT4} /dev/vgpool/data; mount /dev/vgpool/data $at",
        parts_beside=1,
    ),
    Stack(
        "lvm-two-disks",
        "ext4 on an LVM volume over two disks",
        "vg vgwide $p1 $b1; lv vgwide -l 100%FREE -n data;"
        f" {_EXT4} /dev/vgwide/data; mount /dev/vgwide/data $at",
        parts_beside=1,
    ),
    Stack("btrfs", "btrfs on one disk", "mkfs.btrfs -q $p1; mount $p1 $at"),
    Stack(
        "btrfs-two-disks",
        "btrfs on two disks",
        "mkfs.btrfs -q $p1 $b1; mount $p1 $at",
        parts_beside=1,
    ),
    Stack("vfat", "vfat on a partition", "mkfs.vfat $p1 > /dev/null; mount -o umask=0 $p1 $at"),
    Stack("ext4-journal", "ext4 with data=journal", f"{_EXT4} $p1; mount -o data=journal $p1 $at"),
    Stack(
        "loop",
        "ext4 on a loop device",
        f"mkdir -p {TOP}/partition; truncate -s 320M {TOP}/partition/image;"
        f" loop=$(losetup --find --show {TOP}/partition/image); {_EXT4} $loop; mount $loop $at",
        parts=0,
    ),
    Stack(
        "overlay",
        "overlayfs",
        f"cd {TOP}/partition; mkdir lower upper work;"
        " mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay $at",
        parts=0,
    ),
    Stack("tmpfs", "tmpfs", "mount -t tmpfs tmpfs $at", parts=0),
    Stack(
        "nfs",
        "NFS",
        f"mkdir {TOP}/partition/shared; chmod 777 {TOP}/partition/shared;"
        " timeout 60 systemctl start nfs-server;"
        f" exportfs -o rw,insecure,no_root_squash,fsid=0 127.0.0.1:{TOP}/partition/shared;"
        " timeout 30 mount -t nfs4 127.0.0.1:/ $at",
        parts=0,
    ),
)
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
