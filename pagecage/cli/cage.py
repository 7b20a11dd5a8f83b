"""`pagecage cage ...`: the catalogue of cloud volumes, and the cages of this checkout."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from pagecage.checkout import TOP
from pagecage.cli import cage_list, cage_page
from pagecage.cli.cage_import import import_cage
from pagecage.cli.cage_options import VolumeOptions, bought, profile_of_order
from pagecage.cli.cage_save import new_name, save_profile
from pagecage.cli.examples import examples
from pagecage.cli.numbers import Positive
from pagecage.cli.output import Json
from pagecage.cli.run_options import definitions
from pagecage.cloud.catalogue import read_offers
from pagecage.errors import EXIT_OK, PagecageError, nearest

CAGES = TOP / "cgroups"
_ABOUT = "Cloud volumes and customers' files as cages: list, show, import."
app = App(name="cage", help=_ABOUT, help_epilogue=examples("cage"))
app.command(import_cage, name="import", help_epilogue=examples("cage import"))
_error = Console(stderr=True, highlight=False)


@app.command(name="list", help_epilogue=examples("cage list"))
def list_(
    *,
    provider: str | None = None,
    type: str | None = None,  # noqa: A002 - the option's name
    min_iops: Positive | None = None,
    as_json: Json = False,
) -> int:
    """List the catalogue's types of volumes and instances, and the cages of this checkout.

    Parameters
    ----------
    provider
        Only what this provider offers: aws, azure, digitalocean or gcp. No cages then.
    type
        Only types and cages with this in their names.
    min_iops
        Only what can give at least so many reads a second.
    """
    providers = read_offers(CAGES / "catalogue")
    known = [each.name for each in providers]
    if provider is not None and provider not in known:
        raise PagecageError(f"there is no provider {provider!r} in the catalogue", nearest(provider, known))
    wanted = cage_list.CatalogueFilter(provider, type, min_iops)
    chosen = cage_list.select(providers, definitions(), wanted)
    if as_json:
        print(json.dumps(cage_list.to_json(chosen)))
    else:
        cage_list.show(chosen)
    return EXIT_OK


@app.command(help_epilogue=examples("cage show"))
def show(
    name: str,
    ordered: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    *,
    save: str | None = None,
    force: Annotated[bool, Parameter(negative=())] = False,
    as_json: Json = False,
) -> int:
    """Show the limits of a cloud volume on its instance, or of a cage: how fast, for how long, and what sets it.

    Parameters
    ----------
    name
        A type of the catalogue (aws-gp3), a size that has a name (azure-p10), or a cage of `pagecage cage list`.
    save
        Write the limits as the cage cgroups/NAME.toml.
    force
        Write over a cage that is there.
    """
    known, providers = definitions(), read_offers(CAGES / "catalogue")
    if name in known.cage_names():
        if ordered != VolumeOptions() or save is not None:
            raise PagecageError(f"{name} is a cage, with its limits settled", f"pagecage cage show {name}")
        profile = cage_list.cage_profile(known, name)
        line = bought(profile.volume)
    else:
        profile, line = profile_of_order(providers, name, ordered, known.cage_names())
    if save is not None:
        path = save_profile(profile, line, new_name(save, CAGES, providers, force=force), CAGES)
        _error.print(f"saved: {path.relative_to(TOP)}", markup=False, soft_wrap=True)
    if as_json:
        print(json.dumps(cage_page.to_json(profile)))
    else:
        cage_page.show(profile, line)
    return EXIT_OK
