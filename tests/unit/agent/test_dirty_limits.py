"""Dirty limits, set and restored in a fake /proc."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.settings import DirtyLimits
from pagecage.errors import HostError

UNLIMITED = {"dirty_bytes": 0, "dirty_background_bytes": 0}
RATIOS = {**UNLIMITED, "dirty_ratio": 20, "dirty_background_ratio": 10}
OTHERS = {"dirty_expire_centisecs": 3000, "dirty_writeback_centisecs": 500}
WANTED = {"dirty_bytes": 16 * 2**20, "dirty_background_bytes": 8 * 2**20}


class Kernel(DirtyLimits):
    """DirtyLimits on a fake kernel, where setting one of a pair sets the other to 0."""

    deaf = False

    def _write(self, name: str, value: int) -> None:
        if not self.deaf:
            super()._write(name, value)
            pair, _, unit = name.rpartition("_")
            (self._vm / f"{pair}_{'ratio' if unit == 'bytes' else 'bytes'}").write_text("0")


def kernel(directory: Path, values: dict[str, int]) -> Kernel:
    (directory / "sys/vm").mkdir(parents=True)
    for name, value in {**values, **OTHERS}.items():
        (directory / "sys/vm" / name).write_text(f"{value}\n")
    return Kernel(directory, directory)


@pytest.fixture
def limits(tmp_path: Path) -> Kernel:
    return kernel(tmp_path, RATIOS)


@pytest.mark.parametrize(
    ("wanted", "others"),
    [
        (WANTED, {"dirty_ratio": 0, "dirty_background_ratio": 0}),
        ({"dirty_bytes": 2**20}, {"dirty_ratio": 0}),
    ],
)
def test_values_are_read_back_and_restored(
    limits: Kernel, tmp_path: Path, wanted: dict[str, int], others: dict[str, int]
) -> None:
    assert limits.set(wanted) == {**RATIOS, **OTHERS, **wanted, **others}
    assert limits.restore() == []
    assert limits.read() == {**RATIOS, **OTHERS}
    assert not (tmp_path / "dirty-limits.json").exists()


pairs = st.tuples(st.integers(2**13, 2**40), st.booleans(), st.integers(1, 100))


@given(pairs, pairs)
def test_any_previous_value_is_restored(
    writers: tuple[int, bool, int], background: tuple[int, bool, int]
) -> None:
    before = dict(OTHERS)
    given = {"dirty": writers, "dirty_background": background}
    for prefix, (in_bytes, is_bytes, percent) in given.items():
        before[f"{prefix}_bytes"] = in_bytes if is_bytes else 0
        before[f"{prefix}_ratio"] = 0 if is_bytes else percent
    with tempfile.TemporaryDirectory() as directory:
        limits = kernel(Path(directory), before)
        limits.set(WANTED)
        following = Kernel(Path(directory), Path(directory))
        assert following.restore() == [], "a killed harness is undone by the next"
        assert limits.read() == before


def test_the_first_saved_state_is_restored(limits: Kernel) -> None:
    limits.set(WANTED)
    limits.set({"dirty_bytes": 2**20})
    limits.restore()
    assert limits.read() == {**RATIOS, **OTHERS}


def test_a_kernel_that_ignores_a_write_is_an_error(limits: Kernel) -> None:
    limits.deaf = True
    says = r"vm\.dirty_bytes is 0, not 16777216; vm\.dirty_background_bytes is 0, not"
    with pytest.raises(HostError, match=says):
        limits.set(WANTED)


def test_without_a_change_nothing_is_restored(limits: Kernel) -> None:
    assert limits.restore() == []
    assert limits.read() == {**RATIOS, **OTHERS}


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"dirty_bytes": 0}', '{"dirty_bytes": 0, "dirty_ratio": null}']
)
def test_a_failed_restore_is_reported(limits: Kernel, tmp_path: Path, text: str) -> None:
    (tmp_path / "dirty-limits.json").write_text(text)
    assert "could not be put back" in limits.restore()[0]


def test_a_file_that_may_not_be_written_is_a_sentence(tmp_path: Path) -> None:
    limits = DirtyLimits(tmp_path, tmp_path / "nowhere")
    with pytest.raises(HostError, match=r"vm\.dirty_bytes cannot be set to 1: No such file"):
        limits.set({"dirty_bytes": 1})
    assert json.loads((tmp_path / "dirty-limits.json").read_text()) == {}
