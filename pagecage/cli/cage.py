"""`pagecage cage`: list, show and export cages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from pagecage.cli import cage_page
from pagecage.cli.cage_choice import fixed_limits, named_profile, offers
from pagecage.cli.cage_import import CAGES, check_new_name, import_cage, save_as_disk, save_profile
from pagecage.cli.examples import examples
from pagecage.cli.floor import floor
from pagecage.cli.options import Positive, VolumeOptions, definitions, shown
from pagecage.cli.output import Json
from pagecage.cloud.catalogue import offered_providers
from pagecage.cloud.profile import LimitProfile, cage_of
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.exporters.export import DEVICE, LostLimit, lost_disks
from pagecage.exporters.formats import EXPORTERS, ToolName


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of a cage in another tool's language.

    Parameters
    ----------
    tool
        Write the limits for another tool; a comment names each limit that is lost there
    device
        Disk of the limits in the other tool's text, for example /dev/nvme1n1
    """

    tool: Annotated[ToolName | None, Parameter(name="--as", metavar="TOOL")] = None
    device: Annotated[str | None, Parameter(metavar="NODE")] = None

    def is_given(self, *, as_json: bool) -> bool:
        """Return whether another tool's language is wanted."""
        if self.device is not None and not self.tool:
            raise PagecageError("--device applies only to --as", "--as docker")
        if as_json and self.tool:
            raise PagecageError("--as and --json are mutually exclusive", "give one of them")
        device = self.device or DEVICE
        if not device.startswith("/") or any(map(str.isspace, device)):
            message = f"--device: {device!r} is not the path of a block device"
            raise PagecageError(message, "lsblk --paths")
        return self.tool is not None


def cage_for_tool(profile: LimitProfile, options: ExportOptions) -> str:
    """Return the text for a tool, below comments that name every limit which is lost there."""
    assert options.tool is not None
    cage = profile.cage or cage_of(profile, profile.name, profile.about)
    export = EXPORTERS[options.tool](cage, options.device or DEVICE)
    for lost in reversed(list(lost_disks(cage))):
        export = export.with_lost(lost)
    if profile.memory_share is not None:
        what = f"MemoryMax = {profile.memory_share * 100:g} % of the dataset"
        export = export.with_lost(LostLimit(what, "a share; give the other tool the bytes"))
    return export.text(f"{profile.name}: {cage.provenance.get('about') or profile.about}")


_HELP = "List, show and import cages and volumes of the catalogue."
app = App(name="cage", help=_HELP, help_epilogue=examples("cage"))
app.command(import_cage, name="import", help_epilogue=examples("cage import"))
app.command(floor, help_epilogue=examples("cage floor"))
_error = Console(stderr=True, highlight=False)


@app.command(name="list", help_epilogue=examples("cage list"))
def list_(
    *,
    provider: Annotated[str | None, Parameter(metavar="NAME")] = None,
    type: Annotated[str | None, Parameter(metavar="TEXT")] = None,  # noqa: A002 - the option's name
    min_iops: Positive | None = None,
    as_json: Json = False,
) -> int:
    """List cloud volumes, instance types and cages.

    Parameters
    ----------
    provider
        Only volumes of this provider: aws, azure, digitalocean or gcp; no cages
    type
        Only volume types and cages whose name contains this text
    min_iops
        Only volumes and cages that allow at least so many reads a second
    """
    providers = offers()
    offered_providers(providers, provider)
    listing = cage_page.select(
        providers, definitions(), cage_page.CatalogueFilter(provider, type, min_iops)
    )
    if as_json:
        print(json.dumps(cage_page.listing_to_json(listing)))
    else:
        cage_page.show_listing(listing)
    return EXIT_OK


@app.command(help_epilogue=examples("cage show"))
def show(
    name: str,
    /,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    export: ExportOptions = ExportOptions(),
    *,
    save: Annotated[str | None, Parameter(metavar="NAME")] = None,
    as_disk: Annotated[str | None, Parameter(metavar="NAME")] = None,
    force: bool = False,
    as_json: Json = False,
) -> int:
    """Show the limits of a cage or a volume: their values, bursts, and who sets each.

    Parameters
    ----------
    name
        Cage, its file, volume of the catalogue (aws-gp3, azure-p10) or file to import
    save
        Write the limits to the cage file cgroups/NAME.toml
    as_disk
        With --save: add the volume to an existing cage as a further disk of this name
    force
        Overwrite an existing cage
    """
    if save is not None and name in definitions().cage_names():
        raise fixed_limits(name)
    profile, description = named_profile(name, volume)
    if save is None and as_disk is not None:
        raise PagecageError("--as-disk applies only to --save", "--save NAME --as-disk wal")
    if save is not None:
        _save(profile, description, save, as_disk, force)
    if export.is_given(as_json=as_json):
        print(cage_for_tool(profile, export), end="")
    elif as_json:
        print(json.dumps(cage_page.profile_to_json(profile)))
    else:
        cage_page.show_profile(profile, description)
    return EXIT_OK


def _save(
    profile: LimitProfile, description: str, name: str, disk: str | None, force: bool
) -> None:
    if disk:
        cage, _ = definitions().cage_without_dataset(name)
        path = save_as_disk(profile, description, disk, cage, CAGES)
    else:
        new = check_new_name(name, CAGES, offers(), force=force)
        path = save_profile(profile, description, new, CAGES)
    _error.print(f"saved: {shown(path)}", markup=False, soft_wrap=True)
