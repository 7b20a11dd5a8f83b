"""The memory and the disk space that a plan needs on a host, and the memory of its cages."""

from __future__ import annotations

from collections.abc import Sequence

from pagecage.errors import PagecageError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.hosts.host import ResourceNeeds
from pagecage.model.cage import DATA_DISK
from pagecage.model.json_codec import JsonView, from_json
from pagecage.model.plan import Plan
from pagecage.model.trial import ORIGINAL, TRACERS, Trial
from pagecage.model.volume_model import volume_file_bytes
from pagecage.runner.uploads import UploadedFile
from pagecage.units import GIB, MIB

_MIN_MEMORY_BYTES = 2 * GIB
_MEMORY_BESIDE_DATASET_BYTES = 3 * GIB // 2
_SPARE_DATA_BYTES = 512 * MIB


def resource_needs(plan: Plan, package: AgentPackage | None = None) -> ResourceNeeds:
    """Return what a plan needs on a host: room for every file, memory for the largest trial."""
    uploaded = sum(file.size_bytes for file in uploads_of(plan))
    cached_bytes = max((trial.dataset_bytes for trial in plan.trials), default=0)
    resident = (trial.dataset_bytes for trial in plan.trials if trial.cache == "resident")
    largest = uploaded + cached_bytes + _MEMORY_BESIDE_DATASET_BYTES
    memory = max(_MIN_MEMORY_BYTES, -(-largest // (256 * MIB)) * 256 * MIB)
    collected = {name for trial in plan.trials for name in trial.collectors}
    commands = (trial.workload.command for trial in plan.trials)
    images = (command.image for command in commands if command and command.image)
    layer_bytes = max((image.layer_bytes for image in images if image.archive), default=0)
    return ResourceNeeds(
        memory_bytes=memory,
        data_bytes=needed_disk_bytes(plan.trials) + uploaded + layer_bytes + _SPARE_DATA_BYTES,
        resident_bytes=max(resident, default=0),
        has_volume=any(trial.cage.is_volume for trial in plan.trials),
        written_bytes=max((trial.writes_bytes for trial in plan.trials), default=0),
        disks=tuple(sorted({name for trial in plan.trials for name in trial.cage.disks})),
        package=package,
        tracers=tuple(name for name in TRACERS if name in collected),
        distribution_packages=tuple(dict.fromkeys(p for t in plan.trials for p in t.packages)),
    )


def needed_disk_bytes(trials: Sequence[Trial], *, serves_volumes: bool = False) -> int:
    """Return the disk space of all distinct data and of the most that one trial writes.

    With `serves_volumes`, the files of the simulated volumes are on the same disk.
    """
    sizes = {data.file_name: data.size_bytes for trial in trials for data in trial.datasets}
    prepared = {trial.data for trial in trials if trial.data is not None}
    prepared_bytes = sum(data.disk_bytes for data in prepared)
    written_bytes = max((trial.writes_bytes for trial in trials), default=0)
    volumes: dict[str, int] = {}
    for trial in trials:
        if serves_volumes and trial.cage.is_volume:
            size_bytes = volume_file_bytes(trial.dataset_bytes + trial.writes_bytes)
            for disk in (DATA_DISK, *trial.cage.disks):
                volumes[disk] = max(size_bytes, volumes.get(disk, 0))
    return sum(sizes.values()) + prepared_bytes + written_bytes + sum(volumes.values())


def uploads_of(plan: Plan) -> tuple[UploadedFile, ...]:
    """Return the files that a replay, or an experiment of a project, copies to the host."""
    return from_json(tuple[UploadedFile, ...], _copies(plan).get("carried", ()))


def _copies(plan: Plan) -> JsonView:
    return plan.document.get("replay") or plan.document.get("copies") or {}


def upload_directories(plan: Plan) -> tuple[str, str]:
    """Return the directory for copied files, and the one to remove before and after the run."""
    copies = _copies(plan)
    base = copies.get("restored")
    return (f"{base}/{ORIGINAL}", base) if base else (copies["directory"], copies["directory"])


def check_memory_floor(plan: Plan) -> None:
    for trial in plan.trials:
        limit = trial.cage.properties.get("MemoryMax")
        if limit is not None and limit < trial.workload.min_memory_bytes:
            raise PagecageError(
                f"cgroups/{trial.cage.name}.toml: MemoryMax is {limit} bytes at this size, and "
                f"{trial.workload.program} needs {trial.workload.min_memory_bytes}",
                "choose a larger SIZE or another CAGE",
            )
