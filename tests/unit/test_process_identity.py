import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_client import RunningGuest, read_guest, remove_leftovers, write_guest
from pagecage.process import Process, ProcessId, end, identify, is_alive, spawn, stat_fields


@pytest.fixture
def sleeper() -> Iterator[Process[bytes]]:
    process = spawn(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def cache(tmp_path: Path) -> GuestCache:
    cache = GuestCache(tmp_path)
    cache.make()
    return cache


def record_of(process: Process[bytes], *, kept: bool) -> RunningGuest:
    known = identify(process.pid)
    assert known is not None
    return RunningGuest(known.pid, known.start_ticks, 2222, "/images/x", "x-1", 1, kept, 0.0)


def test_a_name_with_spaces_and_brackets_is_read_past(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text("7 (a) b (c) S 1 " + " ".join(map(str, range(5, 53))))
    fields = stat_fields(7, tmp_path)
    assert fields is not None
    assert fields[0] == "S"
    assert identify(7, tmp_path) == ProcessId(7, 22)


def test_a_first_thread_that_ended_before_the_others_is_no_end(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = list(map(str, range(4, 53)))
    for threads, gone in ((3, False), (1, True)):
        fields[20 - 4] = str(threads)
        (tmp_path / "7/stat").write_text(f"7 (qemu) Z {' '.join(fields)}")
        assert (identify(7, tmp_path) is None) is gone


def test_a_pid_given_out_again_is_another_process(sleeper: Process[bytes]) -> None:
    known = identify(sleeper.pid)
    assert known is not None
    assert is_alive(known)
    stranger = replace(known, start_ticks=known.start_ticks - 1)
    assert not is_alive(stranger)
    end(stranger)
    assert sleeper.poll() is None
    end(known)
    assert sleeper.wait() == -9


def test_the_unreaped_are_not_alive() -> None:
    process = spawn(["sleep", "60"])
    known = identify(process.pid)
    assert known is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    assert stat_fields(process.pid) is not None
    assert not is_alive(known)
    process.wait()


def test_sweeping_ends_what_a_killed_owner_left(cache: GuestCache, sleeper: Process[bytes]) -> None:
    write_guest(cache, record_of(sleeper, kept=False))
    overlay = cache.scratch / "vl.abc123"
    overlay.touch()
    assert remove_leftovers(cache) == [f"QEMU {sleeper.pid}", "vl.abc123"]
    assert sleeper.wait() == -9
    assert not overlay.exists()
    assert remove_leftovers(cache) == []


def test_sweeping_leaves_a_kept_guest_alone(cache: GuestCache, sleeper: Process[bytes]) -> None:
    write_guest(cache, record_of(sleeper, kept=True))
    assert remove_leftovers(cache) == []
    assert read_guest(cache) is not None
    assert sleeper.poll() is None


def test_sweeping_never_ends_a_stranger_with_that_pid(
    cache: GuestCache, sleeper: Process[bytes]
) -> None:
    record = record_of(sleeper, kept=False)
    write_guest(cache, replace(record, start_ticks=record.start_ticks - 1))
    assert remove_leftovers(cache) == []
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "port": 2, "colour": "red"}']
)
def test_a_damaged_record_is_no_guest(cache: GuestCache, text: str) -> None:
    cache.guest_file.write_text(text)
    assert read_guest(cache) is None
