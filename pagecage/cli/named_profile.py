"""The limits of a cage or a volume type by its name on the command line."""

from __future__ import annotations

from pagecage.cli.cage_list import cage_profile
from pagecage.cli.cage_options import VolumeOptions, describe_volume, profile_for
from pagecage.cli.run_options import definitions
from pagecage.cloud.catalogue import Provider
from pagecage.cloud.profile import LimitProfile
from pagecage.errors import PagecageError


def named_profile(
    providers: tuple[Provider, ...], name: str, volume: VolumeOptions
) -> tuple[LimitProfile, str]:
    """Return the limits of a cage or of a volume of the catalogue, and the volume in one line.

    Raises PagecageError for an unknown name, and for options of a volume beside a cage.
    """
    defined = definitions()
    if name not in defined.cage_names():
        return profile_for(providers, name, volume, defined.cage_names())
    if volume != VolumeOptions():
        raise fixed_limits(name)
    profile = cage_profile(defined, name)
    return profile, describe_volume(profile.volume)


def fixed_limits(name: str) -> PagecageError:
    """Return the error for options of a volume beside a cage."""
    return PagecageError(f"{name} is a cage: its limits are fixed", f"pagecage cage show {name}")
