"""The place of a container engine's images in a guest: on the data disk, which is measured."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pagecage.agent.drivers.engine import ContainerEngine
from pagecage.agent.system.memory_reservation import OF_OURS
from pagecage.process import run

_ROOTS = {"docker": Path("/var/lib/docker"), "podman": Path("/var/lib/containers/storage")}
_FOLDER = "pagecage-engines"
_MOUNT_SECONDS = 60.0


def keep_on_data_disk(engine: ContainerEngine) -> None:
    """Bind a new directory of the data disk over the engine's own until the end of the session.

    Only in a guest that pagecage made, and only for an engine that is not running yet. Elsewhere
    the images stay where they are, and that disk is measured.
    """
    if not OF_OURS.exists() or os.getuid() or engine.has_running_daemon():
        return
    root, folder = _ROOTS[engine.program], engine.data_dir / _FOLDER / engine.program
    if os.path.ismount(root):
        return
    for path in (root, folder):
        path.mkdir(parents=True, exist_ok=True)
    run(["mount", "--bind", folder, root], timeout_seconds=_MOUNT_SECONDS)
    engine.undo.callback(shutil.rmtree, folder, ignore_errors=True)
    unmount = ["umount", "--recursive", "--lazy", str(root)]  # podman mounts directories below it
    engine.undo.callback(run, unmount, check=False, timeout_seconds=_MOUNT_SECONDS)
