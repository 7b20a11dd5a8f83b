"""Cages as they are typed: names, files, volumes of the catalogue and imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from pagecage.model.cage import UNCAGED
from pagecage.planning.cage_choice import cage_name, choose_cage, choose_cages, named_profile
from pagecage.planning.options import VolumeOptions

NO_OPTIONS = VolumeOptions()
GP3 = VolumeOptions(size="500GiB", instance="m7i.large")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.toml").write_text('about = "slow"\nIOReadIOPSMax = 7\n')
    (tmp_path / "half.toml").write_text('about = "half"\nMemoryMax = { dataset_fraction = 0.5 }\n')
    (tmp_path / "My DB.service").write_text("[Service]\nMemoryMax=64M\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("typed", "name", "properties"),
    [
        ("customer", "customer", {"IOReadIOPSMax": 5000}),
        ("slow.toml", "slow", {"IOReadIOPSMax": 7}),
        ("./slow.toml", "slow", {"IOReadIOPSMax": 7}),
        ("./My DB.service", "my-db", {"MemoryMax": 64 << 20}),
    ],
)
def test_what_a_hand_types_is_a_cage(typed: str, name: str, properties: dict[str, int]) -> None:
    cage = choose_cage(typed, NO_OPTIONS, None)
    assert (cage.name, cage_name(typed)) == (name, name)
    assert properties.items() <= dict(cage.properties).items() or typed == "customer"


def test_a_volume_has_its_size_and_its_instance() -> None:
    cage = choose_cage("AWS-gp3", GP3, None)
    assert (cage.name, cage.properties["IOReadIOPSMax"]) == ("aws-gp3", 3000)
    assert cage.volume is not None
    assert cage.volume.instance == "m7i.large"
    assert cage.properties["MemoryMax"] == 8 << 30


def test_a_share_is_of_the_data() -> None:
    assert choose_cage("half.toml", NO_OPTIONS, 1 << 30).properties["MemoryMax"] == 1 << 29
    profile, _ = named_profile("half.toml", NO_OPTIONS)
    assert profile.memory_share == 0.5


def test_cages_keep_their_order_and_appear_once() -> None:
    typed = [UNCAGED, "aws-gp3", "slow.toml", "./slow.toml"]
    assert list(choose_cages(typed, GP3, None)) == [UNCAGED, "aws-gp3", "slow"]


@pytest.mark.parametrize(
    ("typed", "options", "says", "hint"),
    [
        ("custmer", NO_OPTIONS, "no cage and no volume type 'custmer'", '"customer"'),
        ("./none.toml", NO_OPTIONS, "no cage and no volume type './none.toml'", "cage list"),
        ("slow.toml", GP3, "its limits are fixed", "cage show"),
        ("customer", GP3, "customer is a cage: its limits are fixed", "cage show customer"),
        ("aws-gp3", NO_OPTIONS, "depend on its size", "--size 500GiB"),
        ("half.toml", NO_OPTIONS, "share of the dataset", ""),
    ],
)
def test_what_is_refused(typed: str, options: VolumeOptions, says: str, hint: str) -> None:
    with pytest.raises(PagecageError) as caught:
        choose_cage(typed, options, None)
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_a_file_without_a_limit_is_no_cage(tmp_path: Path) -> None:
    (tmp_path / "bare.service").write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(PagecageError, match=r"bare\.service has no limit"):
        choose_cage("./bare.service", NO_OPTIONS, None)
