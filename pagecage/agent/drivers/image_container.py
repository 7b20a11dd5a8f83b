"""The driver that runs a customer's image: as its engine would, but in the trial's slice.

Unlike the containers of `container.py` it has the image's root, the engine's own capabilities and
system calls, and process ids of its own, because programs of images rely on being process 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.driver import ClientDriver, LaunchContext
from pagecage.agent.drivers.engine import LABEL, ContainerEngine
from pagecage.agent.drivers.engine_store import keep_on_data_disk
from pagecage.agent.drivers.image_layers import provide_image
from pagecage.model.container.image import BindMount, ImageSpec

GATE = "pcgate"
"""The program that holds a container at its start (workloads/c/pcgate)."""
_GATE_TARGET = "/.pagecage-gate"
"""The gate's path in the container. A directory of the image may not exist or not be writable."""


class ImageDriver(ClientDriver):
    """Docker or podman with the trial's slice as the parent of the image's container."""

    def __init__(self, engine: ContainerEngine, image: ImageSpec) -> None:
        self._engine, self._image = engine, image
        self.name = engine.program
        self._is_made = False

    def prepare(self) -> dict[str, Any]:
        """Start the engine if it is not running, and load the image if the engine lacks it."""
        keep_on_data_disk(self._engine)
        facts = self._engine.ready().to_json()
        return {"engine": facts, "image": provide_image(self._engine, self._image)}

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return `docker run` with the gate as the entry point, which becomes `argv`."""
        self._is_made = True
        write_variables(self._image, variables_file(context))
        return run_image_command(self._engine.program, self._image, context, argv)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return `docker load` if the image is in an archive, and `docker run`.

        The archive is piped to `docker load` under another name.
        """
        program = self._engine.program
        load = [[program, "load"]] if self._image.archive else []
        return [*load, run_image_command(program, self._image, context, argv)]

    def clear(self, context: LaunchContext, /) -> None:
        """Remove the container if it still exists, and the values of its variables."""
        variables_file(context).unlink(missing_ok=True)
        if self._is_made:
            self._engine.remove(context.name)


def run_image_command(
    program: str, image: ImageSpec, context: LaunchContext, argv: Sequence[str]
) -> list[str]:
    """Return the command that runs the image with its standard streams passed through."""
    monitor = [] if program == "docker" else ["--cgroups=no-conmon"]
    gate = BindMount(str(context.programs_dir / GATE), _GATE_TARGET, is_read_only=True)
    return [
        program,
        "run",
        *monitor,
        "--interactive",
        "--rm",
        "--pull=never",
        f"--name={context.name}",
        f"--label={LABEL}",
        f"--cgroup-parent={context.maker.container_parent(context.unit)}",
        "--network=host",
        "--log-driver=none",
        f"--entrypoint={_GATE_TARGET}",
        *(f"--mount={mount_option(mount)}" for mount in (gate, *image.mounts)),
        *(f"--env-file={path}" for path in image.env_files),
        *([f"--env-file={variables_file(context)}"] if image.environment else []),
        *([f"--workdir={image.directory}"] if image.directory else []),
        *([f"--user={image.user}"] if image.user is not None else []),
        image.image_id,
        *argv,
    ]


def variables_file(context: LaunchContext) -> Path:
    """Return the path of the file with the values of the container's variables.

    It is in memory, and a sweep removes it after a killed agent.
    """
    return context.spool / "trials" / f"{context.name}.env"


def write_variables(image: ImageSpec, path: Path) -> None:
    """Write the variables for --env-file, readable by this user alone.

    An argument would be visible to every user of the host.
    """
    if not image.environment:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    text = "".join(f"{each.name}={each.variable_value}\n" for each in image.environment)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def mount_option(mount: BindMount) -> str:
    """Return a mount as the value of --mount, which is a line of CSV."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    fields += ["readonly"] if mount.is_read_only else []
    return ",".join(map(_csv_field, fields))


def _csv_field(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if any(sign in text for sign in ',"\n') else text


def mounted_paths(image: ImageSpec) -> tuple[Path, ...]:
    """Return the paths on the host that the container has mounted."""
    return tuple(Path(mount.source) for mount in image.mounts)
