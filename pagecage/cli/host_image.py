"""`pagecage host image` and `host pack`: the image of the guest, for caches and other checkouts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import TOP
from pagecage.cli.output import Json, notify, notify_step
from pagecage.cli.paths import Folder, writing
from pagecage.cli.run_options import definitions
from pagecage.errors import EXIT_OK
from pagecage.hosts.vm import guest
from pagecage.hosts.vm.image.packed import packed_directory
from pagecage.hosts.vm.image.recipe import read_recipe

Vm = Annotated[Literal["vm"], Parameter(help="The embedded guest", show_choices=False)]
For = Annotated[str | None, Parameter(name="--for", metavar="EXPERIMENT")]


@dataclass(frozen=True)
class PackedImage:
    """The packed image of the guest that a run unpacks instead of building one.

    `key` is a hash of the recipe, so that a changed recipe has another folder.
    """

    key: str
    folder: str
    is_packed: bool


def image(host: Vm = "vm", *, experiment: For = None, as_json: Json = False) -> int:
    """Print the key of the guest's image, and the folder of its packed form.

    Both depend on the recipe alone. A cache restores the folder by its key, or keeps what
    `pagecage host pack --out` writes to the folder above it.

    Parameters
    ----------
    experiment
        Image with the packages of this experiment
    """
    key = read_recipe(TOP, packages=_packages(experiment)).key
    folder = packed_directory(key)
    found = PackedImage(key, str(folder), folder.is_dir())
    if as_json:
        print(json.dumps(asdict(found)))
        return EXIT_OK
    for name, value in asdict(found).items():
        print(f"{name:<10} {value}")
    return EXIT_OK


def pack(
    host: Vm = "vm",
    *,
    out: Annotated[Folder, Parameter(help="Directory to write; use it as build/guest")],
    experiment: For = None,
) -> int:
    """Pack an image of the guest for another checkout.

    That checkout then starts a guest without network access or privileges. The image is built anew
    with its own ssh keys; everyone who has the packed image can read them.

    Parameters
    ----------
    experiment
        Image with the packages of this experiment
    """
    packages = _packages(experiment)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    notify(f"packed: {guest.pack_image(out, notify_step, packages)}")
    return EXIT_OK


def _packages(experiment: str | None) -> tuple[str, ...]:
    """Return the names of the Debian packages that an experiment needs in the guest."""
    if experiment is None:
        return ()
    return tuple(package.debian for package in definitions().experiment(experiment).packages)
