"""The disk of pagecage's own that a request asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent import data_files, session
from pagecage.agent.data_files import SPARE_BYTES
from pagecage.agent.session import on_own_disk
from pagecage.linux.block_device import LoopDisk
from pagecage.linux.child_processes import Interruption
from pagecage.units import MIB
from tests.fake_host.machine import DATASET, Machine, make_request, make_trial

DATA_BYTES = 10_240 * MIB


def room_beside_other_data(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, other_bytes: int
) -> tuple[bool, int]:
    """Return whether data of other requests are kept, and the room for these."""
    other = machine.data / "random-1-1.bin"
    with other.open("wb") as file:
        file.truncate(other_bytes)
    size_bytes = DATA_BYTES * 21 // 20 + 512 * MIB

    def free_bytes(_: Path) -> int:
        return size_bytes - sum(path.stat().st_size for path in machine.data.iterdir())

    monkeypatch.setattr(data_files, "free_bytes", free_bytes)
    monkeypatch.setattr(LoopDisk, "attach", lambda _, spool: machine.data)
    monkeypatch.setattr(session, "detach_loop_disk", lambda spool: [])
    trial = replace(make_trial("good.py"), dataset=DATASET)
    own = {"file": "/disk.img", "size_bytes": size_bytes, "data_bytes": DATA_BYTES}
    request = replace(make_request(machine, trial), own_disk=own)
    with on_own_disk(request, Interruption()) as placed:
        assert placed.data_dir == str(machine.data)
        return other.exists(), free_bytes(machine.data)


def test_data_of_other_requests_go_if_these_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    is_kept, room = room_beside_other_data(monkeypatch, machine, 1024 * MIB)
    assert not is_kept
    assert room >= DATA_BYTES + SPARE_BYTES


def test_data_of_other_requests_stay_if_there_is_room(
    monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    assert room_beside_other_data(monkeypatch, machine, 512 * MIB)[0]
