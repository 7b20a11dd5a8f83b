"""Volumes of the catalogue, at any size and price that is sold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st

from pagecage.agent.volume_server import PLUGIN, FuseLoop, VolumeServer
from pagecage.cloud.catalogue import VolumeType, read_offers
from pagecage.cloud.formulas import FormulaInput, ProvisionedFormula
from pagecage.cloud.profile import CageOptions, LimitProfile, find_instance, profile_of
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.errors import HostError
from pagecage.units import GIB
from tests.tree import ROOT

PROVIDERS = {provider.name: provider for provider in read_offers(ROOT / "cgroups/catalogue")}
KINDS = {kind.name: kind for provider in PROVIDERS.values() for kind in provider.types}
kinds = st.sampled_from(list(KINDS.values()))
sized = st.sampled_from([kind for kind in KINDS.values() if kind.size])
fractions = st.fractions(Fraction(0), Fraction(1), max_denominator=1000)
PLAIN = CageOptions()


def profile(
    kind: str, request: VolumeRequest, instance: str = "", options: CageOptions = PLAIN
) -> LimitProfile:
    provider = PROVIDERS[kind.partition("-")[0]]
    found = find_instance(provider, KINDS[kind], instance) if instance else None
    return profile_of(provider, KINDS[kind], request, found, options)


def size_at(kind: VolumeType, share: Fraction) -> int:
    """Return a size that is sold, this share of the way from the least to the greatest."""
    if kind.size is None:
        return GIB
    steps = (kind.size.most_bytes - kind.size.least_bytes) // kind.size.step_bytes
    return kind.size.least_bytes + int(steps * share) * kind.size.step_bytes


def request_at(kind: VolumeType, size_bytes: int, share: Fraction) -> VolumeRequest:
    """Return a request at this size, this share of the way from the least to the greatest."""
    iops = throughput = None
    if isinstance(kind.read_iops, ProvisionedFormula):
        least, most = kind.read_iops.bounds(FormulaInput(size_bytes))
        iops = least + (most - least) * share
    if isinstance(kind.read_throughput, ProvisionedFormula):
        least, most = kind.read_throughput.bounds(FormulaInput(size_bytes, None, iops))
        throughput = least + (most - least) * share
    return VolumeRequest(size_bytes, iops, throughput)


def any_profile(
    kind: VolumeType, request: VolumeRequest, start: str = "full", scale: Fraction = Fraction(1)
) -> LimitProfile:
    """Return a profile, with an instance if the type needs one."""
    provider, instance = PROVIDERS[kind.provider], None
    if kind.read_throughput is None:
        name = "n2-standard-64" if kind.provider == "gcp" else "standard-droplet"
        instance = find_instance(provider, kind, name)
    return profile_of(provider, kind, request, instance, CageOptions(start, scale))


PROGRAMS = ROOT / "build/host/lib"


def _missing() -> str:
    try:
        FuseLoop().require()
    except HostError as error:
        return error.message
    return ""


needs_fuse = pytest.mark.skipif(bool(_missing()), reason=_missing() or "it can attach volumes")


PLUGIN_FILE = ROOT / "build/host/lib" / PLUGIN


@contextmanager
def served(size_bytes: int = 64 * 2**20) -> Iterator[VolumeServer]:
    """Serve an empty file for the block. Its folder has a short name (unix(7): 107 characters)."""
    with TemporaryDirectory(prefix="pcv-") as folder:
        file = Path(folder, "volume.raw")
        with file.open("wb") as volume:
            volume.truncate(size_bytes)
        server = VolumeServer.start(PLUGIN_FILE, file, Path(folder), Path(folder, "log"))
        try:
            yield server
        finally:
            server.end()
