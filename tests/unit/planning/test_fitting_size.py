"""The size that fits a budget of time: between the definition's, with its repeats, or fewer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagecage.model.experiment import Experiment, Size
from pagecage.planning.size import fitting_size, has_datasets
from pagecage.units import GIB, MIB
from tests.builders.plans import BASE

SIZES = {
    "full": Size(10 * GIB, 3600),
    "default": Size(GIB, 300),
    "emulated": Size(128 * MIB, 15, repeats=1),
    "smoke": Size(32 * MIB, 4, repeats=1, treatments="covering"),
}
TABLES = {"full": {"dataset": "10GiB"}, "emulated": {"dataset": "128MiB", "repeats": 1}}
SIZED = replace(BASE, sizes=SIZES, repeats=3, definition={"sizes": TABLES})


def by_bytes(seconds_per_gib: float):
    """An estimate in which only the dataset counts; to make it takes a tenth of a repeat."""

    def estimate(experiment: Experiment, size: str) -> tuple[float, float]:
        block = (experiment.sizes[size].total_bytes or 0) / GIB * seconds_per_gib
        return block / 10, block

    return estimate


@pytest.mark.parametrize(
    ("seconds_per_gib", "size"),
    [(5, "full"), (10, "4GiB"), (60, "default"), (70, "512MiB"), (500, "128MiB"), (1500, "32MiB")],
)
def test_the_largest_size_that_fits(seconds_per_gib: float, size: str) -> None:
    found = fitting_size(SIZED, None, 190, by_bytes(seconds_per_gib))
    assert (found.size, found.repeats) == (size, 3)
    total = found.experiment.sizes[size].total_bytes
    assert found.expected_seconds == pytest.approx(3.1 * seconds_per_gib * total / GIB)
    if size == "full":
        assert found.reason == "about 2 min 35 s at 10 GiB"
    else:
        assert "; SIZE=full is 10 GiB, about" in found.reason


def test_below_default_the_design_of_default_stays() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(1500))
    assert found.experiment.sizes["32MiB"].treatments == "all"
    assert found.experiment.definition["sizes"]["32MiB"] == {
        "dataset": "32MiB",
        "max_seconds": 4,
        "treatments": "all",
    }
    assert found.experiment.sizes["smoke"] == SIZES["smoke"]


def test_the_limit_of_time_lies_between_those_of_the_neighbours() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(100))
    assert found.size == "512MiB"
    assert found.experiment.sizes["512MiB"].max_seconds == 110  # 15 * 20 ** (2 / 3)


def test_repeats_are_reduced_only_at_the_smallest_dataset_and_told() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(32 * 80))
    assert (found.size, found.repeats) == ("32MiB", 2)
    assert found.reason.startswith("2 repeats, because 3 take about 4 min 08 s; about 2 min 48 s")


def test_repeats_that_were_asked_for_stay() -> None:
    found = fitting_size(SIZED, 7, 180, by_bytes(100))
    assert (found.size, found.repeats) == ("256MiB", 7)
    assert fitting_size(SIZED, 9, 180, by_bytes(32 * 80)).size == "smoke"


def test_smoke_is_the_last_resort() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(32 * 500))
    assert (found.size, found.repeats) == ("smoke", 1)
    assert found.reason.startswith("about 9 min 10 s at 32 MiB; SIZE=full")


def test_published_figures_are_named() -> None:
    found = fitting_size(replace(SIZED, claims=({"id": "1"},)), None, 180, by_bytes(100))
    assert "; SIZE=full is 10 GiB as published, about 51 min 40 s" in found.reason


def test_sizes_that_differ_in_more_than_data_have_none_between_them() -> None:
    cages = {**SIZES, "default": replace(SIZES["default"], places={"customer": "customer"})}
    assert fitting_size(replace(SIZED, sizes=cages), None, 180, by_bytes(10)).size == "default"


def test_an_experiment_without_datasets() -> None:
    assert has_datasets(SIZED)
    assert not has_datasets(replace(SIZED, sizes={**SIZES, "full": Size(None, 60)}))
