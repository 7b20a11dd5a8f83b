"""The disk of a simulated volume on a host that is not our guest: nbdkit and the kernel's client.

The volume's file lies in the data directory and is kept with its datasets. Names are fixed, since
one agent locks the host: the next start finds what a killed agent left. nbdkit then has ended with
the agent, and the kernel's client fails all I/O.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.block_device import resolve_disk
from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.trial_storage import TrialStorage
from pagecage.agent.system.volume_server import PLUGIN, VolumeServer, require_nbdkit
from pagecage.errors import HostError, PagecageError
from pagecage.model.cage import DATA_DISK
from pagecage.process import find_tool, run
from pagecage.units import GIB, MIB

SYS_BLOCK = Path("/sys/block")
_SPARE_BYTES = 512 * MIB
_NODE_SECONDS = 5.0


@dataclass(frozen=True)
class MountedVolume:
    """A served volume with its file system."""

    server: VolumeServer
    storage: TrialStorage


def mount_volume(
    data_bytes: int, data_dir: Path, spool: Path, name: str = DATA_DISK
) -> MountedVolume:
    """Serve the volume of a disk, with room for the data, and mount it.

    Its file system and files are kept from trial to trial while they are large enough. Raises
    PagecageError with the reason.
    """
    _require_tools()
    file = data_dir / f"{_named('pagecage-volume', name)}.raw"
    is_new = _ensure_file(file, data_bytes * 6 // 5 + _SPARE_BYTES)
    folder = spool / _named("volume", name)
    folder.mkdir(parents=True, exist_ok=True)
    server = VolumeServer.start(spool / "bin" / PLUGIN, file, folder, folder / "nbdkit.log")
    try:
        return MountedVolume(server, _mount(_attach(server, folder), folder, is_new=is_new))
    except BaseException:
        _unmount(folder)
        server.end()
        raise


def _require_tools() -> None:
    require_nbdkit()
    if not find_tool("nbd-client"):
        raise HostError("a simulated volume needs nbd-client", "apt-get install nbd-client")
    if os.getuid() != 0:
        raise HostError("only root may attach a simulated volume", "use HOST=vm")


def _mount(node: Path, folder: Path, *, is_new: bool) -> TrialStorage:
    if is_new:
        settings = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-E", settings, node])
    else:
        run(["e2fsck", "-f", "-p", node], check=False)
    mount_point = folder / "mounted"
    mount_point.mkdir(exist_ok=True)
    run(["mount", "-o", "noatime", node, mount_point], timeout_seconds=60)
    return TrialStorage(resolve_disk(mount_point), mount_point)


def _ensure_file(file: Path, size_bytes: int) -> bool:
    """Make the volume's sparse file if it is missing or too small; return whether it is new."""
    if file.exists() and file.stat().st_size >= size_bytes:
        return False
    file.unlink(missing_ok=True)
    with file.open("wb") as volume:
        volume.truncate(-(-size_bytes // GIB) * GIB)
    return True


def _attach(server: VolumeServer, folder: Path) -> Path:
    """Attach the kernel's client to the volume; return the node.

    The name is written before, so that the next start can detach it.
    """
    run(["modprobe", "nbd"], timeout_seconds=30)
    node = _free_node()
    (folder / "node").write_text(node.name)
    run(
        ["nbd-client", "-unix", server.data_socket, node, "-timeout", "30", "-block-size", "4096"],
        timeout_seconds=30,
    )
    deadline = time.monotonic() + _NODE_SECONDS
    while (read_text(SYS_BLOCK / node.name / "size") or "0").strip() == "0":
        if time.monotonic() > deadline:
            raise HostError(f"{node} has no size", "use HOST=vm")
        time.sleep(0.02)
    return node


def _free_node(sys_block: Path = SYS_BLOCK) -> Path:
    """Return a node of the kernel's client that nobody uses: it has a `pid` while in use."""
    names = sorted(path.name for path in sys_block.glob("nbd*") if not (path / "pid").exists())
    if not names:
        raise HostError("no free /dev/nbd: the kernel's module nbd is missing", "use HOST=vm")
    return Path("/dev") / names[0]


def unmount_volume(spool: Path, name: str | None = None) -> list[str]:
    """Undo whatever mount_volume did for a disk (None: for all disks), even in part.

    Returns the names of what was there.
    """
    folders = sorted(spool.glob("volume*")) if name is None else [spool / _named("volume", name)]
    return [one for folder in folders for one in _unmount(folder)]


def _named(word: str, disk: str) -> str:
    return word if disk == DATA_DISK else f"{word}-{disk}"


def _unmount(folder: Path) -> list[str]:
    removed = []
    mount_point, noted = folder / "mounted", folder / "node"
    if os.path.ismount(mount_point):
        run(["umount", "--lazy", "--force", mount_point], timeout_seconds=60)
        removed.append(str(mount_point))
    if noted.exists():
        node = noted.read_text().strip()
        if (SYS_BLOCK / node / "pid").exists():
            _detach(Path("/dev") / node)
            removed.append(node)
        noted.unlink()
    return removed


def _detach(node: Path) -> None:
    done = run(["nbd-client", "-d", node], check=False, timeout_seconds=60)
    if not done.ok:
        raise PagecageError(f"{node} cannot be detached: {done.stderr.strip()}", "restart the host")
