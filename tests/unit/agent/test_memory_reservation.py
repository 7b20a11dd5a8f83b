"""Memory reserved and released, in a fake /proc with a pool of huge pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagecage.agent.settings import MemoryReservation
from pagecage.errors import HostError

HUGE_KB = 2048
FREE_KB = 1024 * 1024


class Kernel(MemoryReservation):
    """MemoryReservation on a fake kernel, where huge pages reduce the available memory."""

    gives = 10**6

    def _write(self, path: Path, value: int) -> None:
        super()._write(path, min(value, self.gives) if path.name == "nr_hugepages" else value)
        pages = int((self._proc / "sys/vm/nr_hugepages").read_text())
        write_meminfo(self._proc, FREE_KB - pages * HUGE_KB)


def write_meminfo(proc: Path, available_kb: int) -> None:
    (proc / "meminfo").write_text(f"MemAvailable: {available_kb} kB\nHugepagesize: {HUGE_KB} kB\n")


@pytest.fixture
def memory(tmp_path: Path) -> Kernel:
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "sys/vm/nr_hugepages").write_text("0")
    write_meminfo(tmp_path, FREE_KB)
    return Kernel(tmp_path, tmp_path)


def test_the_requested_memory_is_left(memory: Kernel, tmp_path: Path) -> None:
    values = memory.leave(256 * 2**20)
    assert values["available_bytes"] == 256 * 2**20
    assert values["hugepages"] == 384
    assert json.loads((tmp_path / "machine-memory.json").read_text()) == {"nr_hugepages": 0}
    assert memory.restore() == []
    assert (tmp_path / "sys/vm/nr_hugepages").read_text() == "0"
    assert not (tmp_path / "machine-memory.json").exists()


def test_memory_of_a_killed_agent_is_released_by_the_next(memory: Kernel, tmp_path: Path) -> None:
    memory.leave(512 * 2**20)
    memory.leave(256 * 2**20)
    assert Kernel(tmp_path, tmp_path).restore() == []
    assert (tmp_path / "sys/vm/nr_hugepages").read_text() == "0"


@pytest.mark.parametrize(
    ("gives", "wanted", "says"),
    [
        (10, 256 * 2**20, "of memory are available, not 256 MiB"),
        (Kernel.gives, 4 * 2**30, "not 4 GiB"),
    ],
)
def test_a_machine_with_too_little_is_refused(
    memory: Kernel, gives: int, wanted: int, says: str
) -> None:
    memory.gives = gives
    with pytest.raises(HostError, match=says):
        memory.leave(wanted)


def test_without_a_reservation_nothing_is_released(memory: Kernel, tmp_path: Path) -> None:
    (tmp_path / "sys/vm/nr_hugepages").write_text("7")
    assert memory.restore() == []
    assert (tmp_path / "sys/vm/nr_hugepages").read_text() == "7"


def test_a_failed_release_is_reported(memory: Kernel, tmp_path: Path) -> None:
    (tmp_path / "machine-memory.json").write_text("{")
    assert "could not be put back" in memory.restore()[0]
