"""The rate that a model allows under a load."""

from __future__ import annotations

import pytest

from pagecage.hosts.volume_drive import Load, expected_rate
from pagecage.model.cage import Cage, IoAccounting, LatencyFloor
from pagecage.model.volume_model import volume_model

KIB = 1024
GP3 = Cage(
    "gp3",
    {
        "IOReadIOPSMax": 3000,
        "IOWriteIOPSMax": 3000,
        "IOReadBandwidthMax": 131_072_000,
        "IOWriteBandwidthMax": 131_072_000,
    },
    accounting=IoAccounting(256 * KIB, merged=True, combined=True),
)


@pytest.mark.parametrize(
    ("load", "rate", "limit"),
    [
        (Load("randread", 4 * KIB, 16), 3000, "volume IOPS"),
        (Load("randrw", 4 * KIB, 16), 3000, "volume IOPS"),
        (Load("randread", 256 * KIB, 16), 500, "volume bandwidth"),
        (Load("read", 4 * KIB, 16), 32_000, "volume bandwidth"),
        (Load("randread", 1024 * KIB, 16), 125, "volume bandwidth"),
    ],
)
def test_a_combined_limit(load: Load, rate: float, limit: str) -> None:
    assert expected_rate(volume_model(GP3, 1), load) == (rate, limit)


def test_limits_apart_say_nothing_of_both_directions_together() -> None:
    cage = Cage("c", {"IOReadIOPSMax": 500, "IOWriteIOPSMax": 400})
    model = volume_model(cage, 1)
    assert expected_rate(model, Load("randrw", 4096, 16)) == (None, None)
    assert expected_rate(model, Load("randwrite", 4096, 16))[0] == 400


def test_few_requests_in_flight_are_held_by_latency() -> None:
    cage = Cage("c", {"IOReadIOPSMax": 3000}, latency=LatencyFloor(1000, None))
    model = volume_model(cage, 1)
    rate, _ = expected_rate(model, Load("randread", 4096, 1))
    assert round(rate or 0) == 1000
    assert expected_rate(model, Load("randread", 4096, 4)) == (3000, "volume IOPS")


def test_nothing_limits_an_open_volume() -> None:
    assert expected_rate(volume_model(Cage("", {}), 1), Load("read", 4096, 1)) == (None, None)


def test_a_slow_request_delays_the_next_one() -> None:
    """Half of the requests take 4 ms, where one may start every 2 ms."""
    model = volume_model(Cage("c", {"IOReadIOPSMax": 500}), 1)
    slow = {"size_bytes": 4096, "quantiles": [[0.5, 1.0], [0.500001, 4000.0]]}
    rate, _ = expected_rate(model | {"read_latency": [slow]}, Load("randread", 4096, 1))
    assert rate == pytest.approx(1000 / 3, rel=0.01)
