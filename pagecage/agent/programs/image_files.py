"""The files of an image's program: those of the image's layers, and of its mounts."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.drivers.image_container import mounted_paths
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.image import ImageSpec
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
