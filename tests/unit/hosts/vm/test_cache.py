"""Guests of several names, each with everything to itself, and the lock of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagecage.errors import HostError, PagecageError
from pagecage.hosts.vm.cache import CacheLock, GuestCache, existing_caches, is_held, read_holder
from pagecage.process import PIPE, Process, spawn
from tests.builders.known import known


def test_each_name_has_a_directory_and_the_first_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert GuestCache.of_user().root == tmp_path / "pagecage/vm"
    assert GuestCache.of_user("vm") == GuestCache.of_user()
    assert GuestCache.of_user("old").root == tmp_path / "pagecage/vm-old"
    assert (GuestCache.of_user().name, GuestCache.of_user("old").name) == ("vm", "old")
    assert existing_caches() == []
    for name in ("vm", "old"):
        GuestCache.of_user(name).make()
    assert [cache.name for cache in existing_caches()] == ["vm", "old"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", "Old", "-x", "a" * 31])
def test_a_name_that_is_no_word_is_refused(name: str) -> None:
    with pytest.raises(PagecageError, match="not a valid name for a guest"):
        GuestCache.of_user(name)


def test_a_cache_that_cannot_be_made_is_told_with_its_way_out(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    says = "home/pagecage/vm cannot be created: Not a directory"
    with pytest.raises(HostError, match=says) as caught:
        GuestCache(tmp_path / "home/pagecage/vm").make()
    assert caught.value.hint == "set XDG_CACHE_HOME to a writable directory"


HOLD = """
import sys
from pathlib import Path
from pagecage.hosts.vm.cache import CacheLock
lock = CacheLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> Process[bytes]:
    process = spawn([sys.executable, "-c", HOLD, path], stdin=PIPE, stdout=PIPE)
    assert known(process.stdout).readline() == b"held\n"
    return process


def test_who_comes_second_is_told_at_once_who_came_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    other = holder(path)
    try:
        with pytest.raises(PagecageError, match=f"in use by process {other.pid} since") as caught:
            CacheLock(path).acquire()
        assert f"kill -INT {other.pid}" in caught.value.hint
        assert is_held(path)
    finally:
        other.kill()
        other.communicate()


def test_a_killed_owner_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    other = holder(path)
    other.kill()
    other.communicate()
    assert not is_held(path)
    lock = CacheLock(path)
    lock.acquire()
    assert is_held(path)
    lock.release()
    assert not is_held(path)
    assert read_holder(path) == (None, 0.0)


def test_the_owner_may_ask_again(tmp_path: Path) -> None:
    lock = CacheLock(tmp_path / "lock")
    lock.acquire()
    lock.acquire()
    lock.release()
    lock.release()
