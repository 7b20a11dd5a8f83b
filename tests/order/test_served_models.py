"""Every volume of the catalogue and every simulation of a cage file, held by the real server.

The agent compares the model in force with the requested one, so each must come back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.cloud.profile import cage_of
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.definitions.reader import Definitions
from pagecage.importers.result import ImportResult
from pagecage.model.cage import BurstCredits, Cage, LatencyQuantiles, VolumeSimulation
from pagecage.model.volume_model import dilated, latency_at, volume_model
from pagecage.process import run
from tests.builders.imports import read
from tests.builders.served_volumes import served
from tests.builders.strategies import simulations
from tests.builders.volumes import KINDS, any_profile, request_at, size_at
from tests.tree import ROOT


@pytest.fixture(scope="module")
def volume() -> Iterator[SimulatedVolume]:
    with served() as server:
        yield SimulatedVolume(server.command)


def differences(volume: SimulatedVolume, cage: Cage, seed: int = 1) -> dict[str, object]:
    """Return the parts of the model in force that differ from the requested ones."""
    model = volume_model(cage, seed)
    in_force = volume.configure(model)
    return {key: in_force.get(key) for key, value in model.items() if in_force.get(key) != value}


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("start", ["full", "half", "drained"])
def test_a_volume_of_the_catalogue_is_held(volume: SimulatedVolume, name: str, start: str) -> None:
    kind = KINDS[name]
    request: VolumeRequest = request_at(kind, size_at(kind, Fraction(1)), Fraction(1))
    cage = cage_of(any_profile(kind, request, start), "x", "about")
    assert not differences(volume, cage)
    assert not differences(volume, dilated(cage, 7))


@pytest.mark.parametrize("name", ["customer-volume", "customer", "aws-gp2-tenth"])
def test_a_cage_of_this_checkout_is_held(volume: SimulatedVolume, name: str) -> None:
    assert not differences(volume, Definitions(ROOT, []).cage(name, None))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    simulation=simulations,
    start=st.sampled_from(["full", "half", "drained"]),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_simulation_of_a_file_is_held(
    volume: SimulatedVolume, simulation: VolumeSimulation, start: str, seed: int
) -> None:
    cage = Cage("x", {}, burst=BurstCredits(start), simulation=simulation)
    assert not differences(volume, cage, seed)


def test_an_imported_account_has_the_latencies_that_were_set() -> None:
    """The account has the layout of a real volume's counters."""
    given = LatencyQuantiles(4096, ((0.0, 2000.0), (1.0, 8000.0)))
    cage = Cage("x", {}, simulation=VolumeSimulation((), (given,)))
    with served() as server:
        volume = SimulatedVolume(server.command)
        volume.configure(volume_model(cage, 1))
        reads = [word for n in range(300) for word in ("-c", f"read -q {4096 * n} 4096")]
        run(["qemu-io", "-f", "raw", *reads, f"nbd+unix:///?socket={server.data_socket}"])
        found = read(json.dumps(volume.account()))
    simulation = cage_of_tables("x", found.cage()).simulation
    assert simulation is not None
    [imported] = simulation.read_latency
    assert imported.size_bytes == 4096
    for probability in (0.25, 0.5, 0.75, 0.95):
        set_us = latency_at(given.quantiles, probability)
        assert latency_at(imported.quantiles, probability) == pytest.approx(set_us, rel=0.2)
    assert observed_texts(found) == [
        f"the demand never exceeded the {layer}'s {quantity}"
        for layer in ("volume", "instance")
        for quantity in ("IOPS", "throughput")
    ]


def observed_texts(found: ImportResult) -> list[str]:
    return [one.text for one in found.observed if "exceeded" in one.text]
