"""The files of an image's program: those of the image's layers, and of its mounts."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.caged import Caged
from pagecage.agent.drivers.image_container import mounted_paths
from pagecage.agent.storage import Storage
from pagecage.agent.system.page_cache import evict, resident_bytes
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.container.image import ImageSpec
from pagecage.model.requirements import Requirement


def image_paths(run: TrialRun, image: ImageSpec, storage: Storage) -> tuple[Path, ...]:
    """Return the directories of the layers, and the paths that are mounted into the container.

    Raises RequirementMissed for a disk that was made for the trial, which cannot hold layers, and
    for a mount whose path does not exist.
    """
    if storage.is_own:
        raise RequirementMissed.of(
            Requirement.STORAGE,
            f"the layers of an image cannot lie on a disk made for the trial ({storage.kind})",
            "use --host vm, or --enforced-by cgroup",
        )
    mounts = mounted_paths(image)
    if missing := [path for path in mounts if not path.exists()]:
        raise RequirementMissed.of(
            Requirement.DATA, f"--volume: {missing[0]} does not exist", f"ls -d {missing[0]}"
        )
    layers = run.sections["cage"]["driver"]["image"]["layers"]
    return (*map(Path, layers), *mounts)


def evict_at_gate(run: TrialRun, caged: Caged, image: ImageSpec | None) -> int:
    """Evict what the engine itself has read of cold files, and return these bytes.

    An engine looks the user up in the image's /etc/passwd, and copies the image's files to a new
    volume, while it makes the container.
    """
    if image is None or run.trial.cache != "cold":
        return 0
    found = {path: count for path in caged.files if (count := resident_bytes(path))}
    for path in found:
        evict(path)
    return sum(found.values())
