import sys
from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from pagecage.hosts.vm.cache import CacheLock, is_held, read_holder
from pagecage.process import PIPE, Process, spawn

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
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
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
